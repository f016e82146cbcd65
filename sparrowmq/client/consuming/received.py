"""A message as a consumer gets it, and how its fate is told.

async with msg.process():       acknowledged at the end; if the block raises, delivered again later, and raised here
    await bill(msg.json())

msg.ack()                       done with it
msg.retry(delay="10s")          deliver it again, here after 10 s
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Protocol

import msgspec

from sparrowmq.client.cluster.answers import Answers
from sparrowmq.client.cluster.namespace import plain_queue
from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.messages import compression
from sparrowmq.protocol.messages.delays import Delay, delay_level
from sparrowmq.protocol.messages.message import MessageQueue, Property, StoredMessage, SysFlag
from sparrowmq.protocol.names import RETRY, without_namespace

log = logging.getLogger(__name__)


class Outcome(Enum):
    """What became of a delivered message."""

    DONE = "done"
    RETRY = "retry"
    # Who handled it was stopped: as RETRY, unless that is because its consumer is being left.
    CANCELLED = "cancelled"


Settle = Callable[["ReceivedMessage", Outcome], object]


class Owner(Protocol):
    """Where a message was taken from, as far as the message cares: a `ProcessQueue`."""

    @property
    def is_owned(self) -> bool: ...

    @property
    def answers(self) -> Answers | None:
        """Where answers go."""

    @property
    def hooks(self) -> Sequence[ConsumeHooks]:
        """See the message when it is handled by `process`."""


class ConsumeHooks:
    """Does nothing; override what you want. The part of `client/hooks.py` that sees messages being handled."""

    def before_consume(self, messages: Sequence[ReceivedMessage]) -> None:
        """A handler, or a `process()` block, is about to see the messages."""

    def after_consume(self, messages: Sequence[ReceivedMessage], error: BaseException | None) -> None:
        """They were handled; or handling them raised `error`, and they come again."""


@dataclass(frozen=True, slots=True)
class HandedOut:
    """The owner of messages that stay their taker's whatever becomes of their queues."""

    answers: Answers
    is_owned: bool = True
    hooks: Sequence[ConsumeHooks] = ()


class ReceivedMessage:
    """A message that was delivered to this program.

    Attributes:
        queue: where it was read from, without the client's namespace; for a retried message a queue of the group's
            retry topic.
        stored: everything that the broker keeps of it.
        reconsume_times: how many deliveries failed before this one.
        delay_level: set by `retry`; 0 leaves the delay to the broker, which makes it longer each time.
        suspend_s: set by `retry`; None leaves it to the consumer's settings.
    """

    __slots__ = (
        "_body",
        "_namespace",
        "_owner",
        "_settle",
        "delay_level",
        "queue",
        "reconsume_times",
        "stored",
        "suspend_s",
    )

    def __init__(
        self,
        stored: StoredMessage,
        queue: MessageQueue,
        settle: Settle | None = None,
        owner: Owner | None = None,
        namespace: str = "",
    ) -> None:
        self.stored = stored
        self.queue = plain_queue(namespace, queue) if namespace else queue
        self.reconsume_times = stored.reconsume_times
        self.delay_level = 0
        self.suspend_s: float | None = None
        self._settle = settle
        self._owner = owner
        self._namespace = namespace
        self._body: bytes | None = None if stored.sys_flag & SysFlag.COMPRESSED else stored.body

    # What it says ---------------------------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        """The topic it was sent to, however often it was retried since, without the client's namespace."""
        return without_namespace(self._namespace, self.full_topic) if self._namespace else self.full_topic

    @property
    def full_topic(self) -> str:
        """The topic as brokers know it."""
        stored = self.stored
        if stored.topic.startswith(RETRY):
            return stored.properties.get(Property.RETRY_TOPIC, stored.topic)
        return stored.topic

    @property
    def body(self) -> bytes:
        """The body as it was sent.

        Raises:
            RemoteProtocolError: it was compressed, and is damaged or absurdly large.
        """
        if self._body is None:
            self._body = compression.decompress(self.stored.body, self.stored.sys_flag)
        return self._body

    @property
    def tag(self) -> str | None:
        return self.stored.tags

    @property
    def keys(self) -> list[str]:
        return self.stored.keys

    @property
    def properties(self) -> dict[str, str]:
        """The sender's own properties and RocketMQ's."""
        return self.stored.properties

    @property
    def msg_id(self) -> str:
        """The id that the sender's result had; it stays the same through retries."""
        return self.stored.message_id

    @property
    def offset_msg_id(self) -> str:
        """The id that says where it is stored."""
        return self.stored.offset_id

    @property
    def offset(self) -> int:
        return self.stored.queue_offset

    @property
    def born_timestamp_ms(self) -> int:
        return self.stored.born_timestamp_ms

    @property
    def store_timestamp_ms(self) -> int:
        return self.stored.store_timestamp_ms

    def text(self) -> str:
        """The body as UTF-8 text."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            InvalidMessage: it is not JSON.
        """
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidMessage(f"the body of message {self.msg_id} is not JSON: {error}") from error

    def __repr__(self) -> str:
        return f"<message {self.msg_id} of {self.topic} at {self.queue} offset {self.offset}>"

    # What becomes of it ---------------------------------------------------------------------------------------------

    def ack(self) -> None:
        """Done with it: the group goes on behind it. A second word about a message has no effect."""
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(self, Outcome.DONE)

    def retry(self, delay: Delay | None = None, *, suspend_s: float | None = None) -> None:
        """Have it delivered again, to any member of the group.

        Args:
            delay: when: "10s", a timedelta, or a level of the broker's delays, as `send` takes it; by default the
                broker chooses, longer with each failure. An ordered consumer does not give messages back.
            suspend_s: how long an ordered consumer lets the message's queue wait before it tries again, 10 ms to 30 s;
                by default what its settings say, a second.
        Raises:
            InvalidMessage: brokers have no such delay, or it is no time; nothing is told.
        """
        level = delay_level(delay)
        if suspend_s is not None and not suspend_s > 0:
            raise InvalidMessage(f"suspend_s={suspend_s!r}: give seconds above 0")
        settle, self._settle = self._settle, None
        if settle is not None:
            self.delay_level = level
            self.suspend_s = suspend_s
            settle(self, Outcome.RETRY)

    def cancel(self) -> None:
        """Who handled it was stopped: have it delivered again, unless its consumer is being left just now."""
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(self, Outcome.CANCELLED)

    def process(self, *, swallow: bool = False) -> Handling:
        """`async with msg.process():` acknowledges at the end, or has it delivered again and raises what was raised.

        Cancelled inside, by a timeout for instance, it is delivered again too; when the whole consumer is being left,
        it comes to the next one.

        Args:
            swallow: log what was raised instead, and go on behind the block.
        """
        return Handling((self,), swallow=swallow, hooks=self._owner.hooks if self._owner is not None else ())

    async def reply(self, body: bytes | bytearray | memoryview) -> bool:
        """Answer it: whoever asked by `request` gets the body. A program without `async` has `mq.reply(message, body)`.

        Returns:
            whether the asker has the answer. It has not if it is gone; one that has given up takes it for nothing.
        Raises:
            InvalidMessage: the message asks for no answer, or the body is empty.
            NetworkError: no broker could be asked; whether the asker has the answer is unknown.
        """
        answers = self._owner.answers if self._owner is not None else None
        if answers is None:
            raise InvalidMessage(f"{self!r} was not delivered by a consumer, so it cannot be answered here")
        return await answers.give(self.stored, self.queue.broker_name, bytes(body))

    @property
    def is_current(self) -> bool:
        """Whether its queue is still this consumer's; if not, whoever has the queue now gets the message."""
        return self._owner is None or self._owner.is_owned

    def is_from(self, owner: Owner) -> bool:
        """Whether it was taken from there."""
        return self._owner is owner

    @property
    def is_unsettled(self) -> bool:
        """Whether its fate is still open."""
        return self._settle is not None

    def deliver_to(self, settle: Settle) -> None:
        """Give it (again) to somebody who must tell its fate; called by consumers."""
        self._settle = settle

    def settle_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let its fate be told from any thread; `loop` is the consumer's."""
        settle = self._settle
        if settle is None:
            return

        def tell(message: ReceivedMessage, outcome: Outcome) -> None:
            with suppress(
                RuntimeError
            ):  # The loop has ended, and the consumer before: the message comes again.
                loop.call_soon_threadsafe(settle, message, outcome)

        self._settle = tell


class Handling:
    """Settles messages by how a block of code ended.

    Args:
        swallow: whether exceptions end here, in the log.
        hooks: see the beginning and the end of the block.
    """

    __slots__ = ("_hooks", "_messages", "_swallow")

    def __init__(
        self,
        messages: Sequence[ReceivedMessage],
        *,
        swallow: bool = False,
        hooks: Sequence[ConsumeHooks] = (),
    ) -> None:
        self._messages = messages
        self._swallow = swallow
        self._hooks = hooks

    async def __aenter__(self) -> None:
        if self._hooks:
            self._call_before()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        is_stray = kind is asyncio.CancelledError and _is_stray()
        return self._end(kind, error, is_stray)

    def __enter__(self) -> None:
        if self._hooks:
            self._call_before()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._end(kind, error, is_stray=False)

    def _end(self, kind: type[BaseException] | None, error: BaseException | None, is_stray: bool) -> bool:
        is_swallowed = self._settle(kind, error, is_stray)
        if self._hooks:
            self._call_after(error)
        return is_swallowed

    def _call_before(self) -> None:
        for hook in self._hooks:
            try:
                hook.before_consume(self._messages)
            except Exception:
                log.exception("%r failed before %s was consumed", hook, self._messages)

    def _call_after(self, error: BaseException | None) -> None:
        for hook in reversed(self._hooks):
            try:
                hook.after_consume(self._messages, error)
            except Exception:
                log.exception("%r failed after %s was consumed", hook, self._messages)

    def _settle(self, kind: type[BaseException] | None, error: BaseException | None, is_stray: bool) -> bool:
        if kind is None:
            for message in self._messages:
                message.ack()
            return False
        if not issubclass(kind, Exception) and not is_stray:
            for message in self._messages:
                message.cancel()
            return False
        if self._swallow:
            log.error("handling %s failed; it is delivered again", self._messages, exc_info=error)
        for message in self._messages:
            message.retry()
        return self._swallow


def _is_stray() -> bool:
    """Whether a cancellation is not of this task: it awaited something that another one cancelled."""
    task = asyncio.current_task()
    return task is not None and not task.cancelling()
