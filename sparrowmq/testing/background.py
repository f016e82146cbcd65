"""A cluster for synchronous code, in a thread with its own event loop.

    with BackgroundCluster(tmp_path) as cluster:
        subprocess.run(["my-program", "--name-server", cluster.namesrv], check=True)
        cluster.run(ask_the_broker_something())

If a broker fails, the next call of the cluster raises its error, and so does the end of the `with`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sparrowmq.loop.tasks import loop_factory
from sparrowmq.testing.cluster import Cluster

T = TypeVar("T")

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


class BackgroundCluster:
    """A context manager around a `Cluster` in a thread; takes the path and the settings that `Cluster` takes."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self._path = path
        self._settings = settings
        self._thread = ThreadPoolExecutor(1, "sparrowmq-cluster")
        self._started: Future[tuple[Cluster, asyncio.AbstractEventLoop]] = Future()
        self._ended: Future[None] = Future()
        self._stop_requested = asyncio.Event()

    @property
    def namesrv(self) -> str:
        """The name server's address. Raises: RuntimeError outside of `with`."""
        return self.cluster.namesrv

    @property
    def cluster(self) -> Cluster:
        """The cluster itself; its coroutines run in the other thread, by `run`."""
        return self._running()[0]

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = 60.0) -> T:
        """Return the result of a coroutine in the cluster's loop.

        Raises: TimeoutError, it took too long, and was cancelled; RuntimeError, the cluster does not run, or ended
        before the coroutine began.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self._running()[1])
        futures: list[Future[Any]] = [future, self._ended]
        wait(futures, timeout_s, FIRST_COMPLETED)
        try:
            if not future.done() and self._ended.done():
                coroutine.close()
                self._running()
            return future.result(0)
        finally:
            future.cancel()

    def __enter__(self) -> Self:
        self._ended = self._thread.submit(self._run_loop)
        futures: list[Future[Any]] = [self._started, self._ended]
        wait(futures, START_TIMEOUT_S, FIRST_COMPLETED)
        self._running()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(RuntimeError):  # It has ended, perhaps at this very moment.
            self._running()[1].call_soon_threadsafe(self._stop_requested.set)
        try:
            self._ended.result(STOP_TIMEOUT_S)
        finally:
            self._thread.shutdown(wait=False)

    def _running(self) -> tuple[Cluster, asyncio.AbstractEventLoop]:
        if self._ended.done():
            self._ended.result()
        if not self._started.done() or self._ended.done():
            raise RuntimeError("the cluster is not running; use it inside `with BackgroundCluster(...)`")
        return self._started.result()

    def _run_loop(self) -> None:
        async def run_cluster() -> None:
            async with Cluster(self._path, **self._settings) as cluster:
                self._started.set_result((cluster, asyncio.get_running_loop()))
                await self._stop_requested.wait()

        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(run_cluster())
