"""Cursors over bytes: `In` reads what was received or stored, `Out` makes what is sent or stored.

cursor.pyx is the same for a machine with a C compiler, and the only file with pointers: each access is checked against
the end of its bytes. This file runs where nothing could be compiled, and is what tests compare the other one with.
All numbers are big-endian and signed, as Java's; `u8` and `u16` are not signed.
"""

from __future__ import annotations

import re

from sparrowmq.kernel.crc import crc32

_BEYOND = "beyond the end of the bytes"
_TEXT = re.compile(rb"[ !#-\[\]-~]*+")  # ASCII that JSON writes as it is
_NUMBER = re.compile(rb"0|[1-9][0-9]{0,17}")


class In:
    """Bytes to read, kept as they are: a `bytes`, or another buffer that must not change meanwhile.

    Raises:
        IndexError: of each method, if it would read beyond the end.
    """

    __slots__ = ("_bytes", "size")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._bytes = data if isinstance(data, bytes) else bytes(data)
        self.size = len(self._bytes)

    def u8(self, at: int) -> int:
        return self._bytes[self._checked(at, 1)]

    def u16(self, at: int) -> int:
        return self._bytes[self._checked(at, 2)] << 8 | self._bytes[at + 1]

    def i16(self, at: int) -> int:
        return self._number(at, 2)

    def i32(self, at: int) -> int:
        return self._number(at, 4)

    def i64(self, at: int) -> int:
        return self._number(at, 8)

    def slice(self, at: int, end: int) -> bytes:
        """A copy of the bytes from `at` to `end`."""
        self._checked(at, end - at)
        return self._bytes[at:end]

    def crc(self, at: int, end: int) -> int:
        """The CRC-32 of the bytes from `at` to `end`, as in zlib."""
        return crc32(self.slice(at, end))

    def is_at(self, text: bytes, at: int) -> bool:
        """Whether these bytes stand at `at`."""
        return self.slice(at, at + len(text)) == text

    def text_end(self, at: int, end: int) -> int:
        """The end of text in ASCII that JSON writes as it is: at a quote, a backslash, any other byte, or `end`."""
        self._checked(at, end - at)
        text = _TEXT.match(self._bytes, at, end)
        assert text is not None
        return text.end()

    def number(self, at: int, end: int) -> int:
        """The number whose decimal digits, at most 18, are the bytes from `at` to `end`; -1 if they are none."""
        digits = self.slice(at, end)
        return int(digits) if _NUMBER.fullmatch(digits) else -1

    def _number(self, at: int, size: int) -> int:
        return int.from_bytes(self._bytes[self._checked(at, size) : at + size], "big", signed=True)

    def _checked(self, at: int, size: int) -> int:
        if at < 0 or size < 0 or size > self.size - at:
            raise IndexError(_BEYOND)
        return at


class Out:
    """Bytes that are made one after the other.

    Raises:
        OverflowError: of each method that writes a number, if the number does not fit.
    """

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made = bytearray()

    @property
    def size(self) -> int:
        return len(self._made)

    def u8(self, value: int) -> None:
        self._made += value.to_bytes(1, "big")

    def i16(self, value: int) -> None:
        self._made += value.to_bytes(2, "big", signed=True)

    def i32(self, value: int) -> None:
        self._made += value.to_bytes(4, "big", signed=True)

    def i64(self, value: int) -> None:
        self._made += value.to_bytes(8, "big", signed=True)

    def put_i32(self, at: int, value: int) -> None:
        """Write a number over four bytes that were made before. Raises: IndexError."""
        if not 0 <= at <= len(self._made) - 4:
            raise IndexError(_BEYOND)
        self._made[at : at + 4] = value.to_bytes(4, "big", signed=True)

    def decimal(self, value: int) -> None:
        """Append the digits of a 64-bit number."""
        self._made += b"%d" % value

    def hexadecimal(self, value: int) -> None:
        """Append the 16 hexadecimal digits of a 64-bit number, in capitals."""
        self._made += b"%016X" % (value & 0xFFFFFFFFFFFFFFFF)

    def raw(self, data: bytes | bytearray | memoryview) -> None:
        self._made += data

    def copy(self, source: In, at: int, end: int) -> None:
        """Append the bytes of `source` from `at` to `end`. Raises: IndexError."""
        self._made += source.slice(at, end)

    def crc(self, at: int) -> int:
        """The CRC-32 of all that was made from `at` on. Raises: IndexError."""
        if not 0 <= at <= len(self._made):
            raise IndexError(_BEYOND)
        return crc32(memoryview(self._made)[at:])

    def cut(self, size: int) -> None:
        """Forget all but the first `size` bytes. Raises: IndexError."""
        if not 0 <= size <= len(self._made):
            raise IndexError(_BEYOND)
        del self._made[size:]

    def content(self) -> bytes:
        """A copy of all that was made."""
        return bytes(self._made)

    def take(self) -> bytes:
        """All that was made. The next byte is the first one again."""
        made = bytes(self._made)
        self._made.clear()
        return made

    def view(self) -> memoryview:
        """All that was made, without a copy. While the view is there, each change raises BufferError."""
        return memoryview(self._made)
