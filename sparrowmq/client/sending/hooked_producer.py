"""A producer whose messages hooks see. Who has none has the plain one, and pays nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from sparrowmq.client.sending.outbox import Outbox
from sparrowmq.client.sending.outcome import SendResult
from sparrowmq.client.sending.producer import NextId, Producer
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_hooks import SendHooks
from sparrowmq.client.sending.transaction import Ends
from sparrowmq.errors import SendManyFailed
from sparrowmq.protocol.messages.message import Message, MessageQueue

log = logging.getLogger(__name__)

Outcome = SendResult | BaseException | None


class WatchedProducer(Producer):
    """Tells hooks of each message: once before it is packed, and once what became of it."""

    def __init__(
        self,
        group: str,
        outbox: Outbox,
        next_id: NextId,
        settings: ProducerSettings,
        ends: Ends,
        namespace: str = "",
        *,
        hooks: Sequence[SendHooks],
    ) -> None:
        super().__init__(group, outbox, next_id, settings, ends, namespace)
        self._hooks = hooks

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        fifo: str | None = None,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        announced: list[Message] = []
        outcomes: Sequence[Outcome] = ()
        try:
            outcomes = results = await super().send_many(
                self._announcing(messages, announced), fifo=fifo, queue=queue, timeout_s=timeout_s
            )
        except SendManyFailed as error:
            outcomes = error.results
            raise
        except BaseException as error:
            outcomes = [error] * len(announced)
            raise
        finally:
            for message, outcome in zip(announced, outcomes, strict=True):
                self._tell(message, outcome)
        return results

    def _announcing(self, messages: Iterable[Message], announced: list[Message]) -> Iterator[Message]:
        for message in messages:
            if isinstance(message, Message):
                message = self._announce(message)
                announced.append(message)
            yield message

    def _start(
        self,
        message: Message,
        fifo: str | None,
        queue: MessageQueue | None,
        timeout_s: float | None,
        *,
        is_awaited: bool = False,
    ) -> asyncio.Future[SendResult]:
        start = super()._start
        return self._watch(message, lambda own: start(own, fifo, queue, timeout_s, is_awaited=is_awaited))

    def _start_half(self, message: Message, timeout_s: float | None) -> asyncio.Future[SendResult]:
        start = super()._start_half
        return self._watch(message, lambda own: start(own, timeout_s), is_half=True)

    def _watch(
        self,
        message: Message,
        start: Callable[[Message], asyncio.Future[SendResult]],
        *,
        is_half: bool = False,
    ) -> asyncio.Future[SendResult]:
        own = self._announce(message, is_half=is_half)
        try:
            future = start(own)
        except BaseException as error:
            self._tell(own, error)
            raise
        future.add_done_callback(lambda done: self._tell(own, _outcome(done)))
        return future

    def _start_oneway(self, message: Message, fifo: str | None, queue: MessageQueue | None) -> str:
        own = self._announce(message)
        outcome: BaseException | None = None
        try:
            return super()._start_oneway(own, fifo, queue)
        except BaseException as error:
            outcome = error
            raise
        finally:
            self._tell(own, outcome)

    def _announce(self, message: Message, *, is_half: bool = False) -> Message:
        """The message as hooks want it: a copy, for its sender may send it again."""
        own = replace(message, properties=dict(message.properties))
        told = 0
        try:
            for hook in self._hooks:
                if is_half:
                    hook.before_half(own)
                else:
                    hook.before_send(own)
                told += 1
            own.check()
        except BaseException as error:
            self._tell(own, error, told)
            raise
        return own

    def _tell(self, message: Message, outcome: Outcome, count: int | None = None) -> None:
        """What became of it, to the first `count` hooks; to all by default."""
        for hook in reversed(self._hooks[:count]):
            try:
                hook.after_send(message, outcome)
            except Exception:
                log.exception("%r failed after a send to %s", hook, message.topic)


def _outcome(done: asyncio.Future[SendResult]) -> SendResult | BaseException:
    if done.cancelled():
        return asyncio.CancelledError()
    return done.exception() or done.result()
