"""Texts of the plain JSON that clients write in headers: ASCII without escapes."""

from __future__ import annotations

from sparrowmq.kernel.cursor import In

_QUOTE = 0x22


def quoted_end(source: In, at: int, end: int) -> int:
    """The end, at its other quote, of the text whose quote is at `at`; -1 if it is not plain."""
    if at >= end or source.u8(at) != _QUOTE:
        return -1
    at = source.text_end(at + 1, end)
    return at if at < end and source.u8(at) == _QUOTE else -1
