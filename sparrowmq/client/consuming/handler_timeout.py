"""The time limit of handlers: the setting `handler_timeout_s`, 15 minutes by default.

The messages of each worker are looked at ten times within the limit. A handler that takes too long is logged with its
stack. Its messages are given back, it is cancelled, and a new worker takes its place. A thread cannot be cancelled:
it runs on, and an ordered handler in a thread keeps its messages. `ReceivedMessage.extend` adds time.
Source: ConsumeMessageConcurrentlyService.cleanExpireMsg, Java 4.9.8, which looks every minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from sparrowmq.client.consuming.handler_thread import HandlerThread
from sparrowmq.client.consuming.received_message import ReceivedMessage, fail
from sparrowmq.client.consuming.retry import FailureRules
from sparrowmq.client.tracebacks import stack_of
from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)
CHECKS_PER_LIMIT: Final = 10


class Worker:
    """A worker of a consumer.

    Attributes:
        portion: the messages of its handler; None between handlers.
        call, thread: the handler, and the thread in which it runs if it is plain.
        timeout_error: why its messages have failed, if it was cancelled because it took too long.
        checked_portion, checked_since: the portion at the last check, and the time when it was first found.
    """

    __slots__ = ("call", "checked_portion", "checked_since", "is_expired", "portion", "task", "thread", "timeout_error")

    def __init__(self, call: Callable[[Any], object], thread: HandlerThread | None) -> None:
        self.call = call
        self.thread = thread
        self.portion: list[ReceivedMessage] | None = None
        self.checked_portion: list[ReceivedMessage] | None = None
        self.checked_since = 0.0
        self.timeout_error: TimeoutError | None = None
        self.is_expired = False
        self.task: asyncio.Task[None] | None = None


class HandlerTimeout:
    """Finds handlers that take longer than the limit. `replace` ends a worker, and begins another one."""

    def __init__(
        self,
        limit_s: float,
        is_ordered: bool,
        rules: FailureRules,
        clock: Clock,
        workers: Callable[[], Sequence[Worker]],
        replace: Callable[[Worker], None],
    ) -> None:
        self._limit_s = limit_s
        self._is_ordered = is_ordered
        self._rules = rules
        self._clock = clock
        self._workers = workers
        self._replace = replace

    async def watch(self) -> None:
        """Check all handlers until cancelled."""
        while True:
            await self._clock.sleep(self._limit_s / CHECKS_PER_LIMIT)
            now = self._clock.monotonic()
            for worker in list(self._workers()):
                if worker.portion is not worker.checked_portion:
                    worker.checked_portion, worker.checked_since = worker.portion, now
                elif worker.portion is not None:
                    extensions_s = [message._settle_options.extended_s for message in worker.portion]
                    limit_s = self._limit_s + max(extensions_s)
                    if now - worker.checked_since >= limit_s:
                        worker.checked_since = now
                        self._expire(worker, worker.portion, limit_s)

    def _expire(self, worker: Worker, portion: list[ReceivedMessage], limit_s: float) -> None:
        thread = worker.thread
        stack = stack_of(worker.task, thread.ident if thread is not None else None)
        text = "%s has had %s for %g s"
        if self._is_ordered and thread is not None:
            log.error(f"{text}, and its queue waits; it is here:\n%s", self._rules, portion, limit_s, stack)
            return
        error = TimeoutError(f"its handler took longer than {limit_s:g} s")
        if self._is_ordered:
            worker.timeout_error = error  # Later messages of a key wait for the handler's end: only then its own fail.
            fates = "it is cancelled"
        else:
            fates = ", or ".join(dict.fromkeys(fail(message, error, self._rules).words for message in portion))
        log.error(f"{text}; %s; it is here:\n%s", self._rules, portion, limit_s, fates, stack)
        self._replace(worker)
