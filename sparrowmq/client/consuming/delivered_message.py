"""The compiled part of a message at its consumer: its content, and the loops that each message passes.

    ack ──> Settling.ack ──> the queue goes on behind it
    retry, reject (received_message.py) ──> Settling(message, outcome)

    a popped message:  the answer ──> with_receipt ──> handlers ──> spend ──> runs_of ──> the acknowledgement

What programs give as arguments is checked in received_message.py: compiled functions refuse wrong types by a bare
TypeError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from sparrowmq.client.cluster.network import plain_queue
from sparrowmq.client.cluster.replies import Answers
from sparrowmq.client.consuming.retry import FailureRules
from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.messages import compression
from sparrowmq.protocol.messages.message import MessageQueue, Property, StoredMessage, SysFlag
from sparrowmq.protocol.messages.pulled_message import PulledMessage
from sparrowmq.protocol.names import RETRY, without_namespace

_COMPRESSED: Final = int(SysFlag.COMPRESSED)


class Outcome(Enum):
    """The outcome of a delivered message."""

    DONE = "done"
    RETRY = "retried"
    # It goes to the dead-letter queue.
    REJECTED = "rejected"
    # Its handler was stopped: as RETRY, unless the consumer is being left.
    CANCELLED = "cancelled"


DONE: Final = Outcome.DONE  # read for each message: an enum's member costs more


class SettleOptions(NamedTuple):
    """The wishes of a handler for its message.

    Attributes:
        delay_level: of the next delivery; 0 leaves it to `delay_s`, or to the broker, which waits longer each time.
        suspend_s: the pause of its queue in an ordered consumer.
        extended_s: added to the time limit of its handler.
    """

    delay_level: int = 0
    delay_s: float | None = None
    suspend_s: float | None = None
    reason: str = ""
    extended_s: float = 0.0


NO_OPTIONS: Final = SettleOptions()


class Owner(Protocol):
    """The queue of a message, as the message uses it: a `ProcessQueue`."""

    @property
    def is_owned(self) -> bool: ...

    @property
    def answers(self) -> Answers | None:
        """Sends answers to requests."""

    @property
    def hooks(self) -> Sequence[Any]:
        """`ConsumeHooks`, which see the message when it is handled by `process`."""

    @property
    def rules(self) -> FailureRules:
        """The rules for the message if `process` fails."""


class DeliveredMessage:
    """A message at its consumer; `ReceivedMessage` and `PoppedMessage` say more."""

    __slots__ = (
        "_body",
        "_is_spent",
        "_namespace",
        "_owner",
        "_receipt",
        "_settle",
        "_settle_options",
        "_source",
        "offset",
        "queue",
        "reconsume_times",
    )

    def __init__(
        self,
        stored: StoredMessage | PulledMessage,
        queue: MessageQueue,
        settle: Settle | None = None,
        owner: Owner | None = None,
        namespace: str = "",
    ) -> None:
        self._source = stored
        self.offset = stored.queue_offset
        self.queue = plain_queue(namespace, queue) if namespace else queue
        self.reconsume_times = stored.reconsume_times
        self._settle_options = NO_OPTIONS
        self._settle = settle
        self._owner = owner
        self._namespace = namespace
        self._receipt: Any = None
        self._is_spent = False
        self._body: bytes | None = None if stored.sys_flag & _COMPRESSED else stored.body

    @property
    def stored(self) -> StoredMessage:
        """Everything that the broker keeps of it."""
        source = self._source
        return source if isinstance(source, StoredMessage) else source.stored

    @property
    def store_size(self) -> int:
        """The bytes that it has in the broker's log."""
        return self._source.store_size

    @property
    def topic(self) -> str:
        """The topic it was sent to, also after retries, without the client's namespace."""
        return without_namespace(self._namespace, self.full_topic) if self._namespace else self.full_topic

    @property
    def full_topic(self) -> str:
        """The topic as brokers know it."""
        topic = self._source.topic
        return self.properties.get(Property.RETRY_TOPIC, topic) if topic.startswith(RETRY) else topic

    @property
    def body(self) -> bytes:
        """The body as it was sent. Raises: RemoteProtocolError, the compressed body is damaged or far too large."""
        if self._body is None:
            self._body = compression.decompress(self._source.body, self._source.sys_flag)
        return self._body

    @property
    def tag(self) -> str | None:
        return self._source.tags

    @property
    def keys(self) -> list[str]:
        return self.stored.keys

    @property
    def properties(self) -> dict[str, str]:
        """The sender's own properties and RocketMQ's."""
        return self.stored.properties

    @property
    def msg_id(self) -> str:
        """The id in the sender's result. It stays the same through retries."""
        return self.stored.message_id

    @property
    def offset_msg_id(self) -> str:
        """The id of the place where it is stored."""
        return self.stored.offset_id

    @property
    def born_timestamp_ms(self) -> int:
        return self.stored.born_timestamp_ms

    @property
    def store_timestamp_ms(self) -> int:
        return self.stored.store_timestamp_ms

    def text(self) -> str:
        """The body as UTF-8 text. Raises: InvalidMessage, it is not UTF-8."""
        try:
            return self.body.decode()
        except UnicodeDecodeError as error:
            raise InvalidMessage(f"the body of message {self.msg_id} is not UTF-8: {error}") from error

    def json(self) -> Any:
        """The body as JSON. Raises: InvalidMessage, it is not JSON, or nested too deep to be read."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidMessage(f"the body of message {self.msg_id} is not JSON: {error}") from error

    def ack(self) -> None:
        """Acknowledge it: the group goes on behind it. Settling a message twice has no effect."""
        settle, self._settle = self._settle, None
        if isinstance(settle, Settling):  # nearly always
            settle.ack(self)
        elif settle is not None:
            settle(self, DONE)

    def _is_from(self, owner: object) -> bool:
        return self._owner is owner

    @property
    def is_unsettled(self) -> bool:
        """Return whether it was neither acknowledged nor given back."""
        return self._settle is not None

    def _deliver_to(self, settle: Settle) -> None:
        self._settle = settle
        self._settle_options = NO_OPTIONS


M = TypeVar("M", bound=DeliveredMessage)
Settle = Callable[[Any, Outcome], object]


class Settling:
    """A `Settle` of several messages of one queue, with short ways for the usual outcome."""

    def __call__(self, message: DeliveredMessage, outcome: Outcome) -> None:
        raise NotImplementedError

    def ack(self, message: DeliveredMessage) -> None:
        """Settle a message as DONE."""
        raise NotImplementedError

    def ack_together(self, messages: Sequence[DeliveredMessage]) -> None:
        """Settle several messages as DONE, in one step."""
        raise NotImplementedError


def messages_from(
    kind: Callable[[StoredMessage | PulledMessage, MessageQueue, Settle | None, Any, str], M],
    records: Sequence[StoredMessage | PulledMessage],
    queue: MessageQueue,
    settle: Settle | None,
    owner: object,
    namespace: str,
) -> list[M]:
    """Return the messages of a pull's answer, as `kind`."""
    return [kind(record, queue, settle, owner, namespace) for record in records]


def set_settle(messages: Sequence[DeliveredMessage], settle: Settle) -> None:
    for message in messages:
        message._settle = settle


def with_receipt(
    kind: Callable[[StoredMessage | PulledMessage, MessageQueue, Settle | None, Any, str], M],
    records: Sequence[StoredMessage | PulledMessage],
    queue: MessageQueue,
    receipt: object,
    owner: object,
    namespace: str,
) -> list[M]:
    """Return messages that share a receipt, as `kind`. `queue` is without the namespace already."""
    messages = messages_from(kind, records, queue, None, owner, "")
    for message in messages:
        message._receipt = receipt
        message._namespace = namespace
    return messages


def mark_spent(messages: Sequence[DeliveredMessage], is_spent: bool) -> None:
    for message in messages:
        message._is_spent = is_spent


def unspent_of(messages: Sequence[M]) -> list[M]:
    """Return the messages that are not acknowledged yet."""
    return [message for message in messages if not message._is_spent]


def runs_of(messages: Sequence[DeliveredMessage]) -> list[tuple[int, int]]:
    """Return the begin and end of each run: its messages share a receipt, and no offset is between them."""
    runs: list[tuple[int, int]] = []
    receipt: object = None
    begin = index = offset = 0
    for message in messages:
        if message._receipt is not receipt or message.offset != offset:
            if index > begin:
                runs.append((begin, index))
            begin, receipt, offset = index, message._receipt, message.offset
        index += 1
        offset += 1
    if index > begin:
        runs.append((begin, index))
    return runs


def spent_by_receipt(messages: Sequence[DeliveredMessage]) -> list[tuple[Any, int]]:
    """Return the receipts of acknowledged messages in turn, each with the number of messages in turn that share it."""
    runs: list[tuple[Any, int]] = []
    receipt: object = None
    count = 0
    for message in messages:
        if not message._is_spent:
            continue
        if message._receipt is not receipt:
            if count:
                runs.append((receipt, count))
            receipt, count = message._receipt, 0
        count += 1
    if count:
        runs.append((receipt, count))
    return runs


def take_settles(messages: Sequence[DeliveredMessage]) -> list[Settle | None]:
    """Take from messages what is called when they are settled, so that nothing else settles them meanwhile."""
    settles = [message._settle for message in messages]
    for message in messages:
        message._settle = None
    return settles


def restore_settles(messages: Sequence[DeliveredMessage], settles: Sequence[Settle | None]) -> None:
    """Give back to messages that are not acknowledged what `take_settles` took."""
    for message, settle in zip(messages, settles, strict=True):
        if not message._is_spent:
            message._settle = settle
