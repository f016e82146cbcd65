"""A message on its way into a store, and its place there.

    request ── decoded ──> Entry ── redirects, completed ──> record.encode(entry, placed) ──> the log
                                                                     └─ Placed ──> the answer, and the wait for it

Every message to store becomes an `Entry` first: from a send, a part of a batch, a delay that is over, or a consumer
that gives it back. So all of them are checked, edited and stored in one way.
Source: MessageExtBrokerInner and AppendMessageResult, Java 4.9.8.
"""

from __future__ import annotations

from sparrowmq.protocol.messages.properties import Properties, Terms


class Entry:
    """A message to store. It may change until it is stored.

    Attributes:
        body: as it arrived, perhaps compressed (see `sys_flag`).
        flag: the application's.
        sys_flag: bits of `SysFlag`. The bits for the kinds of hosts are set when it is stored.
        born_host: the host of the producer, packed by `hosts.pack`.
        prepared_offset: the log offset of the half message that this one commits or rolls back.
        deliver_at_ms: the delivery time of a delayed message; 0 for others. Its queue entry has this time in the place
            of the tag's hash.
        group: the producer group; None for other senders, which begin no transaction.
        owner: the account that sent it (remoting/peer.py).
        terms: the properties for queue and index, if they are known already.
    """

    __slots__ = (
        "body",
        "born_host",
        "born_timestamp_ms",
        "deliver_at_ms",
        "flag",
        "group",
        "owner",
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
        self.owner: str | None = None
        self.terms: Terms | None = None

    @property
    def tags_code(self) -> int:
        """The third field of its queue entry, after its place."""
        if self.terms is not None:
            return self.deliver_at_ms or self.terms.tags_code
        return self.deliver_at_ms or self.properties.tags_code

    def __repr__(self) -> str:
        return f"<entry for {self.topic}[{self.queue_id}], {len(self.body)} bytes>"


class Placed:
    """The place of a stored message.

    Attributes:
        offset: the log offset of its record.
        queue_offset: its offset in its queue.
        store_timestamp_ms: the time of storing.
        store_host: the broker that stored it, packed by `hosts.pack`.
        end: the end of its record. The message is on disk when the log is on disk up to here.
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
        """The size of its record in bytes, after it is stored."""
        return self.end - self.offset

    def __repr__(self) -> str:
        return f"<placed at {self.offset}, queue offset {self.queue_offset}>"


class PlacedBatch:
    """The places of a batch's messages, one after the other.

    Attributes:
        offsets: the log offsets of their records.
        queue_offset: the queue offset of the first message.
        end: the end of the last record.
    """

    __slots__ = ("end", "offsets", "queue_offset")

    def __init__(self, offsets: list[int], queue_offset: int, end: int) -> None:
        self.offsets = offsets
        self.queue_offset = queue_offset
        self.end = end
