"""SEND_MESSAGE (10, 310) and SEND_BATCH_MESSAGE (320): check, find the topic, store, answer once the message is safe.

One message costs one header, one `Entry`, one append and one reply. The answer waits for `MessageStore.durability` as a
callback, without a task. A message that its producer sends again is stored once (broker/repeated_sends.py).
Source: SendMessageProcessor and AbstractSendMessageProcessor.msgCheck, Java 4.9.8.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from sparrowmq.broker import batches
from sparrowmq.broker.batches import are_neighbours, check_repeated_size, put_missing, render_positions
from sparrowmq.broker.delayed.retry_rules import is_exhausted
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.handlers.handler import SharedParts, body_too_large, system_error
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.repeated_sends import RepeatedSends, StoredBefore, in_progress, key
from sparrowmq.broker.topics import Topics
from sparrowmq.broker.transactions import half_message
from sparrowmq.errors import RemoteError
from sparrowmq.kernel.batch_layout import PLACE_BYTES
from sparrowmq.kernel.lanes import Lanes
from sparrowmq.loop.slices import Steps, WorkQueue, empty_in_steps
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.message import Perm, SysFlag
from sparrowmq.protocol.messages.message_id import offset_id
from sparrowmq.protocol.messages.properties import Properties, mark
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.protocol.requests.headers import SendBatchMessage, SendMessage, SendMessageReply, SendMessageV2
from sparrowmq.remoting.handler import ReplyWhenDurable, handles
from sparrowmq.remoting.peer import Peer, owner_of
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.timer_wheel import RECALL

_SENDER_FLAGS: Final[int] = SysFlag.OF_SENDER
MAX_RECONSUME_TIMES: Final = 1 << 30  # that a message can have had; each failure adds one to it
_ASKS_FOR_REPLY: Final = mark(Property.REPLY_TO_CLIENT)
_TRANSACTION_TOPICS: Final = names.HALF_TOPIC.encode(), names.OP_HALF_TOPIC.encode()
_MAX_LANE_BODY_BYTES: Final = 1 << 16  # of larger ones the bytes cost more than the way


@dataclass(frozen=True)
class SendRules:
    max_body_bytes: int  # the limit for one message or one whole batch
    store_host: bytes  # this broker's address in the format of offset ids
    broker_name: str


class SendHandler:
    """Store the messages of producers.

    `on_request_message` gets the topic, properties and sender of each stored message that asks for a reply.
    """

    def __init__(
        self,
        shared_parts: SharedParts,
        rules: SendRules,
        figures: Figures,
        repeats: RepeatedSends,
        on_request_message: Callable[[str, Properties, Peer], None],
    ) -> None:
        self._store: MessageStore = shared_parts.store
        self._writer: Writer = shared_parts.writer
        self._topics: Topics = shared_parts.topics
        self._groups: Groups = shared_parts.groups
        self._repeats = repeats
        self._retried_ids = repeats.retried
        self._rules = rules
        self.received_counter = figures.counter("sparrowmq_messages_received_total", "messages stored for producers")
        self._batch_queue = WorkQueue()  # of large batches, and of batches that are sent again
        # Topics that clients may send to; each has passed the check once.
        self._open_topics: set[str] = set()
        self._on_request_message = on_request_message
        self._quotas = shared_parts.quotas
        self.lanes: Lanes | None = None  # of plain messages
        self._accepts_writes = shared_parts.accepts_writes

    def apply_rules(self, rules: SendRules) -> None:
        self._rules = rules
        self._open_topics.clear()

    @handles(SendMessage, SendMessageV2, SendBatchMessage)
    def send(
        self, header: SendMessage | SendMessageV2, body: bytes, peer: Peer
    ) -> ReplyWhenDurable | Awaitable[ReplyWhenDurable]:
        if len(body) > self._rules.max_body_bytes:
            raise body_too_large(len(body), self._rules.max_body_bytes)
        name = header.topic
        topic = self._topics.get(name)
        if topic is None or name not in self._open_topics:
            topic = self._checked_topic(header, peer)
        queue_id = header.queue_id
        if not 0 <= queue_id < topic.write_queue_nums:
            queue_id = self._replacement_queue_id(topic, queue_id, peer)
        times = header.reconsume_times or 0
        if not 0 <= times <= MAX_RECONSUME_TIMES:
            raise _invalid_tries(times)
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
            header.sys_flag & _SENDER_FLAGS,
            times,
        )
        entry.group = header.producer_group
        principal = peer.principal
        if principal is not None:
            entry.owner = principal.access_key
        if name.startswith("%RETRY%") and self._has_no_tries_left(header):
            self._move_to_dlq(entry)
        queue_id, wants_safety = entry.queue_id, properties.wants_safety
        if header.may_be_stored or name in self._retried_ids.topics:
            earlier_send = self._repeats.before(entry, bool(header.may_be_stored))
            if earlier_send is not None:
                return self._reply_as_before(earlier_send, entry)
        topic_name = entry.topic
        placed = self._writer.put(entry)  # may park the message in another queue
        if header.may_be_stored:
            self._repeats.note(entry, topic_name, placed.offset)
        self.received_counter.value += 1
        if properties.has(_ASKS_FOR_REPLY):
            self._on_request_message(name, properties, peer)
        msg_id = offset_id(self._rules.store_host, placed.offset)
        reply = SendMessageReply(msg_id, queue_id, placed.queue_offset)
        if self.lanes is not None and isinstance(header, SendMessageV2):
            if entry.topic == name:
                self._open_lane(self.lanes, topic, queue_id)
            elif entry.topic == names.HALF_TOPIC:
                self._open_half_lane(self.lanes, topic, queue_id, placed)
        if entry.deliver_at_ms and entry.topic == names.TIMER_TOPIC:
            reply.recall_handle = self._recall_handle(name, entry, entry.deliver_at_ms)
        return ReplyWhenDurable(self._store.durability(wants_safety), placed.end, reply)

    def note_received(self, count: int) -> None:
        self.received_counter.value += count

    def make_lanes(self, *, needs_signature: bool) -> Lanes:
        """Make the lanes that this handler opens."""
        self.lanes = self._writer.lanes([Property.REPLY_TO_CLIENT])
        self.lanes.needs_signature = needs_signature
        return self.lanes

    def _open_lane(self, lanes: Lanes, topic: TopicConfig, queue_id: int) -> None:
        """Let the next plain messages to this queue take the short way."""
        name = topic.topic_name
        if name.isascii() and not name.startswith(names.RETRY) and name not in self._retried_ids.topics:
            queue = self._store.queues.obtain(name, queue_id)
            lanes.max_body_bytes = min(self._rules.max_body_bytes, _MAX_LANE_BODY_BYTES)
            lanes.open_send(name.encode(), topic.write_queue_nums, queue_id, queue)

    def _open_half_lane(self, lanes: Lanes, topic: TopicConfig, queue_id: int, placed: Placed) -> None:
        """Let the next plain half messages to this queue, and the ends of all, take the short way, once it exists."""
        queues = self._store.queues
        half_queue, end_queue = queues.get(names.HALF_TOPIC, 0), queues.get(names.OP_HALF_TOPIC, 0)
        if half_queue is None or end_queue is None or queues.get(topic.topic_name, queue_id) is None:
            return
        self._open_lane(lanes, topic, queue_id)
        lanes.open_transactions(*_TRANSACTION_TOPICS, half_queue, end_queue, half_message.NOT_PLAIN)
        lanes.keep_half(topic.topic_name.encode(), queue_id, placed.queue_offset, placed.offset)

    @property
    def lane_rules(self) -> object:
        """All that lanes rely on, as far as this handler knows: another value after each change."""
        topics = self._topics
        return self._rules, topics.version, topics.permission, self._retried_ids.version, self._store.queues.version

    def _reply_as_before(self, earlier_send: StoredBefore, entry: Entry) -> ReplyWhenDurable:
        reply = SendMessageReply(
            offset_id(self._rules.store_host, earlier_send.offset), earlier_send.queue_id, earlier_send.queue_offset
        )
        if earlier_send.due_ms:
            reply.recall_handle = self._recall_handle(entry.topic, entry, earlier_send.due_ms)
        return ReplyWhenDurable(self._store.durability(entry.properties.wants_safety), earlier_send.end, reply)

    def check_request(self, header: SendMessage | SendMessageV2, body: bytes, peer: Peer) -> None:
        if len(body) > self._rules.max_body_bytes:
            raise body_too_large(len(body), self._rules.max_body_bytes)
        self._checked_topic(header, peer)

    def _send_batch(
        self, header: SendMessage | SendMessageV2, queue_id: int, properties: Properties, body: bytes, peer: Peer
    ) -> ReplyWhenDurable | Awaitable[ReplyWhenDurable]:
        if header.topic.startswith("%RETRY%"):
            raise RemoteError(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}"
            )
        common_entry = Entry(
            header.topic,
            queue_id,
            b"",
            properties,
            header.born_timestamp,
            peer.host,
            0,
            header.sys_flag & _SENDER_FLAGS,
        )
        places = batch.places(body)
        common_entry.owner = owner_of(peer)
        if header.may_be_stored or header.topic in self._retried_ids.topics:
            return self._send_in_line(common_entry, body, places, bool(header.may_be_stored))
        placed = self._writer.put_plain(common_entry, body, places)
        topic = self._topics.get(header.topic)
        if placed is not None and topic is not None and self.lanes is not None:
            self._open_lane(self.lanes, topic, queue_id)
        if placed is None:
            if len(places) > batches.PART * PLACE_BYTES:
                return self._send_in_line(common_entry, body, places, False)
            placed = batches.as_one(self._writer.put_batch(_batch_entries(common_entry, body, places)))
        self.received_counter.value += len(placed.offsets)
        reply = SendMessageReply(self._joined_ids(placed.offsets), queue_id, placed.queue_offset)
        return ReplyWhenDurable(self._store.durability(properties.wants_safety), placed.end, reply)

    def _send_in_line(
        self, common_entry: Entry, body: bytes, places: bytes, is_repeated: bool
    ) -> ReplyWhenDurable | Awaitable[ReplyWhenDurable]:
        """Send a batch after those before it. Raises: RemoteError, it is sent again, and is in the line already."""
        first_entry = batch.entries(common_entry, body, places[:PLACE_BYTES])[0]
        first_entry.owner = common_entry.owner
        send_key = key(first_entry) if first_entry.properties.unique_key is not None else None
        if is_repeated and send_key is not None and send_key in self._batch_queue.marks:
            raise in_progress()
        incarnation = self._topics.incarnation(common_entry.topic)
        steps = self._send_missing(common_entry, body, places, is_repeated)
        steps = self._while_topic_exists(steps, common_entry.topic, incarnation)
        return self._batch_queue.work(batches.while_leading(self._store, self._accepts_writes, steps), send_key)

    def _while_topic_exists(
        self, steps: Steps[ReplyWhenDurable], topic: str, incarnation: int
    ) -> Steps[ReplyWhenDurable]:
        """Store a batch as long as its topic is the same. Raises: RemoteError, it was deleted with the stored parts."""
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

    def _send_missing(
        self, common_entry: Entry, body: bytes, places: bytes, is_repeated: bool
    ) -> Steps[ReplyWhenDurable]:
        """Store the messages of a batch that were not stored before: all of them, none, or the end that a crash cut."""
        if is_repeated:
            check_repeated_size(len(places) // PLACE_BYTES)
        entries: list[Entry] = []
        for part_places in batches.pieces(places, batches.PART_OF_ENTRIES):
            entries += _batch_entries(common_entry, body, part_places)
            yield
        stored_messages, stored_count = yield from put_missing(self._writer, self._repeats, entries, is_repeated)
        self.received_counter.value += stored_count
        yield from empty_in_steps(entries)
        ids, end = [], 0
        for index in range(0, len(stored_messages), batches.PART):
            piece = stored_messages[index : index + batches.PART]
            ids.append(self._joined_ids([stored_before.offset for stored_before in piece]))
            end = max(end, *[stored_before.end for stored_before in piece])
            yield
        reply = SendMessageReply(",".join(ids), stored_messages[0].queue_id, stored_messages[0].queue_offset)
        if not (yield from are_neighbours(stored_messages)):
            reply.stored_at = yield from render_positions(stored_messages)
        yield from empty_in_steps(stored_messages)
        return ReplyWhenDurable(self._store.durability(common_entry.properties.wants_safety), end, reply)

    def _joined_ids(self, offsets: Iterable[int]) -> str:
        return ",".join([offset_id(self._rules.store_host, offset) for offset in offsets])

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

    def _checked_topic(self, header: SendMessage | SendMessageV2, peer: Peer) -> TopicConfig:
        """Return the topic, creating it if allowed, and remember that clients may send to it.

        The topic's own permission does not matter here. Clients with an old route still send to a topic without WRITE,
        and the broker stores that, as in Java 4.9: a refusal would lose one-way messages.
        """
        name = header.topic
        if not self._topics.permission & Perm.WRITE:
            # Unlike Java, which refuses such sends for ordered topics only.
            raise self._topics.forbidden("sending")
        if names.is_closed_to_clients(name):
            raise RemoteError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")
        topic = self._topics.get(name)
        if topic is None:
            self._quotas.create_topic(peer)
            topic = self._topics.ensure_for_send(
                name, header.default_topic, header.default_topic_queue_nums, peer.address
            )
        self._open_topics.add(name)
        return topic

    def _replacement_queue_id(self, topic: TopicConfig, queue_id: int, peer: Peer) -> int:
        if queue_id < 0:
            return random.randrange(topic.write_queue_nums)
        if queue_id < topic.read_queue_nums:
            return queue_id  # the topic is shrinking: write queues are removed first
        raise system_error(
            f"request queueId[{queue_id}] is illegal, topic[{topic.topic_name}] has {topic.write_queue_nums} write "
            f"queues Producer: {peer.address}"
        )


def _invalid_tries(times: int) -> RemoteError:
    """Unlike Java: below 0, failures would come again without a pause; near 2^31, no failure could be stored."""
    return RemoteError(
        ResponseCode.MESSAGE_ILLEGAL,
        f"reconsumeTimes is {times}; it must be 0 (for a new message) to {MAX_RECONSUME_TIMES}",
    )


def _batch_entries(common_entry: Entry, body: bytes, places: bytes) -> list[Entry]:
    entries = batch.entries(common_entry, body, places)
    for entry in entries:
        entry.owner = common_entry.owner
    if any(half_message.is_half(entry.properties) for entry in entries):
        raise RemoteError(
            ResponseCode.MESSAGE_ILLEGAL, "a batch cannot hold messages of a transaction; send them one by one"
        )
    return entries
