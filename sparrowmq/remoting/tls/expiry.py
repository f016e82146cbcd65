"""When a certificate ends: its field notAfter, read from the file without a library.

    Certificate ::= SEQUENCE { SEQUENCE { [0] version, serial, algorithm, issuer, SEQUENCE { notBefore, notAfter } ...

Source: RFC 5280, sections 4.1 and 4.1.2.5.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

_PEM_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_PEM_END: Final = "-----END CERTIFICATE-----"
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17  # two digits of the year, 1950 to 2049
_BEFORE_VALIDITY: Final = 3  # serial, algorithm, issuer
_SOON_DAYS: Final = 14
_DAY_S: Final = 86_400


def ends_at(certificate: Path) -> datetime | None:
    """Return when the first certificate in a PEM file ends; None if the file has none that can be read."""
    try:
        text = certificate.read_text(errors="replace")
        begin = text.index(_PEM_BEGIN)
        pem = text[begin : text.index(_PEM_END, begin) + len(_PEM_END)]
        return _not_after(ssl.PEM_cert_to_DER_cert(pem))
    except (OSError, ValueError, IndexError):
        return None


def ends_soon(certificate: Path, end: datetime | None, now_ms: int, effect: str) -> str:
    """Return a sentence if a certificate ends within 14 days; "" otherwise.

    Args:
        effect: of a certificate that has ended.
    """
    if end is None:
        return ""
    days = (end.timestamp() - now_ms / 1000) / _DAY_S
    if days > _SOON_DAYS:
        return ""
    moment = f"{end:%Y-%m-%d %H:%M} UTC"
    return f"{certificate} ended at {moment}; {effect}" if days < 0 else f"{certificate} ends at {moment}"


def _not_after(der: bytes) -> datetime:
    """Raises: ValueError, IndexError, it is no certificate."""
    _, _, at = _header(der, 0)  # the certificate
    _, _, at = _header(der, at)  # what is signed
    if der[at] == _VERSION:
        at = _behind(der, at)
    for _ in range(_BEFORE_VALIDITY):
        at = _behind(der, at)
    _, _, at = _header(der, at)  # the validity
    kind, size, begin = _header(der, _behind(der, at))
    form = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(der[begin : begin + size].decode("ascii"), form).replace(tzinfo=UTC)


def _header(der: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag, the size and the begin of the content of the value at an offset."""
    size, begin = der[at + 1], at + 2
    if size & 0x80:
        count = size & 0x7F
        size, begin = int.from_bytes(der[begin : begin + count]), begin + count
    return der[at], size, begin


def _behind(der: bytes, at: int) -> int:
    _, size, begin = _header(der, at)
    return begin + size
