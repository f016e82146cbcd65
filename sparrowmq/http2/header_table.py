"""The table of headers that both sides of a connection share in one direction (RFC 7541, section 2.3).

    1 ... 61      fixed headers, as `hpack` lists them
    62 ...        headers that the peer has entered, the newest first

A header that enters pushes the oldest ones out, until all of them fit into the table. Clients enter two headers with
each call and refer to a dozen, so the table is compiled.
"""

from __future__ import annotations

from typing import Final

from hpack.exceptions import InvalidTableIndex
from hpack.table import HeaderTable as Reference

TABLE_BYTES: Final = 4096  # unless settings say otherwise
ENTRY_BYTES: Final = 32  # that each header counts besides its name and value (section 4.1)
FIXED: Final[list[tuple[bytes, bytes]]] = list(Reference.STATIC_TABLE)


class HeaderTable:
    """The table of one direction, on the side that reads."""

    __slots__ = ("_entered", "_most_bytes", "_size")

    def __init__(self) -> None:
        self._entered: list[tuple[bytes, bytes]] = []  # the oldest first
        self._size = 0
        self._most_bytes = TABLE_BYTES

    def header(self, index: int) -> tuple[bytes, bytes]:
        """Return the name and value with this number. Raises: InvalidTableIndex."""
        fixed = len(FIXED)
        if 0 < index <= fixed:
            return FIXED[index - 1]
        place = len(self._entered) + fixed - index
        if index <= 0 or place < 0:
            raise InvalidTableIndex(f"the table has no header {index}")
        return self._entered[place]

    def enter(self, header: tuple[bytes, bytes]) -> None:
        """Enter a header. One that is larger than the table only empties it."""
        self._entered.append(header)
        self._size += _size_of(header)
        self._shrink()

    def resize(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._shrink()

    def _shrink(self) -> None:
        count = 0
        while self._size > self._most_bytes:
            self._size -= _size_of(self._entered[count])
            count += 1
        if count:
            del self._entered[:count]


def _size_of(header: tuple[bytes, bytes]) -> int:
    return len(header[0]) + len(header[1]) + ENTRY_BYTES
