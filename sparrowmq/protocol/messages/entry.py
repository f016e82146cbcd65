"""A message on its way into a store, and where it came to lie.

    request ── decoded ──> Entry ── detours, completed ──> record.encode(entry, placed) ──> the log
                                                                     └─ Placed ──> the answer, and what it waits for

Whatever stores a message (a send, a part of a batch, a delay that is over, a consumer that sends back) makes an `Entry`
of it first, so that all of them are checked, edited and stored in one way.
Source: MessageExtBrokerInner and AppendMessageResult, Java 4.9.8.
"""

from __future__ import annotations

from sparrowmq.compiled import mypyc_attr
from sparrowmq.protocol.messages.properties import Properties, Terms


@mypyc_attr(acyclic=True, free_list_len=1)
class Entry:
    """A message that is to be stored; it may be changed until it is.

    Attributes:
        body: as it came, perhaps compressed (see `sys_flag`).
        flag: the application's.
        sys_flag: bits of `SysFlag`; those that tell the kinds of hosts are set when it is stored.
        born_host: of whoever made the message, as `hosts.pack` gives it.
        prepared_offset: where in the log the half message is that this one commits or rolls back.
        deliver_at_ms: when a message is due that waits for its time; 0 for all others. Its queue entry has this in the
            place of the tag's hash.
        group: of the producer that sends it; None if it comes from elsewhere, and so begins no transaction.
        terms: what stands among the properties for queue and index, if that was looked up already.
    """

    __slots__ = (
        "body",
        "born_host",
        "born_timestamp_ms",
        "deliver_at_ms",
        "flag",
        "group",
        "prepared_offset",
        "properties",
        "queue_id",
        "reconsume_times",
        "sys_flag",
        "terms",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes | bytearray | memoryview,
        properties: Properties,
        born_timestamp_ms: int,
        born_host: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.born_timestamp_ms = born_timestamp_ms
        self.born_host = born_host
        self.flag = flag
        self.sys_flag = sys_flag
        self.reconsume_times = reconsume_times
        self.prepared_offset = prepared_offset
        self.deliver_at_ms = 0
        self.group: str | None = None
        self.terms: Terms | None = None

    @property
    def tags_code(self) -> int:
        """What the consume queue keeps of it besides its place."""
        if self.terms is not None:
            return self.deliver_at_ms or self.terms.tags_code
        return self.deliver_at_ms or self.properties.tags_code

    def __repr__(self) -> str:
        return f"<entry for {self.topic}[{self.queue_id}], {len(self.body)} bytes>"


@mypyc_attr(acyclic=True, free_list_len=1)
class Placed:
    """Where a message lies.

    Attributes:
        offset: of its record in the log.
        queue_offset: its number in its queue.
        store_timestamp_ms: when it was stored.
        store_host: the broker that stored it, as `hosts.pack` gives it.
        end: behind its record in the log: how far the log must be on disk for the message to be.
    """

    __slots__ = ("end", "offset", "queue_offset", "store_host", "store_timestamp_ms")

    def __init__(self, offset: int, queue_offset: int, store_timestamp_ms: int, store_host: bytes) -> None:
        self.offset = offset
        self.queue_offset = queue_offset
        self.store_timestamp_ms = store_timestamp_ms
        self.store_host = store_host
        self.end = offset

    @property
    def size(self) -> int:
        """The bytes of its record, once it is stored."""
        return self.end - self.offset

    def __repr__(self) -> str:
        return f"<placed at {self.offset}, queue offset {self.queue_offset}>"


@mypyc_attr(acyclic=True)
class PlacedBatch:
    """Where the messages of a batch lie, side by side.

    Attributes:
        offsets: of their records in the log.
        queue_offset: of the first one in the queue.
        end: behind the last record in the log.
    """

    __slots__ = ("end", "offsets", "queue_offset")

    def __init__(self, offsets: list[int], queue_offset: int, end: int) -> None:
        self.offsets = offsets
        self.queue_offset = queue_offset
        self.end = end
