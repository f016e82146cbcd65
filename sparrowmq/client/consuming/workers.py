"""The workers of a consumer: each takes delivered messages, has them handled and settled, and takes more.

    take -> handler -> ack, or retry if it raised -> take -> ...

An asynchronous handler runs in the loop. A plain one may block, so each worker calls it in a thread of its own.

Their number may change while they work: new workers begin at once, and surplus ones end after their messages. One
watcher finds handlers that take too long: it looks at the messages of each worker now and then.
Source: ConsumeMessageConcurrentlyService with its cleanExpireMsg and updateCorePoolSize, Java 4.9.8. Unlike Java: its
client looks at the threads every minute, and its incCorePoolSize does nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import reprlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from types import CoroutineType
from typing import Any, Final

from sparrowmq.client.arguments import is_generator, name_of
from sparrowmq.client.consuming.consumer_settings import ConsumerSettings
from sparrowmq.client.consuming.delivered_message import Outcome
from sparrowmq.client.consuming.handler_thread import HandlerThread, in_thread
from sparrowmq.client.consuming.received_message import (
    ConsumeHooks,
    Handling,
    ReceivedMessage,
    ack_all,
    call_after,
    call_before,
    fail,
)
from sparrowmq.client.consuming.retry import text_of
from sparrowmq.client.tracebacks import stack_of
from sparrowmq.errors import ClientClosed, ConfigError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.requests.client_bodies import ConsumeOutcome

log = logging.getLogger(__name__)
TIMED: Final = 16  # one of so many calls is timed
SLICE_S: Final = 0.002  # then others have a turn of the loop, even if the handler never waits
CHECKS_PER_LIMIT: Final = 10  # looks at each handler within its time limit
CANCELLING_S: Final = 1.0
# The outcomes, in Java's words.
SUCCESS: Final = "CR_SUCCESS"
LATER: Final = "CR_LATER"
RAISED: Final = "CR_THROW_EXCEPTION"


class Workers:
    """Calls a handler, several times at once.

    Args:
        take: returns the next messages, at most so many; none at the end.
        timed: called with the topic and the seconds of every sixteenth call.
    """

    def __init__(
        self,
        handler: Callable[[Any], object],
        take: Callable[[int], Awaitable[list[ReceivedMessage]]],
        settings: ConsumerSettings,
        clock: Clock,
        spawn: Spawn,
        *,
        take_here: Callable[[int], list[ReceivedMessage]] = lambda _: [],
        hooks: Sequence[ConsumeHooks] = (),
        timed: Callable[[str, float], None] | None = None,
    ) -> None:
        self._handler = handler
        self._take = take
        self._take_here = take_here
        self._settings = settings
        self._rules = replace(settings.rules, handler=name_of(handler))
        self._clock = clock
        self._spawn = spawn
        self._hooks = hooks
        self._timed = timed
        self._calls = 0
        self._is_ignoring = False
        self._workers: list[_Worker] = []
        self._numbers = count(1)

    def start(self, concurrency: int) -> None:
        """Start to take and handle, with so many workers."""
        self.resize(concurrency)
        if self._settings.handler_timeout_s is not None:
            self._spawn(self._watch(self._settings.handler_timeout_s), f"watch {self._settings.group}")

    def resize(self, concurrency: int) -> None:
        """Change the number of workers. Running handlers are not stopped."""
        active = [worker for worker in self._workers if not worker.is_expired]
        for _ in range(concurrency - len(active)):
            self._add()
        # The idle ones first: they go at once.
        active.sort(key=lambda worker: worker.portion is not None)
        for worker in active[: max(len(active) - concurrency, 0)]:
            worker.is_expired = True
            if worker.portion is None and worker.task is not None:
                worker.task.cancel()

    async def finish(self, grace_s: float) -> None:
        """Return when running handlers have ended, which have so long to do so; the others are cancelled.

        A handler in a thread that does not end is logged and left running; its messages come again.
        """
        tasks = [worker.task for worker in self._workers if worker.task is not None]
        if not tasks:
            return
        pending: set[asyncio.Task[None]] = set()
        if grace_s > 0:
            pending = await self._wait(tasks, grace_s)
        running = [worker for worker in self._workers if worker.portion is not None]
        self._workers = []  # None that is cancelled has a successor.
        for task in tasks:
            task.cancel()
        if running:
            where = "are left running in their threads" if running[0].thread else "are cut short"
            portions = [worker.portion for worker in running]
            log.warning("handlers of group %s %s; these come again: %s", self._settings.group, where, portions)
        if (pending or grace_s <= 0) and (deaf := await self._wait(tasks, CANCELLING_S)):
            stacks = "".join(stack_of(task, None) for task in deaf)
            log.error(
                "handlers of group %s ignore cancellation, and the consumer waits for them:\n%s",
                self._settings.group,
                stacks,
            )

    async def _wait(self, tasks: list[asyncio.Task[None]], limit_s: float) -> set[asyncio.Task[None]]:
        with suppress(TimeoutError):
            await self._clock.wait_for(asyncio.wait(tasks), limit_s)
        return {task for task in tasks if not task.done()}

    def _add(self) -> None:
        name = f"handle {self._settings.group} {next(self._numbers)}"
        worker = _Worker(*in_thread(self._handler, name))
        self._workers.append(worker)
        worker.task = self._spawn(self._work(worker), name)
        worker.task.add_done_callback(lambda _: self._ended(worker))

    def _ended(self, worker: _Worker) -> None:
        if worker.thread is not None:
            worker.thread.end()
        if worker not in self._workers or worker.task is None:
            return
        if worker.is_expired:
            self._workers.remove(worker)
        elif worker.task.cancelled():
            self._replace(worker)

    def _replace(self, worker: _Worker) -> None:
        """Start another worker: a handler has cancelled its own task, or the program cancels all tasks."""
        self._workers.remove(worker)
        with suppress(ClientClosed):  # The consumer is ending.
            self._add()
            if worker.portion is not None:
                log.warning("%s was cancelled, not by the consumer; these come again: %s", self._rules, worker.portion)

    async def _work(self, worker: _Worker) -> None:
        """Handle messages until there are no more. A handler that does not wait costs no turn of the loop."""
        take, take_here, call, size = self._take, self._take_here, worker.call, self._settings.batch or 1
        is_single, hooks, rules = self._settings.batch is None, self._hooks, self._rules
        loop = asyncio.get_running_loop() if worker.thread is not None else None
        turn = self._clock.monotonic()
        while not worker.is_expired:
            portion = take_here(size)
            if not portion:
                portion = await take(size)
                turn = self._clock.monotonic()
                if not portion:
                    return
            worker.portion = portion
            if loop is not None:
                for message in portion:
                    message._settle_in(loop)
            self._calls += 1
            began = self._clock.monotonic() if self._calls % TIMED == 1 else None
            if hooks:
                call_before(hooks, portion)
            try:
                result = call(portion[0] if is_single else portion)
                if type(result) is CoroutineType:
                    result = await result
                if result is not None:
                    self._ignore(await await_result(result))
            except BaseException as error:
                why = worker.late or error if isinstance(error, asyncio.CancelledError) else error
                if not Handling(portion, swallow=True, hooks=hooks, rules=rules).fail(why):
                    raise self._end_of(error)  # noqa: B904
            else:
                if size == 1:
                    portion[0].ack()
                else:
                    ack_all(portion)
                if hooks:
                    call_after(hooks, portion, None)
            if began is not None and self._timed is not None:
                self._timed(portion[0].full_topic, self._clock.monotonic() - began)
            worker.portion = None
            if (began is not None or size > 1) and self._clock.monotonic() - turn > SLICE_S:
                await asyncio.sleep(0)
                turn = self._clock.monotonic()

    def _end_of(self, error: BaseException) -> BaseException:
        """Return what ends a worker: a group around its cancellation would look like a failure of the consumer."""
        if not isinstance(error, BaseExceptionGroup) or error.subgroup((KeyboardInterrupt, SystemExit)):
            return error
        log.error("%s was cancelled, and has failed, too", self._rules, exc_info=error)
        return asyncio.CancelledError()

    def _ignore(self, result: object) -> None:
        """Say once that what a handler returns decides nothing: in other clients False asks for a retry."""
        if result is None or result is True or self._is_ignoring:
            return
        self._is_ignoring = True
        log.warning(
            "%s returned %s, which is ignored, so its message is acknowledged; to have a message"
            " again, raise an error or call its retry()",
            self._rules,
            reprlib.repr(result),
        )

    async def _watch(self, limit_s: float) -> None:
        while True:
            await self._clock.sleep(limit_s / CHECKS_PER_LIMIT)
            now = self._clock.monotonic()
            for worker in list(self._workers):
                if worker.portion is not worker.seen_portion:
                    worker.seen_portion, worker.seen_since = worker.portion, now
                elif worker.portion is not None:
                    extended_s = limit_s + max(message._settle_options.extended_s for message in worker.portion)
                    if now - worker.seen_since >= extended_s:
                        worker.seen_since = now
                        self._expire(worker, worker.portion, extended_s)

    def _expire(self, worker: _Worker, portion: list[ReceivedMessage], limit_s: float) -> None:
        """Give back the messages of a handler that takes too long. A thread of an ordered one keeps its queue."""
        settings, thread = self._settings, worker.thread
        stack = stack_of(worker.task, thread.ident if thread is not None else None)
        said = "%s has had %s for %g s"
        if settings.ordered and thread is not None:
            log.error(f"{said}, and its queue waits; it is here:\n%s", self._rules, portion, limit_s, stack)
            return
        late = TimeoutError(f"its handler took longer than {limit_s:g} s")
        if settings.ordered:
            worker.late = late  # Later messages of a key wait for the handler's end: only then its own ones fail.
            words = "it is cancelled"
        else:
            fates = [fail(message, late, self._rules).words for message in portion]
            words = ", or ".join(dict.fromkeys(fates))
        log.error(f"{said}; %s; it is here:\n%s", self._rules, portion, limit_s, words, stack)
        was_expired, worker.is_expired = worker.is_expired, True
        self._workers.remove(worker)
        if worker.task is not None:
            worker.task.cancel()
        if not was_expired:
            self._add()


class _Worker:
    """A worker.

    Attributes:
        portion: the messages of its handler; None between handlers.
        call, thread: the handler, and the thread in which it runs if it is plain.
        late: why its messages have failed, if it was cancelled because it took too long.
        seen_portion, seen_since: the portion at the watcher's last look, and the time when it was first seen.
    """

    __slots__ = ("call", "is_expired", "late", "portion", "seen_portion", "seen_since", "task", "thread")

    def __init__(self, call: Callable[[Any], object], thread: HandlerThread | None) -> None:
        self.call = call
        self.thread = thread
        self.portion: list[ReceivedMessage] | None = None
        self.seen_portion: list[ReceivedMessage] | None = None
        self.seen_since = 0.0
        self.late: TimeoutError | None = None
        self.is_expired = False
        self.task: asyncio.Task[None] | None = None


async def await_result(result: object) -> object:
    """Await the result of a handler, if it can be awaited. Raises: ConfigError, it is a generator, so nothing ran."""
    if inspect.isawaitable(result):
        result = await result
    if is_generator(result):
        raise ConfigError(f"the handler returned {result!r}, which nothing runs; write it without `yield`")
    return result


async def deliver_once(
    handler: Callable[[Any], object], message: ReceivedMessage, settings: ConsumerSettings, clock: Clock
) -> ConsumeOutcome:
    """Call a consumer's handler for a message, as its workers would, and return the outcome."""
    outcomes: list[Outcome] = []
    message._deliver_to(lambda _, outcome: outcomes.append(outcome))
    rules = replace(settings.rules, handler=name_of(handler), not_retried="an operator had it handled")
    log.info("group %s handles %r, as an operator wants", settings.group, message)
    started = clock.monotonic()
    failure = _Failure()
    call, thread = in_thread(handler, f"handle {settings.group} directly")
    try:
        async with Handling((message,), swallow=True, hooks=[failure], rules=rules):
            work = await_result(call(message if settings.batch is None else [message]))
            await (clock.wait_for(work, settings.handler_timeout_s) if settings.handler_timeout_s else work)
    finally:
        if thread is not None:
            thread.end()
    result, remark = SUCCESS, None
    if failure.error is not None:
        result, remark = RAISED, f"{type(failure.error).__name__}, {text_of(failure.error)}"
    elif Outcome.RETRY in outcomes or Outcome.REJECTED in outcomes:
        result, remark = LATER, message._settle_options.reason or None
    spent_ms = round((clock.monotonic() - started) * 1000)
    return ConsumeOutcome(result, remark, order=settings.ordered, spent_time_mills=spent_ms)


class _Failure(ConsumeHooks):
    """Remembers the exception of the handler."""

    error: BaseException | None = None

    def after_consume(self, messages: Sequence[ReceivedMessage], error: BaseException | None) -> None:
        self.error = error
