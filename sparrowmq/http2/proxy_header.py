"""The header that a proxy such as HAProxy puts before a connection, to say where it came from: PROXY, versions 1 and 2.

    1    PROXY TCP4 192.0.2.1 198.51.100.1 56324 8081\\r\\n
    2    signature of 12 bytes, version and command, family, length, addresses and ports, extensions

Every client can write such a header, and so claim any address. So a server reads it only where a setting says that all
connections come through a proxy. There the header must be present. Unlike Java, whose proxy takes it from everybody.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from sparrowmq.remoting.tls.encryption import Opening, PlainProtocol

_FIRST_1: Final = b"PROXY "
_FIRST_2: Final = b"\r\n\r\n\0\r\nQUIT\n"
_HEAD_2_BYTES: Final = 16
LONGEST_1: Final = 107
LONGEST_2: Final = 4096  # with extensions, which are ignored
_FAMILIES_1: Final = {"TCP4": ipaddress.IPv4Address, "TCP6": ipaddress.IPv6Address}
_PORT_1: Final = re.compile(r"[0-9]{1,5}")
_HIGHEST: Final = 65535
_LOCAL: Final = 0x20  # the proxy itself, such as its check of our health
_PROXIED: Final = 0x21
_ADDRESS_BYTES: Final = {0x11: 4, 0x21: 16}  # TCP over IPv4 and over IPv6


class ProxyHeader(NamedTuple):
    """One header: where the connection came from ("" if it does not say), and the bytes that it takes."""

    host: str
    port: int
    size: int


def proxy_header(data: bytes) -> ProxyHeader | None:
    """Return the header at the begin of a connection, or None if more bytes are needed.

    Raises: ValueError, there is none.
    """
    for first, read in ((_FIRST_1, _version_1), (_FIRST_2, _version_2)):
        if data[: len(first)] == first[: len(data)]:
            return read(data) if len(data) > len(first) else None
    raise ValueError("the connection does not begin with a PROXY header, and this port is for a proxy only")


def _version_1(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, LONGEST_1)
    if end < 0:
        if len(data) >= LONGEST_1:
            raise ValueError("the PROXY header has no end")
        return None
    words = data[:end].decode("ascii", "replace").split(" ")
    if words[1] == "UNKNOWN":
        return ProxyHeader("", 0, end + 2)
    family = _FAMILIES_1.get(words[1])
    if len(words) != 6 or family is None or not _PORT_1.fullmatch(words[4]) or "%" in words[2]:
        raise ValueError(f"the PROXY header is {data[:end]!r}")
    host, port = family(words[2]), int(words[4])
    if port > _HIGHEST:
        raise ValueError(f"the PROXY header has the port {port}")
    return ProxyHeader(str(host), port, end + 2)


def _version_2(data: bytes) -> ProxyHeader | None:
    if len(data) < _HEAD_2_BYTES:
        return None
    command, family = data[12], data[13]
    size = _HEAD_2_BYTES + int.from_bytes(data[14:16], "big")
    if command not in (_LOCAL, _PROXIED) or size > LONGEST_2:
        raise ValueError(f"the PROXY header has the command {command:#x} and {size} bytes")
    if len(data) < size:
        return None
    length = _ADDRESS_BYTES.get(family, 0)
    if command == _LOCAL or not length:
        return ProxyHeader("", 0, size)
    end = _HEAD_2_BYTES + 2 * length
    if end + 4 > size:
        raise ValueError("the PROXY header is too short for its addresses")
    host = ipaddress.ip_address(data[_HEAD_2_BYTES : _HEAD_2_BYTES + length])
    return ProxyHeader(str(host), int.from_bytes(data[end : end + 2], "big"), size)


class ProxyOpening(asyncio.Protocol):
    """The protocol of a new connection until its header is here.

    Args:
        behind: the protocol from then on.
        found: called with the host and port of the client, if the header names them.
        refused: called with the reason if there is no header.
    """

    def __init__(
        self,
        behind: PlainProtocol | Opening,
        found: Callable[[str, int], object],
        refused: Callable[[str], object],
    ) -> None:
        self._behind = behind
        self._found = found
        self._refused = refused
        self._transport: asyncio.Transport | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._behind.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            header = proxy_header(self._data)
        except ValueError as error:
            self._refused(str(error))
            return
        if header is None or self._transport is None:
            return
        if header.host:
            self._found(header.host, header.port)
        if self._transport.is_closing():  # the address may have no more connections
            return
        self._transport.set_protocol(self._behind)  # type: ignore[arg-type]  # of a protocol it has all methods
        rest, self._data = self._data[header.size :], b""
        if rest:
            self._behind.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self._behind.connection_lost(exc)

    def pause_writing(self) -> None:
        self._behind.pause_writing()

    def resume_writing(self) -> None:
        self._behind.resume_writing()
