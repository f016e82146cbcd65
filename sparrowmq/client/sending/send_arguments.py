"""The arguments of `send` and its kin, written once: each method takes the typed dictionary that fits it.

    transaction   MessageArguments                           request   RequestArguments
    send_nowait   OnewayArguments                            send, send_soon   SendArguments

`Producer.send` describes each argument. `sending` turns them into a message and its address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypedDict, cast

import msgspec

from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.messages.delay_fields import Delay, wait_of
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.messages.typed_bodies import Body as Body


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


class Sending(msgspec.Struct):
    """A message that a program wants to send, the choice of its queue, and the time limit."""

    message: Message
    fifo: str | None
    queue: MessageQueue | None
    timeout_s: float | None


def sending(
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
) -> Sending:
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
        return Sending(topic, fifo, queue, timeout_s)
    if body is None and not isinstance(topic, str):
        raise InvalidMessage(
            f"{type(topic).__name__} is neither the name of a topic nor a Message; send a received message on by "
            "send(topic, message.body, tag=message.tag, keys=message.keys)"
        )
    if body is None:
        raise InvalidMessage("no body was given; send(topic, body) needs one")
    own = cast(dict[str, str], {} if properties is None else properties)
    level = delay_ms = deliver_at_ms = 0
    if delay is not None or deliver_at is not None or delay_level is not None:
        level, delay_ms, deliver_at_ms = wait_of(delay, deliver_at, delay_level)
    named = () if keys is None else keys
    message = Message(topic, body, tag, named, own, 0, level, True, delay_ms, deliver_at_ms)
    return Sending(message, fifo, queue, timeout_s)
