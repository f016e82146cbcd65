"""Decode all records of a pull's answer in one pass, as `record.walk` and `record.decode` do one by one.

A consumer decodes every message that it gets, so each step here counts a million times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be

from sparrowmq.errors import CorruptRecord, RemoteProtocolError
from sparrowmq.protocol.messages.crc import crc32
from sparrowmq.protocol.messages.pulled_message import PulledMessage
from sparrowmq.protocol.messages.record import CRC_MASK, body_damage, properties_at, shape_problem, starts
from sparrowmq.protocol.messages.record_layout import (
    BODY_BEHIND_RECONSUME_TIMES,
    BODY_CRC_AT,
    BODY_SIZE_BY_HOSTS,
    BODY_SIZE_FIELD,
    HOST_BITS_AT,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_SIZE_BYTES,
    PHYSICAL_OFFSET_AT,
    PROPERTIES_SIZE_FIELD,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
)

if TYPE_CHECKING:
    from mypy_extensions import i64  # compiled, it is the processor's own integer

_TOPIC_FIELD_V1: Final = 1


def decode_all(records: bytes, messages: list[PulledMessage], damaged: list[CorruptRecord]) -> None:
    """Add the messages to `messages`. One whose body does not fit its CRC adds its error to `damaged` instead.

    Raises: RemoteProtocolError, the next bytes are no record. The records before were added.
    """
    at: i64 = 0
    end: i64 = len(records)
    while at < end:
        if end - at < MIN_SIZE_BYTES:
            raise _no_record(records)
        size: int = read_i32_be(records, at)
        stop: i64 = at + size
        magic: int = read_i32_be(records, at + MAGIC_AT)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < MIN_SIZE_BYTES or stop > end:
            raise _no_record(records)
        body_at: i64 = at + BODY_SIZE_BY_HOSTS[records[at + HOST_BITS_AT] >> 4 & 3] + BODY_SIZE_FIELD
        if body_at > stop:
            raise _misshapen(records[at:stop])
        body_size: int = read_i32_be(records, body_at - BODY_SIZE_FIELD)
        body_end: i64 = body_at + body_size
        longest: i64 = stop - PROPERTIES_SIZE_FIELD - (_TOPIC_FIELD_V1 if magic == MAGIC_V1 else 2)
        if body_end < body_at or body_end > longest:
            raise _misshapen(records[at:stop])
        behind: i64 = properties_at(records, at)
        if behind > stop:
            raise _misshapen(records[at:stop])
        properties_size: int = read_i16_be(records, behind - PROPERTIES_SIZE_FIELD)
        if behind + properties_size != stop:
            raise _misshapen(records[at:stop])
        body = records[body_at:body_end]
        if crc32(body) & CRC_MASK != read_i32_be(records, at + BODY_CRC_AT):
            damaged.append(body_damage(read_i64_be(records, at + PHYSICAL_OFFSET_AT)))
        else:
            messages.append(
                PulledMessage(
                    read_i64_be(records, at + QUEUE_OFFSET_AT),
                    size,
                    read_i32_be(records, at + SYS_FLAG_AT),
                    read_i32_be(records, body_at - BODY_BEHIND_RECONSUME_TIMES),
                    body,
                    records[at:body_at],
                    records[body_end:stop],
                )
            )
        at = stop


def _no_record(records: bytes) -> RemoteProtocolError:
    """The error for the first bytes of `records` that are no complete record."""
    try:
        starts(records)
    except RemoteProtocolError as error:
        return error
    raise AssertionError("all records are complete")


def _misshapen(raw: bytes) -> RemoteProtocolError:
    return RemoteProtocolError(f"not a record: {shape_problem(raw)}")
