"""Checks messages and packs them: into a request each, or many into one. Properties are rendered once, by `prepare`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

import msgspec

from sparrowmq.client.cluster.network import full_queue
from sparrowmq.client.sending.outgoing import Outgoing
from sparrowmq.client.sending.packed import batch_properties
from sparrowmq.client.sending.producer_settings import ProducerSettings, check_timeout
from sparrowmq.errors import InvalidMessage, InvalidName, MessageTooLarge
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import compression, properties
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import Message, MessageQueue, Property, SysFlag
from sparrowmq.protocol.messages.property_names import OPEN
from sparrowmq.protocol.names import (
    RETRY,
    check_topic,
    is_closed_to_clients,
    with_namespace,
    without_namespace,
)

WAITS: Final = f"{Property.WAIT}\x01true\x02"


class Prepared(msgspec.Struct):
    """A checked message with its id and its rendered properties."""

    message: Message
    msg_id: str
    properties: str


class Packing:
    """Packs the messages of one producer.

    Args:
        next_id: makes message ids.
        namespace: is put before the names of topics.
    """

    def __init__(self, settings: ProducerSettings, next_id: Callable[[], str], namespace: str) -> None:
        self._settings = settings
        self._next_id = next_id
        self.namespace = namespace

    def check(self, message: Message) -> None:
        """Raises: InvalidMessage, InvalidName, MessageTooLarge."""
        topic = self.full_topic(message.topic) if self.namespace else message.topic
        if is_closed_to_clients(check_topic(topic)):
            raise InvalidMessage(f"topic {topic} is written by brokers only; choose another")
        size = len(message.body)
        if not size:
            raise InvalidMessage("the body is empty; consumers of other languages refuse that, send at least a byte")
        if size > self._settings.max_bytes:
            raise MessageTooLarge(
                f"the body has {size} bytes, {self._settings.max_bytes} are allowed; send a reference to it "
                "instead, or raise max_bytes here and maxMessageSize at the broker"
            )

    def prepare(self, message: Message) -> Prepared:
        """Check a message and render its properties. Raises: as `check`."""
        self.check(message)
        msg_id = self._next_id()
        if message.properties or message.keys or message.is_timed:
            rest = _rendered(message, self.namespace)
        else:
            rest = _usual_properties(message.tag, message.delay_level, message.wait_stored, self.namespace)
        return Prepared(message, msg_id, f"{rest}{Property.UNIQ_KEY}\x01{msg_id}\x02")

    def prepare_all(self, messages: Iterable[Message]) -> Iterator[Prepared]:
        """Prepare many messages. Raises: as `check`, with the index of the message that cannot be sent."""
        for index, message in enumerate(messages):
            if not isinstance(message, Message):
                raise InvalidMessage(f"message {index} is {type(message).__name__}, not a Message; none was sent")
            try:
                message.check()
                prepared = self.prepare(message)
                properties.check_size(len(prepared.properties.encode()))
            except (InvalidMessage, InvalidName) as error:
                error.args = (f"message {index} of those to send: {error}. None of them was sent",)
                raise
            yield prepared

    def pack(self, prepared: Prepared, timeout_s: float | None) -> Outgoing:
        """One message, compressed if it is large."""
        message = prepared.message
        body, sys_flag = message.body, 0
        if len(body) > self._settings.compress_over_bytes:
            body, sys_flag = _compressed(body)
        return Outgoing(
            self.full_topic(message.topic) if self.namespace else message.topic,
            body,
            prepared.properties,
            sys_flag,
            message.flag,
            timeout_s=self._settings.timeout_s if timeout_s is None else check_timeout(timeout_s),
            msg_ids=(prepared.msg_id,),
            is_timed=message.is_timed,
            namespace=self.namespace,
        )

    def pack_batch(self, batch: list[Prepared], timeout_s: float | None) -> Outgoing:
        """Several messages of one topic, as one request."""
        first = batch[0].message
        return Outgoing(
            self.full_topic(first.topic),
            batches.encode(
                [BatchPart(each.message.body, each.properties.encode(), each.message.flag) for each in batch]
            ),
            batch_properties(wait_stored=first.wait_stored),
            is_batch=True,
            timeout_s=self._settings.timeout_s if timeout_s is None else check_timeout(timeout_s),
            msg_ids=tuple(each.msg_id for each in batch),
            namespace=self.namespace,
        )

    def address(self, item: Outgoing, fifo: str | None, queue: MessageQueue | None) -> None:
        """Fix the queue, if the caller of a send gave a key or a queue. Raises: InvalidMessage."""
        if fifo is None and queue is None:
            return
        if fifo is not None and not isinstance(fifo, str):
            raise InvalidMessage(f"fifo={fifo!r} is not text; use str(key)")
        if queue is not None:
            if not isinstance(queue, MessageQueue):
                raise InvalidMessage(f"queue={queue!r} is no queue; take one of `await mq.queues(topic)`")
            if fifo is not None:
                raise InvalidMessage("give fifo= or queue=, not both")
            if self.full_topic(queue.topic) != item.topic:
                topic = without_namespace(self.namespace, item.topic)
                raise InvalidMessage(f"{queue} does not belong to topic {topic}; take one of `await mq.queues(topic)`")
            item.queue = full_queue(self.namespace, queue) if self.namespace else queue
            item.is_fixed = True
        item.key = fifo

    def full_topic(self, topic: str) -> str:
        """The topic as brokers know it."""
        return with_namespace(self.namespace, topic) if self.namespace else topic


def is_plain(message: Message) -> bool:
    """Return whether a message may be gathered: a broker does with it in a batch what it does with it alone.

    That is not so for a message that waits, or that has a property by which brokers do something, such as a request.
    """
    return (
        message.wait_stored
        and not message.is_delayed
        and not message.flag
        and not message.topic.startswith(RETRY)
        and OPEN.isdisjoint(message.properties)
    )


def without_wait(rendered: str) -> str:
    """Leave the wish to wait out, which is granted anyway. Apache's brokers would store it with a batch's messages."""
    kept, _, rest = rendered.rpartition(WAITS)
    return kept + rest


@lru_cache(maxsize=1024)
def _usual_properties(tag: str | None, delay_level: int, wait_stored: bool, namespace: str) -> str:
    """The properties of messages that have none of their own. Rendering them is a tenth of what a send costs."""
    return _rendered(Message("", b"", tag, delay_level=delay_level, wait_stored=wait_stored), namespace)


def _rendered(message: Message, namespace: str) -> str:
    """The properties with the namespace that the message is sent in.

    Source: DefaultMQProducerImpl.sendKernelImpl, Java 4.9.8.
    """
    text = message._render_properties()
    return f"{text}{Property.INSTANCE_ID}\x01{namespace}\x02" if namespace else text


def _compressed(body: bytes) -> tuple[bytes, int]:
    """The body to send and its system flag. The kind is left 0: clients up to 4.9 know no other zlib."""
    smaller = compression.compress(body)
    return (smaller, SysFlag.COMPRESSED) if len(smaller) < len(body) else (body, 0)
