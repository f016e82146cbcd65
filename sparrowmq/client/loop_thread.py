"""An event loop in a thread of its own. Any thread can give it coroutines, and wait for their results.

    caller    submit ── the door is open ──────────────> result          ClientClosed
                │       the door is shut ─> ClientClosed   ▲                  ▲
    the loop    └──> runs ─────────────────────────────────┴── or is cancelled at the end

The door is shut before the loop ends, and the loop then takes the coroutines that came in before. So no thread waits
for a coroutine that the loop never runs. `start_call` is the same for calls that return a future of the loop: many of
them wake the loop once, and need no task.

The handler of a signal may stop a thread at any line, call the client, and wait for the loop. So the loop never waits
for a lock that a calling thread may hold; only the end of the loop waits for the door, for a second at most.

A future's callbacks run in threads of their own, where they may block and may call the blocking client. A future of
`concurrent.futures` would call them in the loop's thread, where they would stop the client. Source:
ClientConfig.clientCallbackExecutorThreads and NettyRemotingClient.publicExecutor, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from sparrowmq.client.arguments import check_callable
from sparrowmq.client.loop_affinity import forked_error
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ClientClosed, ConfigError, SparrowError

log = logging.getLogger(__name__)
R = TypeVar("R")
T = TypeVar("T")
SHUT_LIMIT_S: Final = 1.0
_CLOSED_TEXT: Final = "the client is closed; use it inside `with sparrowmq.sync.connect(...)`"
_NOT_ENTERED_TEXT: Final = (
    "the client was not entered; use it inside its `with` block: with sparrowmq.sync.connect(...) as mq"
)


class LoopThread:
    """The loop, its thread, and the threads that run callbacks of futures. No thread runs before `start`."""

    def __init__(self, callbacks: Callbacks) -> None:
        self.callbacks = callbacks
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._thread: threading.Thread | None = None
        self._leave = asyncio.Event()
        self._is_open = True
        self._door_lock = threading.RLock()
        self._process = os.getpid()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._calls: deque[tuple[Callable[[], asyncio.Future[Any]], CallFuture[Any]]] = deque()
        self._next_turn = 0  # the number of the next turn that makes calls
        self._woken_turn = -1  # the turn for which the loop was woken
        self._unfinished_futures: set[CallFuture[Any]] = set()

    def start(self) -> None:
        if self.loop is None:
            self._process = os.getpid()
            # A thread that was made before a fork, and not started, counts as ended in the child.
            self._thread = threading.Thread(target=self._run, name="sparrowmq", daemon=True)
            self._thread.start()
            self.loop = self._ready.result()

    @property
    def is_forked(self) -> bool:
        """Return whether the thread runs in the process whose forked child this is."""
        return self.loop is not None and os.getpid() != self._process

    def submit(self, coroutine: Coroutine[Any, Any, R]) -> Future[R]:
        """Start a coroutine. Its future raises ClientClosed if the loop ends first.
        Raises: ClientClosed, the thread has ended, or was not started; ConfigError, this is a forked child of the
        process that has the thread.
        """
        try:
            return self._hand_over(lambda loop: asyncio.run_coroutine_threadsafe(self._run_or_closed(coroutine), loop))
        except SparrowError:
            coroutine.close()
            raise

    def start_call(self, call: Callable[[], asyncio.Future[R]]) -> CallFuture[R]:
        """Call something in the loop, after all that came before; all in one turn. Raises: as `submit`."""
        call_future: CallFuture[R] = CallFuture(self.callbacks, self.call_soon, self._unfinished_futures.discard)

        def add_call(loop: asyncio.AbstractEventLoop) -> None:
            # A signal may stop this at any line. Until the loop was woken, each other call wakes it.
            self._unfinished_futures.add(call_future)
            self._calls.append((call, call_future))
            turn = self._next_turn  # It has not begun, so it makes the call above.
            if self._woken_turn != turn:
                loop.call_soon_threadsafe(self._make_calls)
                self._woken_turn = turn

        self._hand_over(add_call)
        return call_future

    def _hand_over(self, give_to_loop: Callable[[asyncio.AbstractEventLoop], T]) -> T:
        if self.loop is None:
            raise ClientClosed(_NOT_ENTERED_TEXT)
        if self.is_forked:  # In a child another thread may hold the door forever.
            raise forked_error(self._process)
        with self._door_lock:
            if self._is_open and self._thread is not None and self._thread.is_alive():
                with suppress(RuntimeError):  # The handler of a signal has ended the loop meanwhile.
                    result = give_to_loop(self.loop)
                    if not self.loop.is_closed():
                        return result
        raise ClientClosed(_CLOSED_TEXT)

    def _make_calls(self) -> None:
        self._next_turn += 1
        for _ in range(len(self._calls)):  # those that come meanwhile have another turn
            call, call_future = self._calls.popleft()
            if call_future.cancelled():
                call_future.fail(CancelledError())
                continue
            try:
                call_future.follow(call())
            except (SparrowError, TypeError) as error:
                call_future.fail(error)
            except BaseException as error:
                call_future.fail(error)
                self.call_soon(self._make_calls)
                raise

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the loop and return its result. Ctrl-C during the wait cancels the coroutine.

        Raises: ConfigError, called in the thread of the loop, which would wait for itself; ClientClosed, the thread has
        ended, or ends before there is a result.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ConfigError(
                "an asynchronous handler runs in the client's loop and must not call the blocking client, which would "
                "wait forever; make it a plain function, or use `sparrowmq.connect`"
            )
        __tracebackhide__ = True  # pytest leaves this frame out
        call = _Call(lambda: self._run_or_closed(coroutine))
        try:
            self._hand_over(lambda loop: loop.call_soon_threadsafe(call.start_call))
            return call.result()
        except SparrowError as error:
            coroutine.close()
            # As `tracebacks.shortened`; the coroutine has logged its frames.
            raise error.with_traceback(None) from None
        except BaseException:
            self.call_soon(call.cancel)
            raise

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call something in the loop; do nothing if the loop has ended."""
        if self.loop is None or self.is_forked:
            return
        with suppress(RuntimeError):  # The loop is closed. A check before could be wrong a moment later.
            self.loop.call_soon_threadsafe(callback)

    def stop(self) -> None:
        """End the thread. Callbacks that run or wait go on."""
        if self.loop is None or self.is_forked:
            return
        self.call_soon(self._leave.set)
        if self._thread is not None:
            self._thread.join()
        self.callbacks.end()

    def _run(self) -> None:
        try:
            asyncio.run(self._run_until_left())
        finally:  # however the loop has ended
            for call_future in list(self._unfinished_futures):
                call_future.fail(ClientClosed(_CLOSED_TEXT))

    async def _run_until_left(self) -> None:
        self._ready.set_result(asyncio.get_running_loop())
        try:
            await self._leave.wait()
        finally:  # Also of a loop that a SystemExit ends.
            self._is_open = False
            if self._door_lock.acquire(timeout=SHUT_LIMIT_S):  # Those who have passed it give what they have.
                self._door_lock.release()
            await _cancel_all()

    async def _run_or_closed(self, coroutine: Coroutine[Any, Any, R]) -> R:
        try:
            return await coroutine
        except asyncio.CancelledError:
            if self._is_open:
                raise
            raise ClientClosed(_CLOSED_TEXT) from None


class Callbacks:
    """The threads that run callbacks; by default as many as processors. Raises: ConfigError, not from 1 to 1000."""

    def __init__(self, threads: int | None = None) -> None:
        threads = (os.cpu_count() or 1) if threads is None else threads
        if type(threads) is not int or not 1 <= threads <= 1000:
            raise ConfigError(f"callback_threads is a whole number from 1 to 1000, not {shown(threads)}")
        self.threads = threads
        # It starts no thread before a callback comes.
        self._pool = ThreadPoolExecutor(threads, "sparrowmq-callback")

    def call(self, callback: Callable[[Any], object], done: Future[Any]) -> None:
        """Run a callback soon; here and now if the client was left. If the callback raises, the error is logged."""
        try:
            self._pool.submit(callback, done).add_done_callback(_log_failure)
        except RuntimeError:  # The client was left, so there are no threads.
            callback(done)

    def end(self) -> None:
        """Accept no more callbacks; those that were accepted run on."""
        self._pool.shutdown(wait=False)


class CallFuture(Future[R]):
    """A future of threads, which gets the result of a future of the loop. Cancelling it cancels that one. `call_soon`
    calls something in the loop, and `on_end` is called there once this is done.
    """

    def __init__(
        self,
        callbacks: Callbacks,
        call_soon: Callable[[Callable[[], object]], object],
        on_end: Callable[[CallFuture[R]], object],
    ) -> None:
        super().__init__()
        self._callbacks = callbacks
        self._call_soon = call_soon
        self._on_end = on_end
        self._loop_future: asyncio.Future[R] | None = None

    def add_done_callback(self, fn: Callable[[Future[R]], object]) -> None:
        """Call `fn` with this future, in a thread of the client, once it is done. Raises: ConfigError, not callable."""
        check_callable("fn", fn, "a function of one future")
        super().add_done_callback(lambda done: self._callbacks.call(fn, done))

    def cancel(self) -> bool:
        is_cancelled = super().cancel()
        if is_cancelled:
            self._call_soon(self._cancel_inner)
        return is_cancelled

    def follow(self, inner: asyncio.Future[R]) -> None:
        self._loop_future = inner
        inner.add_done_callback(self._take_result)
        if self.cancelled():
            inner.cancel()

    def fail(self, error: BaseException) -> None:
        """End without a future, or before it, in the loop."""
        self._on_end(self)
        if self._loop_future is not None:
            self._loop_future.remove_done_callback(self._take_result)
        if self.set_running_or_notify_cancel():
            self.set_exception(error)

    def _take_result(self, inner: asyncio.Future[R]) -> None:
        self._on_end(self)
        error = None if inner.cancelled() else inner.exception()
        if inner.cancelled():
            super().cancel()
        if not self.set_running_or_notify_cancel():
            return
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(inner.result())

    def _cancel_inner(self) -> None:
        if self._loop_future is not None:
            self._loop_future.cancel()


def _log_failure(future: Future[object]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        log.error("a callback of a send failed", exc_info=error)


class _Call(Generic[R]):
    """A coroutine in the loop, for whose result one thread waits. Unlike a future's, its queue locks out no signal."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, R]]) -> None:
        self._make_coroutine = make
        self._on_end: SimpleQueue[asyncio.Task[R]] = SimpleQueue()
        self._task: asyncio.Task[R] | None = None

    def start_call(self) -> None:
        self._task = asyncio.create_task(self._make_coroutine())
        self._task.add_done_callback(self._on_end.put)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def result(self) -> R:
        """Wait for the result, and return it. Raises: the error of the coroutine; CancelledError of futures."""
        task = self._on_end.get()
        if task.cancelled():
            raise CancelledError
        return task.result()


async def _cancel_all() -> None:
    """End all other tasks, also those that other threads have just submitted."""
    await asyncio.sleep(0)  # They become tasks,
    await asyncio.sleep(0)  # and begin, so that each can say why it ends.
    other_tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in other_tasks:
        task.cancel()
    if other_tasks:
        await asyncio.wait(other_tasks)
