"""Search records by key: the index says where they may be, and the records say if they have the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparrowmq.core.safe_text import shown
from sparrowmq.errors import BadStore, RemoteError
from sparrowmq.loop.slices import Steps
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.record import has_key, outline
from sparrowmq.store.index import Index

MOST_FOUND_BYTES: Final = 8 << 20  # of one search: Java's clients take frames of at most 16 MB
MOST_SEARCHED: Final = 100_000
# The limits of a search that does not pause. Usually it reads one record, or none.
MOST_AT_ONCE: Final = 1024  # steps
MOST_READ_AT_ONCE: Final = 32
MOST_BYTES_AT_ONCE: Final = 16 << 20


def search_steps(
    index: Index | None,
    record_at: Callable[[int], memoryview | None],
    topic: str,
    key: str,
    max_count: int,
    begin_ms: int,
    end_ms: int,
) -> Steps[list[memoryview]]:
    """Find records with the key (or unique key), newest first; others may run between two steps. It ends after
    `MOST_FOUND_BYTES` of records, or `MOST_SEARCHED` steps: a record with the hash of the key, or some entries without
    it.

    Raises: BadStore, the index is damaged, or lacks keys; RemoteError, so many steps have found no record.
    """
    records: list[memoryview] = []
    if index is None or max_count <= 0:
        return records
    seen_offsets: set[int] = set()
    size = 0
    for steps, offset in enumerate(index.find(topic, key, begin_ms, end_ms), 1):
        if offset >= 0 and offset not in seen_offsets:
            seen_offsets.add(offset)
            record = record_at(offset)
            if record is not None and has_key(record, topic, key):
                records.append(record)
                size += len(record)
        if len(records) >= max_count or size >= MOST_FOUND_BYTES:
            break
        if steps >= MOST_SEARCHED:
            if records:
                break
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"{steps} messages with other keys of the same hash were searched, which is the limit; "
                "search a shorter time span",
            )
        yield
    return records


def find_by_unique_id(
    index: Index | None,
    record_at: Callable[[int], memoryview | None],
    topic: str,
    unique_id: str,
    begin_ms: int,
    end_ms: int,
) -> list[memoryview]:
    """Find all records of the topic with the unique id, newest first, without a pause. Raises: BadStore, there is no
    index, it is damaged, or too many others have the hash of the id.
    """
    if index is None:
        raise BadStore("there is no index of keys: messageIndexEnable is false")
    records: list[memoryview] = []
    read_offsets: set[int] = set()
    size = 0
    for steps, offset in enumerate(index.find(topic, unique_id, begin_ms, end_ms), 1):
        if offset >= 0 and offset not in read_offsets:
            read_offsets.add(offset)
            record = record_at(offset)
            size += 0 if record is None else len(record)
            if record is not None:
                fields = outline(record)
                if fields.topic == topic and fields.properties.unique_key == unique_id:
                    records.append(record)
        if steps >= MOST_AT_ONCE or len(read_offsets) >= MOST_READ_AT_ONCE or size >= MOST_BYTES_AT_ONCE:
            raise BadStore(f"too many messages have ids with the hash of {shown(unique_id)}")
    return records
