"""The same without `async`: every call runs in one event-loop thread, and waits for it.

    import sparrowmq.sync

    with sparrowmq.sync.connect("127.0.0.1:9876") as mq:
        mq.send("orders", b"hello")
        with mq.subscribe("orders", group="billing") as orders:
            for msg in orders:
                with msg.process():
                    bill(msg.json())

Each class is made from its asynchronous twin, method by method; names, arguments, results and errors are the
twin's, whose docstrings hold. Any thread may call. Handlers run in threads of their own and may block.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from sparrowmq.client.client import GROUP, Client
from sparrowmq.client.consuming.consumer import Consumer
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.client.consuming.settings import Start
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.settings import ProducerSettings
from sparrowmq.errors import ClientClosed
from sparrowmq.protocol.messages.message import MessageQueue

A = TypeVar("A", covariant=True)
C = TypeVar("C", covariant=True, bound=AbstractAsyncContextManager[Any])
P = ParamSpec("P")
R = TypeVar("R")

PREFETCHED = 100  # messages that one trip to the loop's thread brings


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, name="sparrowmq", daemon=True)
        self._leave = asyncio.Event()
        self._thread.start()
        self.loop = self._ready.result()

    def submit(self, coroutine: Coroutine[Any, Any, R]) -> Future[R]:
        """Start a coroutine there. Raises: ClientClosed."""
        if not self._thread.is_alive():
            coroutine.close()
            raise ClientClosed("the client is closed; use it inside `with sparrowmq.sync.connect(...)`")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Its result; interrupting the wait (Ctrl-C) cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread."""
        self.loop.call_soon_threadsafe(self._leave.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        self._ready.set_result(asyncio.get_running_loop())
        await self._leave.wait()


class Twin(Generic[A]):
    """A blocking object around an asynchronous one."""

    def __init__(self, inner: A, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Twin[A], P], R]:
    """The twin of a coroutine method."""

    @functools.wraps(method)
    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._thread.run(method(self._inner, *args, **kwargs))

    return call


def plain(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[Twin[A], P], R]:
    """The twin of a plain method."""

    @functools.wraps(method)
    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def run() -> R:
            return method(self._inner, *args, **kwargs)

        return self._thread.run(run())

    return call


def starting(
    method: Callable[Concatenate[A, P], Awaitable[R]],
) -> Callable[Concatenate[Twin[A], P], Future[R]]:
    """The twin of a method that returns a future: its future is one of threads."""

    @functools.wraps(method)
    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        async def run() -> R:
            return await method(self._inner, *args, **kwargs)

        return self._thread.submit(run())

    return call


def consuming(
    method: Callable[Concatenate[Client, P], Consumer],
) -> Callable[Concatenate[SyncClient, P], SyncConsumer]:
    """The twin of `Client.subscribe`: handlers are called in threads."""

    @functools.wraps(method)
    def call(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> SyncConsumer:
        consumer = method(self._inner, *args, **kwargs)
        consumer.handle_in_threads()
        return SyncConsumer(consumer, self._thread)

    return call


class _LeftByError(Exception):
    """Tells the asynchronous twin that its block was left by an exception."""


class Context(Twin[C]):
    """A blocking context manager around an asynchronous one, which is entered and left in one task."""

    def __init__(self, inner: C, thread: LoopThread) -> None:
        super().__init__(inner, thread)
        self._leave = asyncio.Event()
        self._is_failed = False
        self._life: Future[None] = Future()

    def __enter__(self) -> Self:
        entered: Future[None] = Future()
        self._life = self._thread.submit(self._live(entered))
        self._life.add_done_callback(functools.partial(_copy_failure, entered))
        try:
            entered.result()
        except BaseException:
            self._life.cancel()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_failed = kind is not None
        self._thread.loop.call_soon_threadsafe(self._leave.set)
        self._life.result()

    async def _live(self, entered: Future[None]) -> None:
        try:
            async with self._inner:
                entered.set_result(None)
                await self._leave.wait()
                if self._is_failed:
                    raise _LeftByError
        except _LeftByError:
            pass


def _copy_failure(to: Future[None], life: Future[None]) -> None:
    if not to.done():
        to.set_exception(life.exception() or ClientClosed("it was closed while it was entered"))


class SyncConsumer(Context[Consumer]):
    """The blocking twin of `Consumer`: iterate over it, from several threads if you like."""

    def __init__(self, inner: Consumer, thread: LoopThread) -> None:
        super().__init__(inner, thread)
        self._fetched: deque[ReceivedMessage] = deque()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while True:
            try:
                yield self._fetched.popleft()
            except IndexError:
                fetched = self.take(PREFETCHED)
                if not fetched:
                    return
                self._fetched.extend(fetched)

    def take(self, max_count: int = 1) -> list[ReceivedMessage]:
        """The next messages: waits for one, and adds what is there already. None when the consumer was left."""
        return self._thread.run(self._take(max_count))

    async def _take(self, max_count: int) -> list[ReceivedMessage]:
        messages = await self._inner.take(max_count)
        for message in messages:
            message.settle_in(self._thread.loop)
        return messages

    subscribe = blocking(Consumer.subscribe)
    unsubscribe = blocking(Consumer.unsubscribe)
    commit = blocking(Consumer.commit)
    closed = blocking(Consumer.closed)

    @property
    def queues(self) -> list[MessageQueue]:
        return self._inner.queues


class SyncPullConsumer(Context[PullConsumer]):
    """The blocking twin of `PullConsumer`."""

    queues = blocking(PullConsumer.queues)
    assign = plain(PullConsumer.assign)
    pause = plain(PullConsumer.pause)
    resume = plain(PullConsumer.resume)
    seek = plain(PullConsumer.seek)
    seek_to_beginning = blocking(PullConsumer.seek_to_beginning)
    seek_to_end = blocking(PullConsumer.seek_to_end)
    seek_to_time = blocking(PullConsumer.seek_to_time)
    position = blocking(PullConsumer.position)
    positions = blocking(PullConsumer.positions)
    committed = blocking(PullConsumer.committed)
    commit = blocking(PullConsumer.commit)
    poll = blocking(PullConsumer.poll)

    @property
    def assigned(self) -> list[MessageQueue]:
        return self._inner.assigned


class SyncProducer(Twin[Producer]):
    """The blocking twin of `Producer`."""

    send = blocking(Producer.send)
    send_soon = starting(Producer.send_soon)
    send_nowait = plain(Producer.send_nowait)
    send_many = blocking(Producer.send_many)
    drain = blocking(Producer.drain)
    flush = blocking(Producer.flush)

    @property
    def unanswered(self) -> int:
        return self._inner.unanswered


class SyncClient(Context[Client]):
    """The blocking twin of `Client`."""

    send = blocking(Client.send)
    send_soon = starting(Client.send_soon)
    send_nowait = plain(Client.send_nowait)
    send_many = blocking(Client.send_many)
    drain = blocking(Client.drain)
    flush = blocking(Client.flush)
    queues = blocking(Client.queues)

    @property
    def unanswered(self) -> int:
        return self._inner.unanswered

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        try:
            return super().__enter__()
        except BaseException:
            self._thread.stop()
            raise

    def producer(self, group: str, settings: ProducerSettings | None = None) -> SyncProducer:
        return SyncProducer(self._inner.producer(group, settings), self._thread)

    def pull_consumer(self, *, group: str, start: Start = "latest", pull_batch: int = 32) -> SyncPullConsumer:
        inner = self._inner.pull_consumer(group=group, start=start, pull_batch=pull_batch)
        return SyncPullConsumer(inner, self._thread)

    subscribe = consuming(Client.subscribe)


def connect(
    namesrv: str | Sequence[str] | None = None,
    *,
    group: str = GROUP,
    instance: str = "DEFAULT",
    client_id: str | None = None,
    settings: ProducerSettings | None = None,
) -> SyncClient:
    """A client of a cluster, for `with`. Arguments and errors are those of `Client`."""
    client = Client(namesrv, group=group, instance=instance, client_id=client_id, settings=settings)
    return SyncClient(client, LoopThread())
