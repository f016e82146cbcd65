"""Reasons why a connection could not be made, or ended, in words for logs and errors.

asyncio hides the operating system's: `[Errno 111] Connect call failed ('127.0.0.1', 9)` is "Connection refused" here.
"""

from __future__ import annotations

import errno
import os
import re
import ssl
from typing import Final

from sparrowmq.errors import TlsFailed

_NUMBER: Final = re.compile(r"\[Errno ([0-9]+)\]")
_EXPIRED_CODE: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED
# What ssl.VERIFY_X509_STRICT finds, which Python 3.13 began to demand: X509_V_ERR_PATHLEN_INVALID_FOR_NON_CA up to
# X509_V_ERR_EC_KEY_EXPLICIT_PARAMS.
_STRICT_CODES: Final = range(80, 95)
# Alerts of the other side, by a part of OpenSSL's name for them: what it did, and what to do.
_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": (
        "it demands a certificate of its clients",
        "give one by tls.client.certPath and tls.client.keyPath",
    ),
    "UNKNOWN_CA": (
        "it does not trust our certificate",
        "give one that its tls.server.trustCertPath has signed (tls.client.certPath)",
    ),
    "CERTIFICATE_EXPIRED": ("our certificate has expired", "renew the file of tls.client.certPath"),
    "CERTIFICATE_UNKNOWN": ("it refuses our certificate", "its log says why; see tls.client.certPath"),
    "BAD_CERTIFICATE": ("it refuses our certificate", "its log says why; see tls.client.certPath"),
}


def why_unconnected(error: BaseException) -> str:
    """Return the reason; empty if the error has no text, as a timeout. A name with several addresses fails with
    "Multiple exceptions", one for each. Equal reasons are named once.
    """
    number = getattr(error, "errno", None)
    numbers = [number] if number else map(int, _NUMBER.findall(str(error)))
    reasons = dict.fromkeys(_errno_text(error_number) for error_number in numbers if error_number > 0)
    return ", ".join(reasons) or str(getattr(error, "strerror", None) or error)


def _errno_text(number: int) -> str:
    text = os.strerror(number)
    return f"{text} in this process: raise `ulimit -n`" if number == errno.EMFILE else text


def why_tls_failed(error: BaseException) -> TlsFailed | str:
    """Return why a TLS connection could not be made, and what to do if TLS is the reason."""
    if isinstance(error, ssl.SSLCertVerificationError):
        problem = f"its certificate is refused: {error.verify_message}"
        if error.verify_code == _EXPIRED_CODE:
            return TlsFailed(problem, "renew the file of its tls.server.certPath, or correct the clock here")
        if error.verify_code in _STRICT_CODES:
            return TlsFailed(
                problem,
                "make it and its CA again, as `sparrowmq secure init` does, or let your ssl.SSLContext be less strict: "
                "context.verify_flags &= ~ssl.VERIFY_X509_STRICT",
            )
        return TlsFailed(problem, "trust the one that signed it (tls.client.trustCertPath, or an ssl.SSLContext)")
    if isinstance(error, ssl.SSLError):
        return why_closed(error)
    if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return TlsFailed(
            "it closed the connection during the TLS handshake",
            "if it does not speak TLS, connect without, or set its tls.server.mode; if it has too many connections, "
            "its log says so",
        )
    return why_unconnected(error)


def why_closed(error: ssl.SSLError) -> TlsFailed:
    """Return why a connection ended, also behind the handshake: a server refuses certificates later than clients."""
    for alert, (problem, advice) in _ALERTS.items():
        if alert in (error.reason or ""):
            return TlsFailed(problem, advice)
    return TlsFailed(f"TLS failed: {reason(error)}", "compare tls.client.* here with tls.server.* there")


def why_refused(error: BaseException) -> str:
    """Return why a client's handshake failed, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message} (tls.server.trustCertPath)"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {reason(error)}"
    if isinstance(error, TimeoutError):
        return str(error)
    return "it left during the TLS handshake; perhaps it does not trust the certificate of this server"


def reason(error: OSError) -> str:
    """Return OpenSSL's reason in words; for a file, the operating system's."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error)
