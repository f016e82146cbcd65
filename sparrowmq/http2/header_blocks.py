"""Compressed header blocks: bytes in, names and values out (HPACK, RFC 7541).

    1.......  index                        a header of the table
    01......  name, value                  a literal, which enters the table
    001.....  size                         a new size of the table; only at the beginning of a block
    0000....  0001....  name, value        a literal that enters no table

A name is a string or the index of a header that has it. A string may be in Huffman's code, as the ids of calls are.
`hpack` has the table of that code. Its own decoders copy the rest of a block for each header, and keep Python's loop.

A list may have HARD_LIST_BYTES, so a small block cannot become a large list. After that the table that both sides share
is lost, and the connection with it. A list between the limit of the settings and this one is refused by an answer.
"""

from __future__ import annotations

from typing import Final

from hpack.exceptions import InvalidTableIndex
from hpack.huffman_table import HUFFMAN_COMPLETE, HUFFMAN_EMIT_SYMBOL, HUFFMAN_FAIL, HUFFMAN_TABLE
from librt.strings import BytesWriter

from sparrowmq.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, ConnectionFault
from sparrowmq.http2.header_table import ENTRY_BYTES, TABLE_BYTES, HeaderTable

HARD_LIST_BYTES: Final = 32 * 1024

_LONGEST_INTEGER: Final = 5  # bytes behind the first

# A step for each state of Huffman's code and each half byte: the next state, its flags, and the decoded byte.
_STEPS: Final = [state << 16 | flags << 8 | byte for state, flags, byte in HUFFMAN_TABLE]
_FAILS: Final = HUFFMAN_FAIL << 8
_EMITS: Final = HUFFMAN_EMIT_SYMBOL << 8
_MAY_END: Final = HUFFMAN_COMPLETE << 8


class HeaderReader:
    """Decompresses the header blocks of one connection, in the order of their arrival."""

    def __init__(self) -> None:
        self._table = HeaderTable()

    def read(self, block: bytes) -> list[tuple[bytes, bytes]]:
        """Return the names and values of a block.

        Raises: ConnectionFault, it cannot be decompressed, or becomes too large.
        """
        try:
            return self._pairs(block)
        except InvalidTableIndex as error:
            raise ConnectionFault(COMPRESSION_ERROR, str(error)) from error
        except IndexError as error:
            raise _broken("it ends too soon") from error

    def _pairs(self, block: bytes) -> list[tuple[bytes, bytes]]:
        table, at, end = self._table, 0, len(block)
        pairs: list[tuple[bytes, bytes]] = []
        list_bytes = 0
        while at < end:
            if list_bytes > HARD_LIST_BYTES:
                raise ConnectionFault(ENHANCE_YOUR_CALM, f"the headers are larger than {HARD_LIST_BYTES} bytes")
            first = block[at]
            if first & 0x80:
                index, at = _integer(block, at, 0x7F)
                pair = table.header(index)
            elif first & 0x40:
                pair, at = self._literal(block, at, 0x3F)
                table.enter(pair)
            elif first & 0x20:
                size, at = _integer(block, at, 0x1F)
                if pairs or size > TABLE_BYTES:
                    raise _broken("the size of the table changes behind headers, or is too large")
                table.resize(size)
                list_bytes += ENTRY_BYTES  # so a block cannot have thousands of them
                continue
            else:
                pair, at = self._literal(block, at, 0x0F)
            pairs.append(pair)
            list_bytes += len(pair[0]) + len(pair[1]) + ENTRY_BYTES
        return pairs

    def _literal(self, block: bytes, at: int, mask: int) -> tuple[tuple[bytes, bytes], int]:
        """Return a header, and where it ends."""
        index, at = _integer(block, at, mask)
        if index:
            name = self._table.header(index)[0]
        else:
            name, at = _string(block, at)
        value, at = _string(block, at)
        return (name, value), at


def _integer(block: bytes, at: int, mask: int) -> tuple[int, int]:
    """Return the integer in the low bits of a byte and perhaps those behind it, and where it ends."""
    number = block[at] & mask
    at += 1
    if number < mask:
        return number, at
    for shift in range(0, 7 * _LONGEST_INTEGER, 7):
        byte = block[at]
        at += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise _broken("an integer is too long")


def _string(block: bytes, at: int) -> tuple[bytes, int]:
    """Return a string, and where it ends."""
    is_coded = block[at] & 0x80
    length, at = _integer(block, at, 0x7F)
    end = at + length
    text = block[at:end]
    if len(text) < length:
        raise _broken("it ends within a string")
    return _plain(text) if is_coded else text, end


def _plain(coded: bytes) -> bytes:
    """Decode Huffman's code."""
    steps, decoded = _STEPS, BytesWriter()
    step = _MAY_END
    for at in range(2 * len(coded)):
        half = coded[at >> 1] >> (0 if at & 1 else 4) & 0xF
        step = steps[step >> 16 << 4 | half]
        if step & _FAILS:
            raise _broken("a string is not in Huffman's code")
        if step & _EMITS:
            decoded.append(step & 0xFF)
    if not step & _MAY_END:
        raise _broken("it ends within a character of Huffman's code")
    return decoded.getvalue()


def _broken(why: str) -> ConnectionFault:
    return ConnectionFault(COMPRESSION_ERROR, f"a broken header block: {why}")
