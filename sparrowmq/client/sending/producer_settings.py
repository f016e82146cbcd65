"""The settings of a producer, and the arguments of its sends.

Each method takes the typed dictionary that fits it; `Producer.send` describes each argument:

    transaction   MessageArguments                           request   RequestArguments
    send_nowait   OnewayArguments                            send, send_soon   SendArguments
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Final, TypedDict, cast

import msgspec

from sparrowmq.client.arguments import check_count, check_flag, check_text
from sparrowmq.errors import ConfigError, InvalidMessage, InvalidName
from sparrowmq.protocol.messages.delay_fields import Delay, wait_of
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.messages.typed_bodies import Body as Body
from sparrowmq.protocol.names import DEFAULT_PRODUCER_GROUP, check_group

# The producer group of a program that names none. Programs share it, so none of them may answer for its transactions.
DEFAULT_GROUP: Final = "SPARROWMQ_PRODUCER"
OWN_GROUP: Final = (
    "a transaction needs a producer group of its own, because a broker asks any program of the group how the "
    'transaction ended; name one when you connect: sparrowmq.connect(..., group="payments")'
)


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings of a producer. The names in brackets are Java's."""

    timeout_s: float = 3.0
    """Time limit of one message with all its attempts, from when it is in the window (sendMsgTimeout)."""
    retries: int = 2
    """Attempts after the first one (retryTimesWhenSendFailed)."""
    idempotent: bool = False
    """Whether a message whose answer was lost is only sent again to the same broker, which stores it once, until its
    time limit. Otherwise the next attempt may go to another broker, which stores it a second time. Brokers of Apache
    cannot do this: to them, messages are sent as without it."""
    retry_not_stored: bool = False
    """Whether to retry also a message that was stored less safely than the broker is configured to
    (retryAnotherBrokerWhenNotStoreOK)."""
    avoid_slow_brokers: bool = False
    """Whether to avoid brokers for a while that were slow or failed (sendLatencyFaultEnable)."""
    max_bytes: int = 4 * 1024 * 1024
    """Largest body (maxMessageSize); brokers have their own limit, which must be raised too."""
    compress_over_bytes: int = 4096
    """Size above which bodies are compressed with zlib (compressMsgBodyOverHowmuch)."""
    max_batch: int = 128
    """Messages that travel together, if they wait in the same turn of the loop (autoBatch); 1 sends each alone."""
    window: int = 512
    """Messages in flight."""
    window_bytes: int = 2 * 1024 * 1024
    """Bytes of bodies in flight. They are below the limit at which a connection stops reading, so that
    answers always arrive."""
    waiting_bytes: int = 256 * 1024 * 1024
    """Bytes of messages that wait for the window; more are refused."""

    def __post_init__(self) -> None:
        check_timeout(self.timeout_s)
        for name in ("max_bytes", "max_batch", "window", "window_bytes", "waiting_bytes"):
            check_count(name, getattr(self, name))
        for name in ("idempotent", "retry_not_stored", "avoid_slow_brokers"):
            check_flag(name, getattr(self, name))
        for name in ("retries", "compress_over_bytes"):
            check_count(name, getattr(self, name), at_least=0)


def check_timeout(timeout_s: object) -> float:
    """Return the time limit. Raises: ConfigError."""
    if isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool) and 0 < timeout_s < inf:
        return timeout_s
    raise ConfigError(
        f"timeout_s={timeout_s!r}: give seconds above 0; to wait for nothing there are send_soon and send_nowait"
    )


def check_producer_group(group: str) -> str:
    """Return the group, which a program may use. Raises: ConfigError, InvalidName."""
    check_text("group", group)
    if check_group(group) == DEFAULT_PRODUCER_GROUP:
        raise InvalidName(f"producer group {group} is reserved; choose the name of your application")
    return group


class MessageArguments(TypedDict, total=False):
    """The parts of a message besides topic and body."""

    tag: str | None
    keys: str | Sequence[str] | None
    properties: Mapping[str, str] | None


class RequestArguments(MessageArguments, total=False):
    """Also the choice of its queue."""

    fifo: str | None
    queue: MessageQueue | None


class OnewayArguments(RequestArguments, total=False):
    """Also the time of its delivery."""

    delay: Delay | None
    delay_level: int | None
    deliver_at: datetime | None


class SendArguments(OnewayArguments, total=False):
    """Also the time limit of the send."""

    timeout_s: float | None


class SendCall(msgspec.Struct):
    """A message that a program wants to send, the choice of its queue, and the time limit."""

    message: Message
    fifo: str | None
    queue: MessageQueue | None
    timeout_s: float | None


def make_send_call(
    topic: str | Message,
    body: Body | None = None,
    *,
    tag: str | None = None,
    keys: str | Sequence[str] | None = (),
    properties: Mapping[str, str] | None = None,
    fifo: str | None = None,
    queue: MessageQueue | None = None,
    delay: Delay | None = None,
    delay_level: int | None = None,
    deliver_at: datetime | None = None,
    timeout_s: float | None = None,
) -> SendCall:
    """The message that the arguments of a send describe. Raises: InvalidMessage."""
    if isinstance(topic, Message):
        if (
            body is not None
            or tag
            or keys
            or properties
            or delay is not None
            or delay_level is not None
            or deliver_at is not None
        ):
            raise InvalidMessage("a whole Message was given; put body, tag, keys, properties and delay into it")
        topic.check()
        return SendCall(topic, fifo, queue, timeout_s)
    if body is None and not isinstance(topic, str):
        raise InvalidMessage(
            f"{type(topic).__name__} is neither the name of a topic nor a Message; send a received message on by "
            "send(topic, message.body, tag=message.tag, keys=message.keys)"
        )
    if body is None:
        raise InvalidMessage("no body was given; send(topic, body) needs one")
    own_properties = cast(dict[str, str], {} if properties is None else properties)
    delay_level_found = delay_ms = deliver_at_ms = 0
    if delay is not None or deliver_at is not None or delay_level is not None:
        delay_level_found, delay_ms, deliver_at_ms = wait_of(delay, deliver_at, delay_level)
    keys_or_none = () if keys is None else keys
    message = Message(
        topic, body, tag, keys_or_none, own_properties, 0, delay_level_found, True, delay_ms, deliver_at_ms
    )
    return SendCall(message, fifo, queue, timeout_s)
