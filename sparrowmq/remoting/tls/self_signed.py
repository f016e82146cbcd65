"""A self-signed certificate, which proves nothing, for clients that want encryption and do not check the server.

The program `openssl` makes it in some 20 ms. So users need no library for a certificate that no cluster should rely on.
The key is on disk, readable only by its owner, until it is loaded.
"""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from sparrowmq.errors import ConfigError

_COMMAND: Final = (
    *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
    *("-subj", "/CN=sparrowmq self-signed", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "365"),
)
TIME_LIMIT_S: Final = 30.0


def load(context: ssl.SSLContext) -> None:
    """Make a certificate, and load it into a server's context. Raises: ConfigError, `openssl` is missing or fails."""
    with TemporaryDirectory(prefix="sparrowmq-tls-") as folder:
        certificate, key = Path(folder, "certificate.pem"), Path(folder, "key.pem")
        try:
            subprocess.run(
                [*_COMMAND, "-out", str(certificate), "-keyout", str(key)],
                check=True,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=TIME_LIMIT_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(
                f"no certificate for TLS could be made ({_reason(error)}): give tls.server.certPath and "
                "tls.server.keyPath, or install the program openssl"
            ) from error
        context.load_cert_chain(certificate, key)


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return error.stderr.decode(errors="replace").strip().rpartition("\n")[2] or f"exit {error.returncode}"
    return str(getattr(error, "strerror", None) or error)
