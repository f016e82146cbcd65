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

    def around(self, call: SendCall, put: Callable[[SendCall], T], *, is_half: bool = False) -> T:
        """Send a message by `put`, and return what it returns: a future, or the id of a one-way message."""
        own_message = self._before(call.message, is_half=is_half)
        try:
            future_or_id = put(msgspec.structs.replace(call, message=own_message))
        except BaseException as error:
            self._after(own_message, error)
            raise
        if isinstance(future_or_id, asyncio.Future):
            future_or_id.add_done_callback(lambda future: self._after(own_message, _outcome(future)))
        else:
            self._after(own_message, None)
        return future_or_id

    async def around_many(
        self, messages: Iterable[Message], send: Callable[[Iterable[Message]], Awaitable[list[SendResult]]]
    ) -> list[SendResult]:
        """Send many messages; each has its own outcome."""
        hooked_messages: list[Message] = []
        outcomes: Sequence[Outcome] = ()
        try:
            outcomes = results = await send(self._before_each(messages, hooked_messages))
        except SendManyFailed as error:
            outcomes = error.results
            raise
        except BaseException as error:
            outcomes = [error] * len(hooked_messages)
            raise
        finally:
            for message, outcome in zip(hooked_messages, outcomes, strict=True):
                self._after(message, outcome)
        return results

    def _before_each(self, messages: Iterable[Message], hooked_messages: list[Message]) -> Iterator[Message]:
        for message in messages:
            if isinstance(message, Message):
                message = self._before(message)
                hooked_messages.append(message)
            yield message

    def _before(self, message: Message, *, is_half: bool = False) -> Message:
        """A copy of the message, as hooks want it: its sender may send it again."""
        own_message = replace(message, properties=dict(message.properties))
        called_count = 0
        try:
            for hook in self._hooks:
                if is_half:
                    hook.before_half(own_message)
                else:
                    hook.before_send(own_message)
                called_count += 1
            own_message.check()
        except BaseException as error:
            self._after(own_message, error, called_count)
            raise
        return own_message

    def _after(self, message: Message, outcome: Outcome, count: int | None = None) -> None:
        for hook in reversed(self._hooks[:count]):
            try:
                hook.after_send(message, outcome)
            except Exception:
                log.exception("%r failed after a send to %s", hook, message.topic)


def _outcome(future: asyncio.Future[SendResult]) -> SendResult | BaseException:
    if future.cancelled():
        return asyncio.CancelledError()
    return future.exception() or future.result()
