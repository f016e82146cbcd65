"""Compressed header blocks: bytes in, headers out (HPACK, RFC 7541).

    1.......  index                        a header of the table
    01......  name, value                  a literal, which enters the table
    001.....  size                         a new size of the table; only at the beginning of a block
    0000....  0001....  name, value        a literal that enters no table

A name is a string or the index of a header that has it. A string may be in Huffman's code, as the ids of calls are.

    1 ... 61      fixed headers
    62 ...        headers that the peer has entered, the newest first

A header that enters pushes the oldest ones out, until all of them fit into the table.

A list may have HARD_LIST_BYTES, so a small block cannot become a large list. After that the table that both sides share
is lost, and the connection with it. A list between the limit of the settings and this one is refused by an answer.
"""

from __future__ import annotations

from sparrowmq.kernel.cursor import In, Out
from sparrowmq.kernel.frame_layout import (
    COMPRESSION_ERROR,
    ENHANCE_YOUR_CALM,
    ENTRY_BYTES,
    HARD_LIST_BYTES,
    TABLE_BYTES,
    ConnectionFault,
)
from sparrowmq.kernel.hpack_tables import EMITS, FAILS, FIXED, MAY_END, STEPS

_LONGEST_INTEGER = 5  # bytes behind the first
_NAME_LETTERS = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
_OF_A_CONNECTION = (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
_STEPS = In(STEPS)
_NOTHING = In(b"")


class Header:
    """A header that was read once, and may be referred to any number of times.

    Attributes:
        key, text: name and value as text.
        is_pseudo: the name begins with a colon.
        fault: why a request may not have it; None if it may. Names that begin with a colon are not checked.
    """

    __slots__ = ("fault", "is_pseudo", "key", "name", "name_fault", "text", "value")

    def __init__(self) -> None:
        self.name = self.value = b""
        self.key = self.text = ""
        self.is_pseudo = False
        self.fault: str | None = None
        self.name_fault: str | None = None

    def size(self) -> int:
        """Its size as SETTINGS_MAX_HEADER_LIST_SIZE and the table count."""
        return len(self.name) + len(self.value) + ENTRY_BYTES


def _header(name: bytes, value: bytes, like: Header | None) -> Header:
    """A header with this name, and what is known of the name if another header has it."""
    header = Header()
    header.name, header.value = name, value
    header.text = value.decode("latin-1")
    if like is not None:
        header.key, header.name_fault = like.key, like.name_fault
    else:
        header.key, header.name_fault = name.decode("latin-1"), _name_fault(name)
    header.is_pseudo = header.key[:1] == ":"
    header.fault = header.name_fault
    if header.fault is None and not header.is_pseudo:
        if header.key == "te" and value != b"trailers":
            header.fault = "the header b'te' is of HTTP/1"
        elif b"\n" in value or b"\r" in value or b"\0" in value:
            header.fault = f"the value of {name!r} has a line end or a NUL"
    return header


def _name_fault(name: bytes) -> str | None:
    if name[:1] == b":":
        return None
    if not name or name.translate(None, _NAME_LETTERS):
        return f"a header may not be called {name[:60]!r} here"
    if name in _OF_A_CONNECTION:
        return f"the header {name!r} is of HTTP/1"
    return None


_FIXED = [_header(name, value, None) for name, value in FIXED]


class HeaderReader:
    """Decompresses the header blocks of one connection, in the order of their arrival."""

    __slots__ = ("_at", "_end", "_entered", "_most_bytes", "_out", "_size", "_source")

    def __init__(self) -> None:
        self._entered: list[Header] = []  # the oldest first
        self._size = 0
        self._most_bytes = TABLE_BYTES
        self._out = Out()
        self._source = _NOTHING
        self._at = self._end = 0

    def read(self, source: In, at: int, end: int) -> list[Header]:
        """Return the headers of the block from `at` to `end`.

        Raises: ConnectionFault, it cannot be decompressed, or becomes too large.
        """
        self._source, self._at, self._end = source, at, end
        headers: list[Header] = []
        list_bytes = 0
        while self._at < self._end:
            if list_bytes > HARD_LIST_BYTES:
                raise ConnectionFault(ENHANCE_YOUR_CALM, f"the headers are larger than {HARD_LIST_BYTES} bytes")
            first = source.u8(self._at)
            if first & 0x80:
                header = self._header_at(self._integer(0x7F))
            elif first & 0x40:
                header = self._literal(0x3F)
                self._entered.append(header)
                self._size += header.size()
                self._shrink()
            elif first & 0x20:
                size = self._integer(0x1F)
                if headers or size > TABLE_BYTES:
                    raise _broken("the size of the table changes behind headers, or is too large")
                self._most_bytes = size
                self._shrink()
                list_bytes += ENTRY_BYTES  # so a block cannot have thousands of them
                continue
            else:
                header = self._literal(0x0F)
            headers.append(header)
            list_bytes += header.size()
        self._source = _NOTHING
        return headers

    def _header_at(self, index: int) -> Header:
        count, fixed = len(self._entered), len(_FIXED)
        if 0 < index <= fixed:
            return _FIXED[index - 1]
        if index <= 0 or index > fixed + count:
            raise ConnectionFault(COMPRESSION_ERROR, f"the table has no header {index}")
        return self._entered[count + fixed - index]

    def _literal(self, mask: int) -> Header:
        index = self._integer(mask)
        if index == 0:
            name = self._string()
            return _header(name, self._string(), None)
        like = self._header_at(index)
        return _header(like.name, self._string(), like)

    def _shrink(self) -> None:
        count = 0
        while self._size > self._most_bytes:
            oldest = self._entered[count]
            self._size -= oldest.size()
            count += 1
        if count > 0:
            del self._entered[:count]

    def _byte(self) -> int:
        if self._at >= self._end:
            raise _broken("it ends too soon")
        self._at += 1
        return self._source.u8(self._at - 1)

    def _integer(self, mask: int) -> int:
        """The integer in the low bits of a byte and perhaps those behind it."""
        number = self._byte() & mask
        if number < mask:
            return number
        shift = 0
        while shift < 7 * _LONGEST_INTEGER:
            byte = self._byte()
            number += (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7
        raise _broken("an integer is too long")

    def _string(self) -> bytes:
        is_coded = self._at < self._end and self._source.u8(self._at) >= 0x80
        length = self._integer(0x7F)
        begin = self._at
        if length > self._end - begin:
            raise _broken("it ends within a string")
        self._at += length
        return self._plain(begin, self._at) if is_coded else self._source.slice(begin, self._at)

    def _plain(self, at: int, end: int) -> bytes:
        """Decode Huffman's code."""
        source, out, step = self._source, self._out, MAY_END
        while at < end:
            byte = source.u8(at)
            at += 1
            for shift in (4, 0):
                step = _STEPS.i32(((step >> 16) << 4 | (byte >> shift & 0xF)) << 2)
                if step & FAILS:
                    out.take()
                    raise _broken("a string is not in Huffman's code")
                if step & EMITS:
                    out.u8(step & 0xFF)
        decoded = out.take()
        if not step & MAY_END:
            raise _broken("it ends within a character of Huffman's code")
        return decoded


def _broken(why: str) -> ConnectionFault:
    return ConnectionFault(COMPRESSION_ERROR, f"a broken header block: {why}")
