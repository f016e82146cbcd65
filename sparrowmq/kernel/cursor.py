"""Cursors over bytes: `In` reads what was received or stored, `Out` makes what is sent or stored.

cursor.pyx is the same for a machine with a C compiler, and the only file with pointers: each access is checked against
the end of its bytes. This file runs where nothing could be compiled, and is what tests compare the other one with.
All numbers are big-endian and signed, as Java's; `u8` and `u16` are not signed.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate, compress
from typing import TYPE_CHECKING

from sparrowmq.kernel.crc import crc32

if TYPE_CHECKING:
    _Array = array[int]
else:
    _Array = array  # it takes no type before Python 3.12

_BEYOND = "beyond the end of the bytes"
_TEXT = re.compile(rb"[ !#-\[\]-~]*+")  # ASCII that JSON writes as it is
_QUOTED = re.compile(rb'"[ !#-\[\]-~]*+"')
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

    def without(self, at: int, from_: int, to: int, end: int) -> bytes:
        """A copy of the bytes from `at` to `end`, without those from `from_` to `to`."""
        return self.slice(at, from_) + self.slice(to, end)

    def crc(self, at: int, end: int) -> int:
        """The CRC-32 of the bytes from `at` to `end`, as in zlib."""
        return crc32(self.slice(at, end))

    def is_at(self, text: bytes, at: int) -> bool:
        """Whether these bytes stand at `at`."""
        return self.slice(at, at + len(text)) == text

    def equals(self, text: bytes, at: int, end: int) -> bool:
        """Whether these bytes are all from `at` to `end`."""
        return end - at == len(text) and self.is_at(text, at)

    def text_end(self, at: int, end: int) -> int:
        """The end of text in ASCII that JSON writes as it is: at a quote, a backslash, any other byte, or `end`."""
        self._checked(at, end - at)
        text = _TEXT.match(self._bytes, at, end)
        assert text is not None
        return text.end()

    def find(self, byte: int, at: int, end: int) -> int:
        """The place of the first such byte from `at` on; `end` if there is none."""
        self._checked(at, end - at)
        found = self._bytes.find(byte, at, end)
        return end if found < 0 else found

    def is_ascii(self, at: int, end: int) -> bool:
        return self.slice(at, end).isascii()

    def hash31(self, at: int, end: int, start: int) -> int:
        """Java's hash of the bytes from `at` to `end`, each a character, behind a text with the hash `start`."""
        total = start
        for byte in self.slice(at, end):
            total = total * 31 + byte & 0xFFFFFFFF
        return (total + 0x80000000 & 0xFFFFFFFF) - 0x80000000

    def quoted_end(self, at: int, end: int) -> int:
        """The end, at its other quote, of the `text_end` whose quote is at `at`; -1 if there is none before `end`."""
        if at >= end:
            return -1
        self._checked(at, end - at)
        text = _QUOTED.match(self._bytes, at, end)
        return -1 if text is None else text.end() - 1

    def number(self, at: int, end: int) -> int:
        """The number whose decimal digits, at most 18, are the bytes from `at` to `end`; -1 if they are none."""
        digits = self.slice(at, end)
        return int(digits) if _NUMBER.fullmatch(digits) else -1

    def pairs(self, at: int, end: int, hidden: bytes, names_at: Longs, names_end: Longs, values_end: Longs) -> None:
        """Append where the names and values are from `at` to `end`: name 0x01 value 0x02 each, but for names `hidden`.

        A pair without 0x01, without a name, or without a value does not count. Further 0x01 belong to the value.
        """
        for pair in self.slice(at, end).split(b"\2"):
            name, _, value = pair.partition(b"\1")
            if name and value and name != hidden:
                names_at.append(at)
                names_end.append(at + len(name))
                values_end.append(at + len(pair))
            at += len(pair) + 1

    def values(
        self, name: bytes, names_at: Longs, names_end: Longs, values_end: Longs, firsts: Longs
    ) -> tuple[Longs, Longs]:
        """The begin and the end of each row's last value of this name; -1 where there is none.

        Args:
            names_at, names_end, values_end: as `pairs` makes them.
            firsts: the number of each row's first pair, and of all pairs.
        Raises: IndexError, there are fewer pairs.
        """
        if not len(names_at) == len(names_end) == len(values_end):
            raise ValueError("as many of each place")
        if firsts and max(firsts) > len(names_at):
            raise IndexError("beyond the end of the numbers")
        self._check_all(names_at, 0)
        self._check_all(names_end, 0)
        data, size, rows = self._bytes, len(name), max(0, len(firsts) - 1)
        begins, ends = [-1] * rows, [-1] * rows
        places, row = enumerate(zip(names_at, names_end, strict=True)), 0
        for number in [number for number, (at, end) in places if end - at == size and data[at:end] == name]:
            while row < rows and firsts[row + 1] <= number:
                row += 1
            if row < rows and firsts[row] <= number:
                begins[row], ends[row] = names_end[number] + 1, values_end[number]
        value_begins, value_ends = Longs(), Longs()
        value_begins.extend(begins)
        value_ends.extend(ends)
        return value_begins, value_ends

    def numbers(self, places: Longs, shift: int, size: int) -> bytes:
        """The numbers of `size` bytes, 4 or 8, `shift` bytes behind each place, in the machine's byte order."""
        if size not in (4, 8):
            raise ValueError(f"numbers have 4 or 8 bytes, not {size}")
        self._check_all(places, shift)
        self._check_all(places, shift + size)
        data, end = self._bytes, shift + size
        found = array("i" if size == 4 else "q", b"".join([data[place + shift : place + end] for place in places]))
        if sys.byteorder == "little":
            found.byteswap()
        return found.tobytes()

    def cut(
        self, begins: Longs, begin_shift: int, ends: Longs, end_shift: int
    ) -> tuple[int, bytes | None, bytes, bytes]:
        """The pieces from each begin to its end, both moved by a shift, as Arrow has them; a begin of -1 is a null.

        Returns: how many are null, the bits of those that are not (None if all are), their bounds, and their bytes.
        Raises: OverflowError, more than 2 GiB.
        """
        if len(begins) != len(ends):
            raise ValueError("as many ends as begins")
        missing = begins.count(-1)
        valid = [begin != -1 for begin in begins] if missing else []
        some_begins = list(compress(begins, valid)) if missing else begins
        some_ends = list(compress(ends, valid)) if missing else ends
        self._check_all(some_begins, begin_shift)
        self._check_all(some_ends, end_shift)
        data, places = self._bytes, zip(some_begins, some_ends, strict=True)
        pieces = [data[begin + begin_shift : end + end_shift] for begin, end in places]
        sizes = list(map(len, pieces))
        # A piece of which the end is before its begin is longer than their difference.
        if sum(sizes) != sum(some_ends) - sum(some_begins) + len(pieces) * (end_shift - begin_shift):
            raise IndexError(_BEYOND)
        content, validity = b"".join(pieces), None
        if missing:
            following = iter(sizes)
            sizes = [next(following) if is_valid else 0 for is_valid in valid]
            bits = "".join("1" if is_valid else "0" for is_valid in reversed(valid))
            validity = int(bits, 2).to_bytes(-(-len(valid) // 8), "little")
        return missing, validity, array("i", accumulate(sizes, initial=0)).tobytes(), content

    def _check_all(self, places: Sequence[int], shift: int) -> None:
        first, last = min(places, default=0), max(places, default=0)
        if places and (first < 0 or last > self.size or first + shift < 0 or last + shift > self.size):
            raise IndexError(_BEYOND)

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

    def zeros(self, count: int) -> None:
        """Begin with so many zeros. They take no memory of the system until they are changed."""
        if self._made or count < 0:
            raise ValueError("zeros come first")
        self._made = bytearray(count)

    def put(self, at: int, content: bytes) -> None:
        """Write over bytes that were made before. Raises: IndexError."""
        if not 0 <= at <= len(self._made) - len(content):
            raise IndexError(_BEYOND)
        self._made[at : at + len(content)] = content

    def piece(self, begin: int, end: int) -> bytes:
        """A copy of the bytes from `begin` to `end`. Raises: IndexError."""
        if not 0 <= begin <= end <= len(self._made):
            raise IndexError(_BEYOND)
        return bytes(memoryview(self._made)[begin:end])

    def i32_at(self, at: int) -> int:
        """The number in four bytes that were made before. Raises: IndexError."""
        if not 0 <= at <= len(self._made) - 4:
            raise IndexError(_BEYOND)
        return int.from_bytes(self._made[at : at + 4], "big", signed=True)

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

    def copy_hexadecimal(self, source: In, at: int, end: int) -> None:
        """Append the bytes of `source` from `at` to `end` as digits, two each. Raises: IndexError."""
        self._made += source.slice(at, end).hex().upper().encode()

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


class Longs(_Array):
    """Numbers of 64 bits, as places in bytes.

    Raises:
        IndexError: beyond the last number.
    """

    __slots__ = ()

    def __new__(cls, data: bytes | bytearray | memoryview = b"") -> Longs:
        """`data` has the first ones, in the machine's byte order."""
        return super().__new__(cls, "q", bytes(data))  # type: ignore[return-value]

    @property
    def size(self) -> int:
        return len(self)

    def cut(self, size: int) -> None:
        """Forget all but the first `size` numbers."""
        if not 0 <= size <= len(self):
            raise IndexError("beyond the end of the numbers")
        del self[size:]

    def get(self, index: int) -> int:
        if index < 0:
            raise IndexError("beyond the end of the numbers")
        return self[index]

    def selected(self, mask: In) -> Longs:
        """Those of which the byte of a mask is not zero."""
        if mask.size != len(self):
            raise ValueError("a byte of the mask for each number")
        some = Longs()
        some.extend(compress(self, mask.slice(0, mask.size)))
        return some

    def native(self) -> bytes:
        """All of them in the machine's byte order, 8 bytes each."""
        return self.tobytes()

    def native_i32(self) -> bytes:
        """The same with 4 bytes each. Raises: OverflowError, a number does not fit."""
        return array("i", self).tobytes()
