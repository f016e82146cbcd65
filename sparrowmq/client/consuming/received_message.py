"""A message as a consumer gets it, and the ways to settle it.

async with msg.process():       acknowledged at the end; if the block raises, delivered again later, and raised here
    await bill(msg.json())

msg.ack()                       acknowledge it
msg.retry(delay="10s")          deliver it again, here after 10 s
msg.reject("no such customer")  put it into the dead-letter queue, with the reason
msg.extend(60)                  its handler may take 60 s longer
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from itertools import groupby
from operator import attrgetter
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from sparrowmq.client.arguments import check_seconds, check_text, is_stray
from sparrowmq.client.cluster.network import plain_queue
from sparrowmq.client.cluster.replies import Answers
from sparrowmq.client.consuming.retry import FailureRules, Fate, decode_error, is_reject, reject_reason, text_of
from sparrowmq.client.loop_affinity import forked_error
from sparrowmq.errors import ConfigError, InvalidMessage
from sparrowmq.kernel.messages import DeliveredMessage, ack_at_once, deliver
from sparrowmq.loop.tasks import single_error
from sparrowmq.protocol.messages import compression, record
from sparrowmq.protocol.messages.delay_fields import Delay, wait_of
from sparrowmq.protocol.messages.message import MessageQueue, Property, StoredMessage
from sparrowmq.protocol.messages.typed_bodies import Body, encode
from sparrowmq.protocol.names import RETRY, without_namespace

log = logging.getLogger(__name__)
NO_RULES: Final = FailureRules()
_SETTLE_OF: Final = attrgetter("_settle")
_ENDING_ERRORS: Final = (GeneratorExit, KeyboardInterrupt, SystemExit)


class Outcome(Enum):
    """The outcome of a delivered message."""

    DONE = "done"
    RETRY = "retried"
    # It goes to the dead-letter queue.
    REJECTED = "rejected"
    # Its handler was stopped: as RETRY, unless the consumer is being left.
    CANCELLED = "cancelled"


Settle = Callable[[Any, Outcome], object]


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
    def hooks(self) -> Sequence[ConsumeHooks]:
        """They see the message when it is handled by `process`."""

    @property
    def rules(self) -> FailureRules:
        """The rules for the message if `process` fails."""


class Settling:
    """A `Settle` of several messages of one queue."""

    def __call__(self, message: ReceivedMessage, outcome: Outcome) -> None:
        raise NotImplementedError

    def ack_together(self, messages: Sequence[ReceivedMessage]) -> None:
        """Settle several messages as DONE, in one step."""
        raise NotImplementedError


class ConsumeHooks:
    """Does nothing; override what you want. The part of `client/hooks.py` that sees messages being handled."""

    def before_consume(self, messages: Sequence[ReceivedMessage]) -> None:
        """A handler, or a `process()` block, is about to see the messages."""

    def after_consume(self, messages: Sequence[ReceivedMessage], error: BaseException | None) -> None:
        """They were handled; or handling them raised `error`, and they come again."""


@dataclass(frozen=True, slots=True)
class DetachedOwner:
    """The owner of messages that stay valid when their queues move or close."""

    answers: Answers
    is_owned: bool = True
    hooks: Sequence[ConsumeHooks] = ()
    rules: FailureRules = NO_RULES


class ReceivedMessage(DeliveredMessage):
    """A message that was delivered to this program.

    Attributes:
        queue: the queue that it was read from, without the client's namespace; for a retried message a queue of the
            group's retry topic.
        offset: its place in the queue.
        reconsume_times: the number of failed deliveries before this one.
    """

    __slots__ = ()

    def __init__(
        self,
        stored: StoredMessage,
        queue: MessageQueue,
        settle: Settle | None = None,
        owner: Owner | None = None,
        namespace: str = "",
    ) -> None:
        self._begin(stored.queue_offset, stored.store_size, stored.sys_flag, stored.reconsume_times, stored.body)
        self._stored = stored
        self.queue = plain_queue(namespace, queue) if namespace else queue
        self._settle = settle
        self._owner = owner
        self._namespace = namespace

    @property
    def stored(self) -> StoredMessage:
        """Everything that the broker keeps of it."""
        stored: StoredMessage | None = self._stored
        if stored is None:
            stored = self._stored = record.decode(self._record(), check_crc=False)
        return stored

    @property
    def topic(self) -> str:
        """The topic it was sent to, also after retries, without the client's namespace."""
        return without_namespace(self._namespace, self.full_topic) if self._namespace else self.full_topic

    @property
    def full_topic(self) -> str:
        """The topic as brokers know it."""
        topic = self._topic() if self._rest else self.stored.topic
        return self.properties.get(Property.RETRY_TOPIC, topic) if topic.startswith(RETRY) else topic

    @property
    def tag(self) -> str | None:
        return self._tags() if self._rest else self.stored.tags

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

    def _decompressed(self) -> bytes:
        return compression.decompress(self._stored_body, self._sys_flag)

    def _ack_by(self, settle: Settle) -> None:
        settle(self, Outcome.DONE)

    def _deliver_to(self, settle: Settle) -> None:
        self._settle = settle
        self._options = None

    @property
    def _settle_options(self) -> SettleOptions:
        return self._options or NO_OPTIONS

    def __reduce__(self) -> tuple[Callable[..., ReceivedMessage], tuple[object, ...]]:
        """Pickle its content, for another process. The copy cannot be settled or answered, and says so."""
        return _copy, (self.stored, self.queue, self.reconsume_times, self._namespace)

    def __repr__(self) -> str:
        return f"<message {self.msg_id} of {self.topic} at {self.queue} offset {self.offset}>"

    def retry(
        self, delay: Delay | None = None, *, delay_level: int | None = None, suspend_s: float | None = None
    ) -> None:
        """Have it delivered again, to any member of the group. If it is settled already, only the log says so.

        Args:
            delay: "10s" or a timedelta, as in `send`. By default the broker chooses, longer with each failure. Apache's
                brokers take the nearest of their levels. In an ordered consumer it is the pause of the queue.
            delay_level: one of the broker's delay levels instead.
            suspend_s: the pause of the message's queue in an ordered consumer, 10 ms to 30 s; by default the delay, or
                that of its settings, a second.
        Raises: InvalidMessage, ConfigError, an argument is wrong. The message is not settled.
        """
        level, delay_ms, _ = wait_of(delay, None, delay_level)
        if suspend_s is not None:
            check_seconds("suspend_s", suspend_s)
        self._give_back(Outcome.RETRY, SettleOptions(level, delay_ms / 1000 if delay_ms else None, suspend_s))

    def reject(self, reason: str = "rejected") -> None:
        """Put it into the group's dead-letter queue at once: it can never be handled. It is not delivered again.

        Handlers may raise `Reject(reason)` instead. In a broadcast group the message is dropped. The reason is logged,
        and stored in the dead letter's property REJECT_REASON.
        Raises: ConfigError, the reason is no text. The message is not settled.
        """
        check_text("reason", reason)
        self._give_back(Outcome.REJECTED, SettleOptions(reason=reason))

    def _give_back(self, outcome: Outcome, options: SettleOptions) -> None:
        settle, self._settle = self._settle, None
        if settle is None:
            log.warning("%r is not %s: it is settled already, or only a commit settles it", self, outcome.value)
            return
        self._options = options
        settle(self, outcome)

    def extend(self, seconds: float) -> None:
        """Let its handler take so much longer than `handler_timeout_s`, counted once for each call.

        In a batch the longest extension of its messages counts. Without a handler there is no limit to extend.
        Raises: ConfigError, these are no seconds above 0, or the message is a copy.
        """
        check_seconds("seconds", seconds)
        if self._settle is _refuse_copy:
            raise _copy_error(self)
        if self._settle is not None:
            self._options = SettleOptions(extended_s=self._settle_options.extended_s + seconds)

    def _cancel(self) -> None:
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(self, Outcome.CANCELLED)

    def process(self, *, swallow: bool = False) -> Handling:
        """`async with msg.process():` acknowledges at the end. After an exception the message is delivered again.

        A cancellation inside, such as a timeout, has the message delivered again, too. If the whole consumer is being
        left, the next member gets it. With `swallow` an exception is logged, and the program goes on behind the block.
        """
        if self._settle is _refuse_copy:
            raise _copy_error(self)  # before the work of the block, and not after it
        owner = self._owner
        if owner is None:
            return Handling((self,), swallow=swallow)
        return Handling((self,), swallow=swallow, hooks=owner.hooks, rules=owner.rules)

    async def reply(self, body: Body) -> bool:
        """Answer a request: its sender gets the body, which may be any that `send` takes.

        Return whether the sender got the answer; False if it is gone. A sender that has given up drops the answer. A
        program without `async` has `mq.reply(message, body)`.
        Raises: InvalidMessage, the message is no request, or the body is empty; NetworkError, no broker could be
        reached, and the sender may have the answer.
        """
        if self._settle is _refuse_copy:
            raise _copy_error(self)
        answers: Answers | None = self._owner.answers if self._owner is not None else None
        if answers is None:
            raise InvalidMessage(f"{self!r} was not delivered by a consumer, so it cannot be answered here")
        answers.loop_affinity.check()
        return await answers.send_answer(self.stored, self.queue.broker_name, *encode(body))

    @property
    def is_current(self) -> bool:
        """Return whether its queue is still this consumer's. If not, the queue's new owner gets the message."""
        return self._owner is None or bool(self._owner.is_owned)

    def _settle_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let any thread settle it; `loop` is the consumer's."""
        settle = self._settle
        if settle is None:
            return
        process = os.getpid()

        def settle_in_loop(message: ReceivedMessage, outcome: Outcome) -> None:
            if os.getpid() != process:
                message._deliver_to(settle_in_loop)
                raise forked_error(process)
            with suppress(RuntimeError):  # The loop has ended, and the consumer before: the message comes again.
                loop.call_soon_threadsafe(settle, message, outcome)

        self._settle = settle_in_loop


def deliver_from(
    messages: Sequence[ReceivedMessage], queue: MessageQueue, settle: Settle | None, owner: Owner, namespace: str
) -> None:
    """Give the messages of an answer their queue, without the namespace, and their owner."""
    deliver(messages, plain_queue(namespace, queue) if namespace else queue, settle, owner, namespace)


def _copy(stored: StoredMessage, queue: MessageQueue, reconsume_times: int, namespace: str) -> ReceivedMessage:
    message = ReceivedMessage(stored, queue, _refuse_copy, None, namespace)
    message.queue, message.reconsume_times = queue, reconsume_times
    return message


def _refuse_copy(message: ReceivedMessage, _outcome: Outcome) -> None:
    message._deliver_to(_refuse_copy)  # It refuses again.
    raise _copy_error(message)


def _copy_error(message: ReceivedMessage) -> ConfigError:
    return ConfigError(
        f"{message!r} is a copy, from `copy` or a pickle, and only the message itself can be settled or answered: "
        "return what came of it to the program that received it, and settle it there"
    )


class Handling:
    """Settles messages by the outcome of a block of code. `swallow` logs exceptions; `Reject` is never raised."""

    __slots__ = ("_hooks", "_messages", "_rules", "_swallow")

    def __init__(
        self,
        messages: Sequence[ReceivedMessage],
        *,
        swallow: bool = False,
        hooks: Sequence[ConsumeHooks] = (),
        rules: FailureRules = NO_RULES,
    ) -> None:
        self._messages = messages
        self._swallow = swallow
        self._hooks = hooks
        self._rules = rules

    async def __aenter__(self) -> None:
        if self._hooks:
            call_before(self._hooks, self._messages)

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error_type is None and not self._hooks:  # the usual end, with as few calls as it can have
            for message in self._messages:
                message.ack()
            return False
        return self._end(error_type, error, error is not None and is_stray())

    def fail(self, error: BaseException) -> bool:
        """End the block with an error, inside a task. Return whether it is swallowed."""
        return self._end(type(error), error, is_stray())

    def __enter__(self) -> None:
        if self._hooks:
            call_before(self._hooks, self._messages)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._end(error_type, error, is_stray=False)

    def _end(self, error_type: type[BaseException] | None, error: BaseException | None, is_stray: bool) -> bool:
        is_swallowed = False
        if error_type is None:
            for message in self._messages:
                message.ack()
        elif error is not None and is_ending(error, is_stray=is_stray):
            for message in self._messages:
                message._cancel()
        else:
            is_swallowed = self._swallow or is_reject(error)
            if error is not None:
                self._fail(error)
        if self._hooks:
            call_after(self._hooks, self._messages, error)
        return is_swallowed

    def _fail(self, error: BaseException) -> None:
        """Retry or reject the messages that the block has not settled itself."""
        unsettled = [message for message in self._messages if message.is_unsettled]
        fates: dict[Fate, list[ReceivedMessage]] = {}
        for message in unsettled:
            fates.setdefault(fail(message, error, self._rules), []).append(message)
        if is_reject(error) and unsettled:
            log.warning("%s rejects %s: %s", self._rules, unsettled, text_of(single_error(error)))
            return
        if not unsettled:
            fates[_ALREADY_SETTLED] = list(self._messages)
        for fate, messages in fates.items():
            if self._swallow or fate.is_dead:
                _log_failure(self._rules, messages, fate, error)


_ALREADY_SETTLED: Final = Fate(False, "it was settled before, so that changes nothing")


def _log_failure(rules: FailureRules, messages: Sequence[ReceivedMessage], fate: Fate, error: BaseException) -> None:
    """Log a failure: with its traceback, unless the body did not fit, which only its sender can fix."""
    shown = messages[0] if len(messages) == 1 else messages
    if decode_error(error) is None:
        log.error("%s failed to handle %s; %s", rules, shown, fate.words, exc_info=error)
    else:
        reason = " ".join(text_of(single_error(error)).split())
        log.error("%s failed to handle %s; %s: %s", rules, shown, fate.words, reason)


def ack_all(messages: Sequence[ReceivedMessage]) -> None:
    """Acknowledge the messages that are not settled, those of one pull together. To be called in the client's loop."""
    for settle, group in groupby(ack_at_once(messages), _SETTLE_OF):
        others = list(group)
        if isinstance(settle, Settling):
            for message in others:
                message._settle = None
            settle.ack_together(others)
        else:
            for message in others:
                message.ack()


def call_before(hooks: Sequence[ConsumeHooks], messages: Sequence[ReceivedMessage]) -> None:
    for hook in hooks:
        try:
            hook.before_consume(messages)
        except Exception:
            log.exception("%r failed before %s was consumed", hook, messages)


def call_after(hooks: Sequence[ConsumeHooks], messages: Sequence[ReceivedMessage], error: BaseException | None) -> None:
    for hook in reversed(hooks):
        try:
            hook.after_consume(messages, error)
        except Exception:
            log.exception("%r failed after %s was consumed", hook, messages)


def fail(message: ReceivedMessage, error: BaseException, rules: FailureRules) -> Fate:
    """Settle a message whose handler failed. Return what happens to it."""
    failures, retry = message.reconsume_times, rules.retry
    reason = reject_reason(error, failures, retry)
    if reason is not None:
        message.reject(reason)
    else:
        delay_s = retry.delay_s(failures) if retry is not None else None
        message.retry(None if delay_s is None else timedelta(seconds=delay_s))
    return rules.fate(failures, is_rejected=reason is not None)


def is_ending(error: BaseException, *, is_stray: bool) -> bool:
    """Return whether an error ends the task or the program, and so is no failure of a handler.

    A Rust extension that panics, or pytest.fail, raises neither an Exception nor one of these. `is_stray` says that
    nothing has cancelled this task, so a CancelledError comes from what the task awaited.
    """
    endings = _ENDING_ERRORS if is_stray else (*_ENDING_ERRORS, asyncio.CancelledError)
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(endings) is not None
    return isinstance(error, endings)
