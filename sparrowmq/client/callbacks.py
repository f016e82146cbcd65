"""Futures whose callbacks run in threads of their own, where they may block and may call the blocking client.

    mq.send_soon("orders", b"paid").add_done_callback(lambda sent: database.note(sent.result().msg_id))

A future of `concurrent.futures` would call them in the loop's thread, where they would stop the client. There are as
many threads as processors by default, and none before the first callback.
Source: ClientConfig.clientCallbackExecutorThreads and NettyRemotingClient.publicExecutor, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from sparrowmq.client.arguments import check_callable
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ConfigError

log = logging.getLogger(__name__)

R = TypeVar("R")


class Callbacks:
    """The threads that run callbacks.

    Args:
        threads: how many run callbacks at once; by default as many as there are processors.
    Raises:
        ConfigError: not a whole number from 1 to 1000.
    """

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
            self._pool.submit(callback, done).add_done_callback(_tell)
        except RuntimeError:  # The client was left, so there are no threads.
            callback(done)

    def end(self) -> None:
        """Accept no more callbacks; those that were accepted run on."""
        self._pool.shutdown(wait=False)


class Started(Future[R]):
    """A future of threads, which gets the result of a future of the loop. Cancelling it cancels that one.

    Args:
        soon: calls something in the loop.
        ended: is called in the loop once this is done.
    """

    def __init__(
        self,
        callbacks: Callbacks,
        soon: Callable[[Callable[[], object]], object],
        ended: Callable[[Started[R]], object],
    ) -> None:
        super().__init__()
        self._callbacks = callbacks
        self._soon = soon
        self._ended = ended
        self._inner: asyncio.Future[R] | None = None

    def add_done_callback(self, fn: Callable[[Future[R]], object]) -> None:
        """Call `fn` with this future, in a thread of the client, once it is done. Raises: ConfigError, not callable."""
        check_callable("fn", fn, "a function of one future")
        super().add_done_callback(lambda done: self._callbacks.call(fn, done))

    def cancel(self) -> bool:
        is_cancelled = super().cancel()
        if is_cancelled:
            self._soon(self._cancel_inner)
        return is_cancelled

    def follow(self, inner: asyncio.Future[R]) -> None:
        """Take the result of a future, in its loop."""
        self._inner = inner
        inner.add_done_callback(self._take)
        if self.cancelled():
            inner.cancel()

    def fail(self, error: BaseException) -> None:
        """End without a future, or before it, in the loop."""
        self._ended(self)
        if self._inner is not None:
            self._inner.remove_done_callback(self._take)
        if self.set_running_or_notify_cancel():
            self.set_exception(error)

    def _take(self, inner: asyncio.Future[R]) -> None:
        self._ended(self)
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
        if self._inner is not None:
            self._inner.cancel()


def _tell(called: Future[object]) -> None:
    if not called.cancelled() and (error := called.exception()) is not None:
        log.error("a callback of a send failed", exc_info=error)
