"""The workers of a consumer: each takes delivered messages, has them handled and settled, and takes more.

    take -> handler -> ack, or retry if it raised -> take -> ...

An asynchronous handler runs in the loop. A plain one may block, so each worker calls it in a thread of its own.

Their number may change while they work: new workers begin at once, and surplus ones end after their messages.
`handler_timeout` finds handlers that take too long. Source: ConsumeMessageConcurrentlyService with its
updateCorePoolSize, Java 4.9.8. Unlike Java: its incCorePoolSize does nothing.
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
from sparrowmq.client.consuming.handler_thread import in_thread
from sparrowmq.client.consuming.handler_timeout import HandlerTimeout, Worker
from sparrowmq.client.consuming.received_message import (
    ConsumeHooks,
    Handling,
    Outcome,
    ReceivedMessage,
    ack_all,
    call_after,
    call_before,
)
from sparrowmq.client.consuming.retry import text_of
from sparrowmq.client.tracebacks import stack_of
from sparrowmq.errors import ClientClosed, ConfigError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.requests.client_bodies import ConsumeOutcome

log = logging.getLogger(__name__)
TIMED_CALL_INTERVAL: Final = 16  # one of so many calls is timed
SLICE_S: Final = 0.002  # then others have a turn of the loop, even if the handler never waits
CANCEL_LIMIT_S: Final = 1.0
# The outcomes, in Java's words.
CONSUME_SUCCESS: Final = "CR_SUCCESS"
CONSUME_LATER: Final = "CR_LATER"
CONSUME_RAISED: Final = "CR_THROW_EXCEPTION"


class Workers:
    """Calls a handler, several times at once. `on_timed` gets the topic and the seconds of every sixteenth call."""

    def __init__(
        self,
        handler: Callable[[Any], object],
        take: Callable[[int], Awaitable[list[ReceivedMessage]]],
        settings: ConsumerSettings,
        clock: Clock,
        spawn: Spawn,
        *,
        take_nowait: Callable[[int], list[ReceivedMessage]] = lambda _: [],
        hooks: Sequence[ConsumeHooks] = (),
        on_timed: Callable[[str, float], None] | None = None,
    ) -> None:
        self._handler = handler
        self._take = take
        self._take_nowait = take_nowait
        self._settings = settings
        self._rules = replace(settings.rules, handler=name_of(handler))
        self._clock = clock
        self._spawn = spawn
        self._hooks = hooks
        self._on_timed = on_timed
        self._call_count = 0
        self._has_warned_of_result = False
        self._workers: list[Worker] = []
        self._worker_numbers = count(1)

    def start(self, concurrency: int) -> None:
        """Start to take and handle, with so many workers."""
        self.resize(concurrency)
        settings = self._settings
        if (limit_s := settings.handler_timeout_s) is not None:
            timeout = HandlerTimeout(
                limit_s, settings.ordered, self._rules, self._clock, lambda: self._workers, self._replace_expired
            )
            self._spawn(timeout.watch(), f"watch {settings.group}")

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
        running_workers = [worker for worker in self._workers if worker.portion is not None]
        self._workers = []  # None that is cancelled has a successor.
        for task in tasks:
            task.cancel()
        if running_workers:
            fate = "are left running in their threads" if running_workers[0].thread else "are cut short"
            portions = [worker.portion for worker in running_workers]
            log.warning("handlers of group %s %s; these come again: %s", self._settings.group, fate, portions)
        if (pending or grace_s <= 0) and (unending_tasks := await self._wait(tasks, CANCEL_LIMIT_S)):
            stacks = "".join(stack_of(task, None) for task in unending_tasks)
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
        name = f"handle {self._settings.group} {next(self._worker_numbers)}"
        worker = Worker(*in_thread(self._handler, name))
        self._workers.append(worker)
        worker.task = self._spawn(self._work(worker), name)
        worker.task.add_done_callback(lambda _: self._on_end(worker))

    def _on_end(self, worker: Worker) -> None:
        if worker.thread is not None:
            worker.thread.end()
        if worker not in self._workers or worker.task is None:
            return
        is_cancelled = worker.task.cancelled()
        if worker.is_expired or is_cancelled:
            self._workers.remove(worker)
        if worker.is_expired or not is_cancelled:
            return
        # A handler has cancelled its own task, or the program cancels all tasks.
        with suppress(ClientClosed):  # The consumer is ending.
            self._add()
            if worker.portion is not None:
                log.warning("%s was cancelled, not by the consumer; these come again: %s", self._rules, worker.portion)

    async def _work(self, worker: Worker) -> None:
        """Handle messages until there are no more. A handler that does not wait costs no turn of the loop."""
        take, take_nowait, call, size = self._take, self._take_nowait, worker.call, self._settings.batch or 1
        is_single, hooks, rules = self._settings.batch is None, self._hooks, self._rules
        loop = asyncio.get_running_loop() if worker.thread is not None else None
        turn_began = self._clock.monotonic()
        while not worker.is_expired:
            portion = take_nowait(size)
            if not portion:
                portion = await take(size)
                turn_began = self._clock.monotonic()
                if not portion:
                    return
            worker.portion = portion
            if loop is not None:
                for message in portion:
                    message._settle_in(loop)
            self._call_count += 1
            call_began = self._clock.monotonic() if self._call_count % TIMED_CALL_INTERVAL == 1 else None
            if hooks:
                call_before(hooks, portion)
            try:
                result = call(portion[0] if is_single else portion)
                if type(result) is CoroutineType:
                    result = await result
                if result is not None:
                    self._warn_of_result(await await_result(result))
            except BaseException as error:
                cause = worker.timeout_error or error if isinstance(error, asyncio.CancelledError) else error
                if not Handling(portion, swallow=True, hooks=hooks, rules=rules).fail(cause):
                    raise self._error_to_raise(error)  # noqa: B904
            else:
                if size == 1:
                    portion[0].ack()
                else:
                    ack_all(portion)
                if hooks:
                    call_after(hooks, portion, None)
            if call_began is not None and self._on_timed is not None:
                self._on_timed(portion[0].full_topic, self._clock.monotonic() - call_began)
            worker.portion = None
            if (call_began is not None or size > 1) and self._clock.monotonic() - turn_began > SLICE_S:
                await asyncio.sleep(0)
                turn_began = self._clock.monotonic()

    def _error_to_raise(self, error: BaseException) -> BaseException:
        """Return what ends a worker: a group around its cancellation would look like a failure of the consumer."""
        if not isinstance(error, BaseExceptionGroup) or error.subgroup((KeyboardInterrupt, SystemExit)):
            return error
        log.error("%s was cancelled, and has failed, too", self._rules, exc_info=error)
        return asyncio.CancelledError()

    def _warn_of_result(self, result: object) -> None:
        if result is None or result is True or self._has_warned_of_result:
            return
        self._has_warned_of_result = True
        log.warning(
            "%s returned %s, which is ignored, so its message is acknowledged; to have a message"
            " again, raise an error or call its retry()",
            self._rules,
            reprlib.repr(result),
        )

    def _replace_expired(self, worker: Worker) -> None:
        was_expired, worker.is_expired = worker.is_expired, True
        self._workers.remove(worker)
        if worker.task is not None:
            worker.task.cancel()
        if not was_expired:
            self._add()


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
    started_at = clock.monotonic()
    failure_hook = _Failure()
    call, thread = in_thread(handler, f"handle {settings.group} directly")
    try:
        async with Handling((message,), swallow=True, hooks=[failure_hook], rules=rules):
            handling = await_result(call(message if settings.batch is None else [message]))
            await (clock.wait_for(handling, settings.handler_timeout_s) if settings.handler_timeout_s else handling)
    finally:
        if thread is not None:
            thread.end()
    result, remark = CONSUME_SUCCESS, None
    if failure_hook.error is not None:
        result, remark = CONSUME_RAISED, f"{type(failure_hook.error).__name__}, {text_of(failure_hook.error)}"
    elif Outcome.RETRY in outcomes or Outcome.REJECTED in outcomes:
        result, remark = CONSUME_LATER, message._settle_options.reason or None
    duration_ms = round((clock.monotonic() - started_at) * 1000)
    return ConsumeOutcome(result, remark, order=settings.ordered, spent_time_mills=duration_ms)


class _Failure(ConsumeHooks):
    """Remembers the exception of the handler."""

    error: BaseException | None = None

    def after_consume(self, messages: Sequence[ReceivedMessage], error: BaseException | None) -> None:
        self.error = error
