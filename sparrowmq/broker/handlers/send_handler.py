"""SEND_MESSAGE (10, 310) and SEND_BATCH_MESSAGE (320): check, find the topic, store, answer once the message is safe.

One message costs one header, one `Entry`, one append and one reply. The answer waits for `MessageStore.durability` as a
callback, without a task. A message that its producer sends again is stored once (broker/repeated_sends.py).
Source: SendMessageProcessor and AbstractSendMessageProcessor.msgCheck, Java 4.9.8.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from librt.strings import BytesWriter

from sparrowmq.broker import batches
from sparrowmq.broker.batches import (
    are_neighbours,
    check_repeated_size,
    put_missing,
    render_positions,
)
from sparrowmq.broker.delayed.retry_rules import is_exhausted
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.handlers.handler import SharedParts
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.repeated_sends import RepeatedSends, StoredBefore, in_progress, key
from sparrowmq.broker.topics import Topics
from sparrowmq.broker.transactions import half_message
from sparrowmq.errors import RemoteError
from sparrowmq.loop.slices import Steps, WorkQueue, empty_in_steps
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import Perm, SysFlag
from sparrowmq.protocol.messages.message_id import OffsetIds
from sparrowmq.protocol.messages.properties import Properties, mark
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.protocol.requests.headers import SendBatchMessage, SendMessage, SendMessageReply, SendMessageV2
from sparrowmq.protocol.wire.codec import ReplyHeader
from sparrowmq.protocol.wire.fields import Written
from sparrowmq.remoting.handler import ReplyWhenDurable, handles
from sparrowmq.remoting.peer import Peer, owner_of
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.timer_wheel import RECALL

_OF_SENDER: Final[int] = SysFlag.OF_SENDER
MAX_RECONSUME_TIMES: Final = 1 << 30  # that a message can have had; each failure adds one to it
_ASKS: Final = mark(Property.REPLY_TO_CLIENT)


@dataclass(frozen=True)
class SendRules:
    max_body_bytes: int  # the limit for one message or one whole batch
    store_host: bytes  # this broker's address in the format of offset ids
    broker_name: str


class SendHandler:
    """Store the messages of producers.

    Attributes:
        quotas: limit the topics that sends create.
        accepts_writes: whether messages are taken; not while the lead is handed over.
        on_request_message: called with the topic, properties and sender of each stored message that asks for a reply.
    """

    def __init__(self, shared: SharedParts, rules: SendRules, figures: Figures, repeats: RepeatedSends) -> None:
        self._store: MessageStore = shared.store
        self._writer: Writer = shared.writer
        self._topics: Topics = shared.topics
        self._groups: Groups = shared.groups
        self._repeats = repeats
        self._retried = repeats.retried
        self._rules = rules
        self._received = figures.counter("sparrowmq_messages_received_total", "messages stored for producers")
        self._ids = OffsetIds(rules.store_host)
        self._line = WorkQueue()  # of large batches, and of batches that are sent again
        # Topics that clients may send to; each has passed the check once.
        self._open: set[str] = set()
        self.on_request_message: Callable[[str, Properties, Peer], None] = _forget
        self.quotas: Quotas | None = None
        self.accepts_writes: Callable[[], bool] = lambda: True

    def apply_rules(self, rules: SendRules) -> None:
        """Accept by these rules from now on, and check the topics again."""
        self._rules = rules
        self._open.clear()

    @handles(SendMessage, SendMessageV2, SendBatchMessage)
    def send(
        self, header: SendMessage | SendMessageV2, body: bytes, peer: Peer
    ) -> ReplyWhenDurable | Awaitable[ReplyWhenDurable]:
        if len(body) > self._rules.max_body_bytes:
            self._refuse_size(len(body))
        name = header.topic
        topic = self._topics.get(name)
        if topic is None or name not in self._open:
            topic = self._admitted_topic(header, peer)
        queue_id = header.queue_id
        if not 0 <= queue_id < topic.write_queue_nums:
            queue_id = self._other_queue(topic, queue_id, peer)
        times = header.reconsume_times or 0
        if not 0 <= times <= MAX_RECONSUME_TIMES:
            _refuse_tries(times)
        properties = Properties(header.properties or "")
        if header.batch or type(header) is SendBatchMessage:
            return self._send_batch(header, queue_id, properties, body, peer)
        entry = Entry(
            name,
            queue_id,
            body,
            properties,
            header.born_timestamp,
            peer.host,
            header.flag,
            header.sys_flag & _OF_SENDER,
            times,
        )
        entry.group = header.producer_group
        principal = peer.principal
        if principal is not None:
            entry.owner = principal.access_key
        if name.startswith("%RETRY%") and self._has_no_tries_left(header):
            self._move_to_dlq(entry)
        queue_id, wants_safety = entry.queue_id, properties.wants_safety
        if header.may_be_stored or name in self._retried.topics:
            before = self._repeats.before(entry, bool(header.may_be_stored))
            if before is not None:
                return self._as_before(before, entry)
        topic_name = entry.topic
        placed = self._writer.put(entry)  # may park the message in another queue
        if header.may_be_stored:
            self._repeats.note(entry, topic_name, placed.offset)
        self._received.value += 1
        if properties.has(_ASKS):
            self.on_request_message(name, properties, peer)
        msg_id = self._ids.text(placed.offset)
        reply: ReplyHeader = Stored(msg_id, queue_id, placed.queue_offset)
        if entry.deliver_at_ms and entry.topic == names.TIMER_TOPIC:
            handle = self._recall_handle(name, entry, entry.deliver_at_ms)
            reply = SendMessageReply(msg_id, queue_id, placed.queue_offset, recall_handle=handle)
        return ReplyWhenDurable(self._store.durability(wants_safety), placed.end, reply)

    def _as_before(self, before: StoredBefore, entry: Entry) -> ReplyWhenDurable:
        reply = SendMessageReply(self._ids.text(before.offset), before.queue_id, before.queue_offset)
        if before.due_ms:
            reply.recall_handle = self._recall_handle(entry.topic, entry, before.due_ms)
        return ReplyWhenDurable(self._store.durability(entry.properties.wants_safety), before.end, reply)

    def check_request(self, header: SendMessage | SendMessageV2, body: bytes, peer: Peer) -> None:
        """Refuse a request that `send` would refuse, where a check without sending is possible. Raises: RemoteError."""
        if self._rules.max_body_bytes < len(body):
            self._refuse_size(len(body))
        self._admitted_topic(header, peer)

    def _send_batch(
        self, header: SendMessage | SendMessageV2, queue_id: int, properties: Properties, body: bytes, peer: Peer
    ) -> ReplyWhenDurable | Awaitable[ReplyWhenDurable]:
        if header.topic.startswith("%RETRY%"):
            raise RemoteError(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}"
            )
        shared = Entry(
            header.topic, queue_id, b"", properties, header.born_timestamp, peer.host, 0, header.sys_flag & _OF_SENDER
        )
        places = batch.places(body)
        shared.owner = owner_of(peer)
        if header.may_be_stored or header.topic in self._retried.topics:
            return self._in_line(shared, body, places, self._send_missing, bool(header.may_be_stored))
        if batches.is_large(places, len(body)):
            return self._in_line(shared, body, places, self._send_large, False)
        placed = self._writer.put_plain(shared, body, places)
        if placed is None:
            placed = batches.as_one(self._writer.put_batch(_singles(shared, body, places)))
        self._received.value += len(placed.offsets)
        reply = Stored(self._ids.joined(placed.offsets), queue_id, placed.queue_offset)
        return ReplyWhenDurable(self._store.durability(properties.wants_safety), placed.end, reply)

    def _in_line(
        self,
        shared: Entry,
        body: bytes,
        places: bytes,
        send: Callable[[Entry, bytes, bytes, bool], Steps[ReplyWhenDurable]],
        is_repeated: bool,
    ) -> ReplyWhenDurable | Awaitable[ReplyWhenDurable]:
        """Send a batch after those before it. Raises: RemoteError, it is sent again, and is in the line already."""
        first = batch.entries(shared, body, places[: batch.PLACE_BYTES])[0]
        first.owner = shared.owner
        mark = key(first) if first.properties.unique_key is not None else None
        if is_repeated and mark is not None and mark in self._line.marks:
            raise in_progress()
        incarnation = self._topics.incarnation(shared.topic)
        steps = self._while_topic_exists(send(shared, body, places, is_repeated), shared.topic, incarnation)
        return self._line.work(batches.while_leading(self._store, self.accepts_writes, steps), mark)

    def _while_topic_exists(
        self, steps: Steps[ReplyWhenDurable], topic: str, incarnation: int
    ) -> Steps[ReplyWhenDurable]:
        """Store a batch as long as its topic is the same.

        Raises: RemoteError, the topic was deleted, with the parts of the batch that were stored.
        """
        try:
            while self._topics.incarnation(topic) == incarnation:
                next(steps)
                yield
        except StopIteration as done:
            result: ReplyWhenDurable = done.value
            return result
        finally:
            steps.close()
        raise RemoteError(
            ResponseCode.TOPIC_NOT_EXIST,
            f"topic[{topic}] was deleted before all of this batch was stored, so none of it is stored",
        )

    def _send_large(self, shared: Entry, body: bytes, places: bytes, is_repeated: bool) -> Steps[ReplyWhenDurable]:
        ready = yield from batches.prepare_parts(self._writer, shared, body, places, _singles)
        if shared.topic in self._retried.topics:  # by now: its messages may have been sent again, and stored
            return (yield from self._send_missing(shared, body, places, is_repeated))
        self._writer.check_room(shared.topic, len(body), len(places) // batch.PLACE_BYTES)
        with self._repeats.under_way(ready.keys):
            parts = yield from batches.put_in_parts(self._writer, ready)
        yield from empty_in_steps(ready.keys)
        ids: list[str] = []
        for part in parts:
            self._received.value += len(part.offsets)
            ids.append(self._ids.joined(part.offsets))
            yield
        reply = SendMessageReply(",".join(ids), shared.queue_id, parts[0].queue_offset)
        if not batches.are_adjacent(parts):
            reply.stored_at = yield from batches.render_part_positions(shared.queue_id, parts)
        return ReplyWhenDurable(self._store.durability(shared.properties.wants_safety), parts[-1].end, reply)

    def _send_missing(self, shared: Entry, body: bytes, places: bytes, is_repeated: bool) -> Steps[ReplyWhenDurable]:
        """Store the messages of a batch that were not stored before: all of them, none, or the end that a crash cut."""
        if is_repeated:
            check_repeated_size(len(places) // batch.PLACE_BYTES)
        entries: list[Entry] = []
        for few in batches.pieces(places, batches.PART_OF_ENTRIES):
            entries += _singles(shared, body, few)
            yield
        earlier, stored_count = yield from put_missing(self._writer, self._repeats, entries, is_repeated)
        self._received.value += stored_count
        yield from empty_in_steps(entries)
        ids, end = [], 0
        for at in range(0, len(earlier), batches.PART):
            piece = earlier[at : at + batches.PART]
            ids.append(self._ids.joined([each.offset for each in piece]))
            end = max(end, *[each.end for each in piece])
            yield
        reply = SendMessageReply(",".join(ids), earlier[0].queue_id, earlier[0].queue_offset)
        if not (yield from are_neighbours(earlier)):
            reply.stored_at = yield from render_positions(earlier)
        yield from empty_in_steps(earlier)
        return ReplyWhenDurable(self._store.durability(shared.properties.wants_safety), end, reply)

    def _recall_handle(self, topic: str, entry: Entry, due_ms: int) -> str | None:
        unique_id = entry.properties.unique_key
        if unique_id is None or topic.startswith(names.RETRY) or due_ms & RECALL:
            return None
        return str(RecallHandle(topic, self._rules.broker_name, due_ms, unique_id))

    def _move_to_dlq(self, entry: Entry) -> None:
        entry.topic = self._topics.ensure_dlq(entry.topic.removeprefix(names.RETRY)).topic_name
        entry.queue_id = 0
        entry.group = None
        entry.properties.remove(Property.DELAY)

    def _has_no_tries_left(self, header: SendMessage | SendMessageV2) -> bool:
        group = self._groups.ensure(header.topic.removeprefix(names.RETRY))
        return is_exhausted(header.reconsume_times, header.max_reconsume_times, group.retry_max_times)

    def _admitted_topic(self, header: SendMessage | SendMessageV2, peer: Peer) -> TopicConfig:
        """Return the topic, creating it if allowed, and remember that clients may send to it.

        The topic's own permission does not matter here. Without WRITE, clients with a new route send elsewhere. Clients
        with an old route still send here, and the broker stores that, as in Java 4.9: a refusal would lose one-way
        messages.
        """
        name = header.topic
        if not self._topics.permission & Perm.WRITE:
            # Unlike Java, which refuses such sends for ordered topics only.
            raise self._topics.forbidden("sending")
        if names.is_closed_to_clients(name):
            raise RemoteError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        topic = self._topics.get(name)
        if topic is None:
            if self.quotas is not None:
                self.quotas.create_topic(peer)
            topic = self._topics.ensure_for_send(
                name, header.default_topic, header.default_topic_queue_nums, peer.address
            )
        self._open.add(name)
        return topic

    def _other_queue(self, topic: TopicConfig, queue_id: int, peer: Peer) -> int:
        if queue_id < 0:
            return random.randrange(topic.write_queue_nums)
        if queue_id < topic.read_queue_nums:
            return queue_id  # the topic is shrinking: write queues are removed first
        raise RemoteError(
            ResponseCode.SYSTEM_ERROR,
            f"request queueId[{queue_id}] is illegal, topic[{topic.topic_name}] has {topic.write_queue_nums} write "
            f"queues Producer: {peer.address}",
        )

    def _refuse_size(self, size_bytes: int) -> None:
        raise RemoteError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the body takes {size_bytes} bytes; this broker's maxMessageSize is {self._rules.max_body_bytes}",
        )


def _refuse_tries(times: int) -> None:
    """Unlike Java: below 0, failures would come again without a pause; near 2^31, no failure could be stored."""
    raise RemoteError(
        ResponseCode.MESSAGE_ILLEGAL,
        f"reconsumeTimes is {times}; it must be 0 (for a new message) to {MAX_RECONSUME_TIMES}",
    )


def _singles(shared: Entry, body: bytes, places: bytes) -> list[Entry]:
    entries = batch.entries(shared, body, places)
    for entry in entries:
        entry.owner = shared.owner
    if any(half_message.is_half(entry.properties) for entry in entries):
        raise RemoteError(
            ResponseCode.MESSAGE_ILLEGAL, "a batch cannot hold messages of a transaction; send them one by one"
        )
    return entries


def _forget(topic: str, properties: Properties, peer: Peer) -> None:
    """Do nothing about a request where no handler takes answers."""


class Stored(Written):
    """The `SendMessageReply` of a stored message; none of its fields needs quoting."""

    def __init__(self, msg_id: str, queue_id: int, queue_offset: int) -> None:
        self.msg_id = msg_id
        self.queue_id = queue_id
        self.queue_offset = queue_offset

    def write(self, out: BytesWriter) -> None:
        out.write(b'{"msgId":"')
        out.write(self.msg_id.encode())
        out.write(b'","queueId":"')
        out.write(str(self.queue_id).encode())
        out.write(b'","queueOffset":"')
        out.write(str(self.queue_offset).encode())
        out.write(b'","MSG_REGION":"DefaultRegion","TRACE_ON":"true"}')

    def ext_fields(self) -> dict[str, str]:
        return self.header().ext_fields()

    def header(self) -> SendMessageReply:
        return SendMessageReply(self.msg_id, self.queue_id, self.queue_offset)
