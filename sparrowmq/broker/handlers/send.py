"""SEND_MESSAGE (10, 310) and SEND_BATCH_MESSAGE (320): check, find the topic, store, answer once it is safe.

One message costs: one header, one append, one reply. With synchronous flush the reply
waits for the store's `flushed` watermark as a callback; no task is made.
Source: SendMessageProcessor and AbstractSendMessageProcessor.msgCheck, Java 4.9.8.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from sparrowmq.broker.groups import Groups
from sparrowmq.broker.retry import is_exhausted, without_delay
from sparrowmq.broker.topics import Topics
from sparrowmq.broker.writing import Writer
from sparrowmq.errors import RemoteError
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages import properties as property_text
from sparrowmq.protocol.messages.message import Perm, Property
from sparrowmq.protocol.messages.message_id import OffsetIds
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.protocol.requests.headers import SendBatchMessage, SendMessage, SendMessageReply, SendMessageV2
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.dispatch import After, handles
from sparrowmq.remoting.session import Session
from sparrowmq.stats import Counter
from sparrowmq.store.message_store import MessageStore
from sparrowmq.watermark import Watermark


@dataclass(frozen=True)
class SendRules:
    """What a broker accepts.

    Attributes:
        max_body_bytes: of one message or one whole batch.
        wait_for: the watermark that an acknowledged message must have reached; None answers at once (ASYNC_FLUSH).
        store_host: this broker's address as offset ids carry it.
    """

    max_body_bytes: int
    wait_for: Watermark | None
    store_host: bytes
    broker_name: str


class SendHandler:
    """Stores what producers send."""

    def __init__(
        self,
        store: MessageStore,
        writer: Writer,
        topics: Topics,
        groups: Groups,
        rules: SendRules,
        received: Counter,
    ) -> None:
        self._store = store
        self._writer = writer
        self._topics = topics
        self._groups = groups
        self._rules = rules
        self._received = received
        self._waits_for = rules.wait_for
        self._ids = OffsetIds(rules.store_host)
        # Topics that were found open to clients, as they were configured then.
        self._open: dict[str, TopicConfig] = {}

    @handles(SendMessage, SendMessageV2, SendBatchMessage)
    def send(
        self, header: SendMessage | SendMessageV2, command: Command, session: Session
    ) -> SendMessageReply | After:
        """Store one message or one batch."""
        body = command.body
        if len(body) > self._rules.max_body_bytes:
            self._refuse_size(len(body))
        name = header.topic
        topic = self._topics.get(name) or self._create_topic(header, session)
        if topic is not self._open.get(name):
            self._check_open(topic)
        queue_id = header.queue_id
        if not 0 <= queue_id < topic.write_queue_nums:
            queue_id = self._other_queue(topic, queue_id, session)
        if header.batch or command.code == SendBatchMessage.code:
            return self._send_batch(name, queue_id, header, command, session)
        properties = header.properties or ""
        if "TRAN_MSG\x01" in properties:
            self._refuse_transaction(properties)
        if name.startswith("%RETRY%") and self._has_no_tries_left(header):
            name, queue_id = self._topics.ensure_dlq(name.removeprefix(names.RETRY)).topic_name, 0
            properties = property_text.render(without_delay(property_text.parse(properties)))
        appended = self._writer.put(
            name,
            queue_id,
            body,
            properties,
            header.flag,
            header.sys_flag,
            header.born_timestamp,
            session.peer_host,
            header.reconsume_times or 0,
        )
        self._received.value += 1
        reply = SendMessageReply(self._ids.text(appended[0]), queue_id, appended[1])
        if self._waits_for is None or _wants_no_wait(properties):
            return reply
        return After(self._waits_for, appended[2], reply)

    def _send_batch(
        self,
        topic: str,
        queue_id: int,
        header: SendMessage | SendMessageV2,
        command: Command,
        session: Session,
    ) -> SendMessageReply | After:
        parts = [
            self._writer.part(
                message.body,
                str(message.properties, "utf-8", "replace"),
                message.flag,
                header.sys_flag,
                header.born_timestamp,
                session.peer_host,
            )
            for message in batch.decode(command.body)
        ]
        stored = self._store.append_batch(topic, queue_id, parts)
        self._received.value += len(stored)
        offset_ids = ",".join([self._ids.text(appended[0]) for appended in stored])
        reply = SendMessageReply(offset_ids, queue_id, stored[0][1])
        if self._waits_for is None or _wants_no_wait(header.properties or ""):
            return reply
        return After(self._waits_for, stored[-1][2], reply)

    def _has_no_tries_left(self, header: SendMessage | SendMessageV2) -> bool:
        """Whether a client that retries by itself (an orderly consumer) has done so often enough."""
        group = self._groups.ensure(header.topic.removeprefix(names.RETRY))
        return is_exhausted(header.reconsume_times, header.max_reconsume_times, group.retry_max_times)

    def _create_topic(self, header: SendMessage | SendMessageV2, session: Session) -> TopicConfig:
        return self._topics.ensure_for_send(
            header.topic, header.default_topic, header.default_topic_queue_nums, session.peer
        )

    def _check_open(self, topic: TopicConfig) -> None:
        """Raise unless clients may send to the topic; remembered until the topic is changed."""
        if not topic.perm & Perm.WRITE:
            raise RemoteError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._rules.broker_name}] topic[{topic.topic_name}] sending message is forbidden",
            )
        if names.is_closed_to_clients(topic.topic_name):
            raise RemoteError(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic.topic_name}] is forbidden."
            )
        self._open[topic.topic_name] = topic

    def _other_queue(self, topic: TopicConfig, queue_id: int, session: Session) -> int:
        """The queue for an id that is not one of the topic's write queues: below 0 the choice is ours."""
        if queue_id < 0:
            return random.randrange(topic.write_queue_nums)
        if queue_id < topic.read_queue_nums:
            return queue_id  # The topic is being made smaller: write queues go first.
        raise RemoteError(
            ResponseCode.SYSTEM_ERROR,
            f"request queueId[{queue_id}] is illegal, topic[{topic.topic_name}] has {topic.write_queue_nums} write "
            f"queues Producer: {session.peer}",
        )

    def _refuse_size(self, size_bytes: int) -> None:
        raise RemoteError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the body takes {size_bytes} bytes; this broker's maxMessageSize is {self._rules.max_body_bytes}",
        )

    def _refuse_transaction(self, properties: str) -> None:
        if property_text.parse(properties).get(Property.TRAN_MSG) == "true":
            raise RemoteError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._rules.broker_name}] sending transaction message is forbidden: not supported yet",
            )


def _wants_no_wait(properties: str) -> bool:
    """Whether the producer does not want to wait for the disk (waitStoreMsgOK)."""
    return "WAIT\x01false" in properties and property_text.parse(properties).get(Property.WAIT) == "false"
