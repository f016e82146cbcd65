"""Checks messages, renders their properties once, and makes requests of them: one message each, or a batch.

`split_into_batches` divides messages into batches that a broker accepts: one topic, one durability, no delay, 4 MiB,
4096 messages. A message that may not be in a batch (a delayed one) is a batch of one, and is sent as a single message.
Source of the batches: MessageBatch.generateFromList and the ListSplitter of Apache's examples, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

import msgspec

from sparrowmq.client.cluster.network import full_queue
from sparrowmq.client.sending.producer_settings import ProducerSettings, check_timeout
from sparrowmq.client.sending.send_request import WAIT_PROPERTY, SendRequest, batch_properties
from sparrowmq.errors import InvalidMessage, InvalidName, MessageTooLarge
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import compression, properties
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import Message, MessageQueue, Property, SysFlag
from sparrowmq.protocol.messages.property_names import OPEN
from sparrowmq.protocol.names import RETRY, check_topic, is_closed_to_clients, with_namespace, without_namespace

LOG_OVERHEAD_BYTES: Final = 20
MAX_COUNT: Final = 4096  # a broker stores them in four parts, some 6 ms each, and takes other requests between


class PreparedMessage(msgspec.Struct):
    """A checked message with its id and its rendered properties."""

    message: Message
    msg_id: str
    properties: str


class MessageEncoder:
    """Packs the messages of one producer."""

    def __init__(self, settings: ProducerSettings, next_id: Callable[[], str], namespace: str) -> None:
        self._settings = settings
        self._next_id = next_id
        self.namespace = namespace

    def check(self, message: Message) -> None:
        """Raises: InvalidMessage, InvalidName, MessageTooLarge."""
        topic = self.full_topic(message.topic) if self.namespace else message.topic
        if is_closed_to_clients(check_topic(topic)):
            raise InvalidMessage(f"topic {topic} is written by brokers only; choose another")
        body_size = len(message.body)
        if not body_size:
            raise InvalidMessage("the body is empty; consumers of other languages refuse that, send at least a byte")
        if body_size > self._settings.max_bytes:
            raise MessageTooLarge(
                f"the body has {body_size} bytes, {self._settings.max_bytes} are allowed; send a reference to it "
                "instead, or raise max_bytes here and maxMessageSize at the broker"
            )

    def prepare(self, message: Message) -> PreparedMessage:
        """Check a message and render its properties. Raises: as `check`."""
        self.check(message)
        msg_id = self._next_id()
        if message.properties or message.keys or message.is_timed:
            rendered = _rendered(message, self.namespace)
        else:
            rendered = _usual_properties(message.tag, message.delay_level, message.wait_stored, self.namespace)
        return PreparedMessage(message, msg_id, f"{rendered}{Property.UNIQ_KEY}\x01{msg_id}\x02")

    def prepare_all(self, messages: Iterable[Message]) -> Iterator[PreparedMessage]:
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

    def encode_message(self, prepared: PreparedMessage, timeout_s: float | None) -> SendRequest:
        """One message, compressed if it is large."""
        message = prepared.message
        body, sys_flag = message.body, 0
        if len(body) > self._settings.compress_over_bytes:
            compressed = compression.compress(body)
            if len(compressed) < len(body):
                # The kind of compression is left 0: clients up to 4.9 know no other zlib.
                body, sys_flag = compressed, SysFlag.COMPRESSED
        return SendRequest(
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

    def encode_batch(self, batch: list[PreparedMessage], timeout_s: float | None) -> SendRequest:
        """Several messages of one topic, as one request."""
        first = batch[0].message
        return SendRequest(
            self.full_topic(first.topic),
            batches.encode(
                [
                    BatchPart(prepared.message.body, prepared.properties.encode(), prepared.message.flag)
                    for prepared in batch
                ]
            ),
            batch_properties(wait_stored=first.wait_stored),
            is_batch=True,
            timeout_s=self._settings.timeout_s if timeout_s is None else check_timeout(timeout_s),
            msg_ids=tuple(prepared.msg_id for prepared in batch),
            namespace=self.namespace,
        )

    def set_queue(self, item: SendRequest, fifo: str | None, queue: MessageQueue | None) -> None:
        """Fix the queue, if the caller of a send gave a key or a queue. Raises: InvalidMessage."""
        if fifo is None and queue is None:
            return
        if fifo is not None and not isinstance(fifo, str):
            raise InvalidMessage(f"fifo={fifo!r} is not text; use str(key)")
        if queue is not None:
            if not isinstance(queue, MessageQueue):
                raise InvalidMessage(f"queue={queue!r} is not a MessageQueue; take one of `await mq.queues(topic)`")
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


def split_into_batches(messages: Iterable[PreparedMessage], max_bytes: int) -> Iterator[list[PreparedMessage]]:
    """Split messages into runs of neighbours that may travel together, in order."""
    batch: list[PreparedMessage] = []
    room_bytes = max_bytes
    for message in messages:
        size, is_full = size_bytes(message.message), len(batch) == MAX_COUNT
        if batch and (size > room_bytes or is_full or not _may_share_batch(batch[-1].message, message.message)):
            yield batch
            batch, room_bytes = [], max_bytes
        batch.append(message)
        room_bytes -= size
    if batch:
        yield batch


def size_bytes(message: Message) -> int:
    """The size of a message in a batch, as Apache's splitter counts it."""
    texts = sum(len(name) + len(value) for name, value in message.properties.items())
    return len(message.topic) + len(message.body) + texts + LOG_OVERHEAD_BYTES


def _may_share_batch(first: Message, second: Message) -> bool:
    return (
        first.topic == second.topic
        and first.wait_stored == second.wait_stored
        and not first.is_delayed
        and not second.is_delayed
        and not first.topic.startswith(RETRY)
    )


def is_plain(message: Message) -> bool:
    """Return whether a message may be accumulated: it does not wait, and has no property that brokers act on."""
    return (
        message.wait_stored
        and not message.is_delayed
        and not message.flag
        and not message.topic.startswith(RETRY)
        and OPEN.isdisjoint(message.properties)
    )


def without_wait(rendered: str) -> str:
    """Leave out the property WAIT, which is the default. Apache's brokers would store it with a batch's messages."""
    before_wait, _, after_wait = rendered.rpartition(WAIT_PROPERTY)
    return before_wait + after_wait


@lru_cache(maxsize=1024)
def _usual_properties(tag: str | None, delay_level: int, wait_stored: bool, namespace: str) -> str:
    """The properties of messages that have none of their own. Rendering them is a tenth of what a send costs."""
    return _rendered(Message("", b"", tag, delay_level=delay_level, wait_stored=wait_stored), namespace)


def _rendered(message: Message, namespace: str) -> str:
    """The properties with the namespace that the message is sent in. Source: sendKernelImpl, Java 4.9.8."""
    text = message._render_properties()
    return f"{text}{Property.INSTANCE_ID}\x01{namespace}\x02" if namespace else text
