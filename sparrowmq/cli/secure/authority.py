"""A private certificate authority (CA): its own certificate, and those that it signs. The program `openssl` makes them.

    a server    for its addresses; it is also a client of other servers
    a client    for no address, so it cannot pose as a server

Keys are elliptic (P-256). Only the owner can read them. A renewed certificate keeps its key, so one file changes.
"""

from __future__ import annotations

import ipaddress
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from sparrowmq.errors import ConfigError

LIMIT_S: Final = 30.0
OWNERS_ALONE: Final = 0o600
_CONFIG: Final = """\
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[signed]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


@dataclass(frozen=True)
class Files:
    """A certificate and its key, in PEM."""

    certificate: Path
    key: Path


def make_authority(files: Files, name: str, days: int) -> None:
    """Make the key and the certificate of a CA. Raises: ConfigError, openssl is missing or fails."""
    _make_key(files.key)
    with TemporaryDirectory(prefix="sparrowmq-") as folder:
        config = _written(folder, _CONFIG)
        _openssl(
            *("req", "-x509", "-new", "-config", config, "-extensions", "authority", "-key", files.key),
            *("-subj", f"/CN={name}", "-days", days, "-set_serial", _serial(), "-out", files.certificate),
        )


def sign(files: Files, name: str, hosts: tuple[str, ...], authority: Files, days: int) -> None:
    """Make a certificate, and its key if there is none yet.

    Args:
        name: the common name.
        hosts: the addresses of a server; () for a client.
    Raises:
        ConfigError: openssl is missing or fails.
    """
    if not files.key.exists():
        _make_key(files.key)
    usage = "serverAuth, clientAuth" if hosts else "clientAuth"
    extensions = f"extendedKeyUsage = {usage}\n"
    if hosts:
        extensions += f"subjectAltName = {', '.join(map(_alternative, hosts))}\n"
    with TemporaryDirectory(prefix="sparrowmq-") as folder:
        config, request = _written(folder, _CONFIG + extensions), Path(folder, "request.pem")
        made = Path(folder, "made.pem")
        _openssl(*("req", "-new", "-config", config, "-key", files.key, "-subj", f"/CN={name}", "-out", request))
        _openssl(
            *("x509", "-req", "-in", request, "-CA", authority.certificate, "-CAkey", authority.key),
            *("-set_serial", _serial(), "-days", days, "-extfile", config, "-extensions", "signed"),
            *("-out", made),
        )
        content = made.read_bytes()
    written = files.certificate.with_name(files.certificate.name + ".tmp")
    written.write_bytes(content)
    written.replace(files.certificate)


def _make_key(path: Path) -> None:
    path.touch(OWNERS_ALONE, exist_ok=False)
    _openssl(
        "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-pkeyopt", "ec_param_enc:named_curve",
        "-out", path,
    )  # fmt: skip
    path.chmod(OWNERS_ALONE)


def _alternative(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def _serial() -> str:
    return f"0x{secrets.randbits(127) | 1 << 126:x}"


def _written(folder: str, text: str) -> Path:
    path = Path(folder, "openssl.cnf")
    path.write_text(text)
    return path


def _openssl(*words: object) -> None:
    try:
        subprocess.run(
            ["openssl", *map(str, words)],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=LIMIT_S,
        )
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ConfigError(f"openssl cannot make a certificate ({said or f'exit {error.returncode}'})") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"openssl cannot make a certificate ({error}); install the program openssl") from error
