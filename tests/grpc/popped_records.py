"""Records as a broker answers a pop with them."""

from __future__ import annotations

from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.protocol.requests.pop_headers import PopMessageReply


def a_record(queue_offset, topic="orders", reconsume_times=0, sys_flag=0, **properties):
    """The bytes of a record in queue 2."""
    entry = Entry(
        topic=topic,
        queue_id=2,
        body=b"hello",
        properties=Properties(render(properties)),
        born_timestamp_ms=1,
        born_host=hosts.pack("127.0.0.1:1"),
        sys_flag=sys_flag,
        reconsume_times=reconsume_times,
    )
    return record.encode(entry, Placed(1337, queue_offset, 2, hosts.pack("127.0.0.1:2")))


def reply(popped_ms=1000, invisible_ms=15_000, **lists):
    """The header of the answer."""
    return PopMessageReply(popped_ms, invisible_ms, 3, 0, **lists)
