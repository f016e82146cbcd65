"""The two ids of a message.

Unique id: made by the producer and never changed (property UNIQ_KEY), also the transaction id. Hex of

    | ip 4 or 16 | pid 2 | salt 4 | ms since the month began 4 | counter 2 |      32 or 56 hex digits

The month is that of the producer's local time, as in Java, so that `mqadmin queryMsgByUniqueKey` finds the day to
search. The C++ client has another order of bytes, so the parts of a foreign id are only a hint.
Source: MessageClientIDSetter, Java 4.9.8.

Offset id: made by the broker from the message's place. Hex of

    | store host 8 or 20 | physical offset 8 |                                   32 or 56 hex digits

Observed: 7F00000100002E870000000000000000 is 127.0.0.1:11911 at offset 0.
Source: MessageDecoder.createMessageId, Java 4.9.8.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, NamedTuple

from sparrowmq.errors import LocalProtocolError, RemoteProtocolError
from sparrowmq.kernel.batch_layout import RESERVED
from sparrowmq.kernel.gathering import ReservedIds
from sparrowmq.protocol import hosts

_IPV4_DIGITS: Final = 32
_IPV6_DIGITS: Final = 56
_LAST_PORT: Final = 65535


class UniqueIds:
    """Makes unique ids; one for each process is enough. Time and randomness come from the caller."""

    def __init__(self, ip: bytes, pid: int, salt: int, counter: int = 0) -> None:
        """`ip` has 4 or 16 bytes. `salt` separates producers of one process (Java: class loaders)."""
        if len(ip) not in (4, 16):
            raise LocalProtocolError(f"an IP address has 4 or 16 bytes, not {len(ip)}")
        self._prefix = f"{ip.hex()}{pid & 0xFFFF:04x}{salt & 0xFFFFFFFF:08x}".upper()
        self._counter = counter & 0xFFFF
        self._month_start_ms = 0
        self._month_end_ms = 0
        self._now_ms = -1
        self._head = ""

    def next(self, now_ms: int) -> str:
        if now_ms != self._now_ms:
            self._begin(now_ms)
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return f"{self._head}{counter:04X}"

    def reserve(self, now_ms: int) -> ReservedIds:
        """The next RESERVED ids, for messages of about this time."""
        if now_ms != self._now_ms:
            self._begin(now_ms)
        reserved = ReservedIds(self._head, self._counter)
        self._counter = (self._counter + RESERVED) & 0xFFFF
        return reserved

    def take(self, count: int, now_ms: int) -> bytes:
        """The next `count` ids in ASCII, end to end."""
        self._begin(now_ms)
        head, begin = self._head, self._counter
        self._counter = begin + count & 0xFFFF
        return "".join([f"{head}{counter & 0xFFFF:04X}" for counter in range(begin, begin + count)]).encode()

    def _begin(self, now_ms: int) -> None:
        """Begin another millisecond, in which only the counter's four digits change."""
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_around(now_ms)
        self._now_ms = now_ms
        self._head = f"{self._prefix}{now_ms - self._month_start_ms & 0xFFFFFFFF:08X}"


class OffsetId(NamedTuple):
    """The parts of an offset id: the broker that stored the message, and the log offset."""

    store_host: str
    physical_offset: int


def offset_id(store_host: bytes, physical_offset: int) -> str:
    """The offset id of the record at `physical_offset`; `store_host` is packed by `hosts.pack`."""
    return (store_host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def parse_offset_id(text: str) -> OffsetId:
    """Parse an offset id.

    Raises:
        RemoteProtocolError: it is not 32 or 56 hex digits, or has no port. A unique id has as many digits, and nearly
            always a number there that is too large for a port.
    """
    if len(text) in (_IPV4_DIGITS, _IPV6_DIGITS):
        try:
            raw = bytes.fromhex(text)
        except ValueError:
            raw = b""
        if raw and int.from_bytes(raw[-12:-8], "big") <= _LAST_PORT:
            return OffsetId(hosts.unpack(raw[:-8]), int.from_bytes(raw[-8:], "big", signed=True))
    raise RemoteProtocolError(
        f"{text[:80]!r} is not an offset message id, which has 32 hex digits or 56 with a port in them"
    )


def _month_around(now_ms: int) -> tuple[int, int]:
    now = datetime.fromtimestamp(now_ms / 1000)
    start = datetime(now.year, now.month, 1)
    end = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return int(start.timestamp()) * 1000, int(end.timestamp()) * 1000
