"""Check hundreds of thousands of records end to end in one pass, as `record.check` does for one.

A broker checks the end of its log before it serves, so people wait for this: it takes 0.3 us a record, an eighth of
single checks. The pass stops at the first record that may be damaged; `record.check` finds its fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be

from sparrowmq.protocol.messages.crc import crc32
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.record import CRC_MASK, PROPERTY_CRC_SIZE, check, properties_at
from sparrowmq.protocol.messages.record_layout import (
    BODY_SIZE_BEHIND_PREPARED_OFFSET,
    BODY_SIZE_BY_HOSTS,
    BODY_SIZE_FIELD,
    HOST_BITS_AT,
    LONGEST_HEAD,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_SIZE_BYTES,
    PHYSICAL_OFFSET_AT,
    PROPERTIES_SIZE_FIELD,
    STORE_TIMESTAMP_BY_HOSTS,
)

if TYPE_CHECKING:
    from mypy_extensions import i64  # compiled, it is the processor's own integer

# Literals, so that they are compiled in.
_MARK: Final = 0x5F5F435243333223  # the first eight bytes of `CRC_NAME`
_MARK_END: Final = 0x01
_DIGITS_AT: Final = 9
_ZERO: Final = 48  # "0"
_PROPERTY_END: Final = 0x02
_SMALL: Final = 2048  # for fewer bytes, a copy is faster than a view
_TRANSACTION_MASK: Final[int] = SysFlag.TRANSACTION_MASK
_COMMIT: Final[int] = SysFlag.COMMIT


class Passed:
    """Findings about the records that passed.

    Attributes:
        last_ms: the time of storing of the last one.
        finished_halves: the log offsets of half messages whose transactions ended with one of them.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last_ms = 0
        self.finished_halves: set[int] = set()


def pass_sound(
    content: bytes, place: int, crc_from: int, passed: Passed, begin: int = 0, end: int | None = None
) -> int:
    """The end of the complete records in `content[begin:end]` that are sound and have the right offset.

    Args:
        place: the log offset of `content`.
        crc_from: from this offset on, each record must have a property CRC.
    """
    view, at = memoryview(content), begin
    end = len(content) if end is None else end
    last_ms: int = passed.last_ms
    while end - at >= LONGEST_HEAD:
        size: int = read_i32_be(content, at)
        if not MIN_SIZE_BYTES <= size <= end - at or not _has_shape(content, at, size):
            break
        if read_i64_be(content, at + PHYSICAL_OFFSET_AT) != place + at:
            break
        tail = at + size - PROPERTY_CRC_SIZE
        if read_i64_be(content, tail) == _MARK and content[tail + 8] == _MARK_END:
            covered = content[at:tail] if size < _SMALL else view[at:tail]
            if crc32(covered) & CRC_MASK != _number(content, tail + _DIGITS_AT):
                break
        elif place + at >= crc_from or check(content[at : at + size], place + at) is not None:
            break
        hosts = content[at + HOST_BITS_AT] >> 4 & 3
        last_ms = read_i64_be(content, at + STORE_TIMESTAMP_BY_HOSTS[hosts])
        prepared_at = at + BODY_SIZE_BY_HOSTS[hosts] - BODY_SIZE_BEHIND_PREPARED_OFFSET
        prepared_offset: int = read_i64_be(content, prepared_at)
        if prepared_offset or content[at + HOST_BITS_AT] & _TRANSACTION_MASK == _COMMIT:
            passed.finished_halves.add(prepared_offset)
        passed.count += 1
        at += size
    passed.last_ms = last_ms
    return at


def collect_prepared(content: bytes, prepared: set[int]) -> int:
    """Add the prepared offsets, other than 0, of the whole records at the beginning of `content`.

    The records are not checked.

    Returns: the end of the last one.
    """
    at, end = 0, len(content)
    while end - at >= MIN_SIZE_BYTES:
        size: int = read_i32_be(content, at)
        magic: int = read_i32_be(content, at + MAGIC_AT)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or not MIN_SIZE_BYTES <= size <= end - at:
            break
        size_at = at + BODY_SIZE_BY_HOSTS[content[at + HOST_BITS_AT] >> 4 & 3]
        prepared_offset: int = read_i64_be(content, size_at - BODY_SIZE_BEHIND_PREPARED_OFFSET)
        if prepared_offset:
            prepared.add(prepared_offset)
        at += size
    return at


def _has_shape(content: bytes, at: int, size: int) -> bool:
    """Whether the sizes inside the record at `at` add up to its own."""
    magic: int = read_i32_be(content, at + MAGIC_AT)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return False
    size_at = at + BODY_SIZE_BY_HOSTS[content[at + HOST_BITS_AT] >> 4 & 3]
    body_size: int = read_i32_be(content, size_at)
    behind_body = size_at - at + BODY_SIZE_FIELD + body_size
    if body_size < 0 or behind_body > size - PROPERTIES_SIZE_FIELD - 2:
        return False
    begin = properties_at(content, at)
    if begin > at + size:
        return False
    properties_size: int = read_i16_be(content, begin - PROPERTIES_SIZE_FIELD)
    return begin + properties_size == at + size


def _number(content: bytes, at: i64) -> i64:
    """The CRC in the ten digits at `at`, the lowest first, before an 0x02; -1 if there is none."""
    if content[at + 10] != _PROPERTY_END:
        return -1
    number: i64 = 0
    i: i64 = 9
    while i >= 0:
        digit: i64 = content[at + i] - _ZERO
        if not 0 <= digit <= 9:
            return -1
        number = number * 10 + digit
        i -= 1
    return number
