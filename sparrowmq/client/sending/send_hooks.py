"""Hooks of sends: the part of `client/hooks.py` that sees messages leave, and the calls of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from sparrowmq.client.sending.producer_settings import SendCall
from sparrowmq.client.sending.send_result import SendResult
from sparrowmq.errors import SendManyFailed
from sparrowmq.protocol.messages.message import Message

log = logging.getLogger(__name__)

T = TypeVar("T")
Outcome = SendResult | BaseException | None


class SendHooks:
    """Does nothing; override what you want."""

    def before_send(self, message: Message) -> None:
        """The message is about to be packed; its `properties` may be changed here."""

    def before_half(self, message: Message) -> None:
        """The message that begins a transaction is about to be packed; calls `before_send` by default."""
        self.before_send(message)

    def after_send(self, message: Message, outcome: Outcome) -> None:
        """The message was stored, or sending it has failed or was cancelled; None for a one-way message."""


class SendHookCalls:
    """Calls the hooks of a client: once before a message is packed, and once when its outcome is known."""

    def __init__(self, hooks: Sequence[SendHooks]) -> None:
        self._hooks = hooks

    def around(self, sending: SendCall, put: Callable[[SendCall], T], *, is_half: bool = False) -> T:
        """Send a message by `put`, and return what it returns: a future, or the id of a one-way message."""
        own = self._before(sending.message, is_half=is_half)
        try:
            started = put(msgspec.structs.replace(sending, message=own))
        except BaseException as error:
            self._after(own, error)
            raise
        if isinstance(started, asyncio.Future):
            started.add_done_callback(lambda done: self._after(own, _outcome(done)))
        else:
            self._after(own, None)
        return started

    async def around_many(
        self, messages: Iterable[Message], send: Callable[[Iterable[Message]], Awaitable[list[SendResult]]]
    ) -> list[SendResult]:
        """Send many messages; each has its own outcome."""
        seen: list[Message] = []
        outcomes: Sequence[Outcome] = ()
        try:
            outcomes = results = await send(self._before_each(messages, seen))
        except SendManyFailed as error:
            outcomes = error.results
            raise
        except BaseException as error:
            outcomes = [error] * len(seen)
            raise
        finally:
            for message, outcome in zip(seen, outcomes, strict=True):
                self._after(message, outcome)
        return results

    def _before_each(self, messages: Iterable[Message], seen: list[Message]) -> Iterator[Message]:
        for message in messages:
            if isinstance(message, Message):
                message = self._before(message)
                seen.append(message)
            yield message

    def _before(self, message: Message, *, is_half: bool = False) -> Message:
        """A copy of the message, as hooks want it: its sender may send it again."""
        own = replace(message, properties=dict(message.properties))
        called = 0
        try:
            for hook in self._hooks:
                if is_half:
                    hook.before_half(own)
                else:
                    hook.before_send(own)
                called += 1
            own.check()
        except BaseException as error:
            self._after(own, error, called)
            raise
        return own

    def _after(self, message: Message, outcome: Outcome, count: int | None = None) -> None:
        for hook in reversed(self._hooks[:count]):
            try:
                hook.after_send(message, outcome)
            except Exception:
                log.exception("%r failed after a send to %s", hook, message.topic)


def _outcome(done: asyncio.Future[SendResult]) -> SendResult | BaseException:
    if done.cancelled():
        return asyncio.CancelledError()
    return done.exception() or done.result()
