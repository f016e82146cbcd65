"""Reasons of TLS failures, in words for the log of a server and for the errors of a client."""

from __future__ import annotations

import ssl

from sparrowmq.remoting.connect_errors import why_unconnected


def why_not(error: BaseException) -> str:
    """Return why a TLS connection could not be made, and a possible remedy, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is refused: {error.verify_message}; trust the one that signed it "
            "(tls.client.trustCertPath, or an ssl.SSLContext)"
        )
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {reason(error)}"
    if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return "it ended the connection while TLS was agreed on; does it speak TLS (tls.server.mode)?"
    return why_unconnected(error)


def why_refused(error: BaseException) -> str:
    """Return why a client's handshake failed, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message} (tls.server.trustCertPath)"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {reason(error)}"
    if isinstance(error, TimeoutError):
        return str(error)
    return "it left during the TLS handshake; perhaps it does not trust the certificate that it was shown"


def reason(error: OSError) -> str:
    """Return OpenSSL's reason in words; for a file, the operating system's."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error)
