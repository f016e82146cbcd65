"""Records for tests: `encoded()` is a sound one, and every field can be given."""

from __future__ import annotations

from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.properties import Properties

HOST = hosts.pack("127.0.0.1:10911")


def encoded(
    topic: str = "T",
    queue_id: int = 0,
    body: bytes | bytearray | memoryview = b"body",
    properties: bytes = b"",
    *,
    queue_offset: int = 0,
    physical_offset: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp_ms: int = 1,
    born_host: bytes = HOST,
    store_timestamp_ms: int = 1,
    store_host: bytes = HOST,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
    crc: bool = True,
) -> bytes:
    """The record's bytes; `properties` is their string form as UTF-8."""
    entry = Entry(topic, queue_id, body, Properties.decode(properties), born_timestamp_ms, born_host, flag, sys_flag)
    entry.reconsume_times, entry.prepared_offset = reconsume_times, prepared_offset
    return record.encode(entry, Placed(physical_offset, queue_offset, store_timestamp_ms, store_host), crc)
