"""Step over damage in a log: find the next place at which a record may be sound.

A record contains its own offset in the log. Bytes that look like the head of a record count only if that offset is
their place. So a message body that contains a copy of a record is not mistaken for a record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from sparrowmq.kernel.record_layout import LONG, MAGIC_AT, MAGIC_BEGIN, MAGIC_PATTERN, PHYSICAL_OFFSET_AT

_CHUNK_BYTES: Final = 1 << 18
_MAGIC: Final = re.compile(MAGIC_PATTERN)
_MAGIC_SIZE: Final = 4


def record_places(read: Callable[[int, int], bytes], begin: int, position: int, size: int) -> Iterator[int]:
    """Yield the positions, rising, at which a record may begin in a log file of `size` bytes, whose first byte is at
    offset `begin`. `read` returns that many bytes from a position on; fewer only at the file's end.
    """
    for chunk_at in range(position, size, _CHUNK_BYTES):
        chunk = read(chunk_at, _CHUNK_BYTES + MAGIC_AT + _MAGIC_SIZE - 1)
        if MAGIC_BEGIN not in chunk:  # as in space allocated in advance: four times as fast
            continue
        for match in _MAGIC.finditer(chunk, MAGIC_AT):
            place = chunk_at + match.start() - MAGIC_AT
            offset = read(place + PHYSICAL_OFFSET_AT, LONG.size)
            if len(offset) == LONG.size and LONG.unpack(offset)[0] == begin + place:
                yield place
