"""The client without `async`: every call runs in one event-loop thread, and waits for its result.

    import sparrowmq.sync

    with sparrowmq.sync.connect("127.0.0.1:9876") as mq:
        mq.send("orders", b"hello")
        with mq.subscribe("orders", group="billing") as orders:
            for msg in orders:
                with msg.process():
                    bill(msg.json())

Each class wraps its asynchronous twin, with the same methods, arguments, results and errors. Any thread may call. Plain
handlers run in threads of their own and may block.
"""

from __future__ import annotations

import asyncio
import functools
import signal
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeAlias, TypeVar, Unpack, overload

from sparrowmq.client.arguments import check_kind, check_names
from sparrowmq.client.client import Client, ClientArguments, K
from sparrowmq.client.consuming.consumer import BatchHandler, Consumer, Handler
from sparrowmq.client.consuming.consumer_settings import PullTuning, QueuesChanged, SimpleTuning, Topics, Tuning
from sparrowmq.client.consuming.handler_thread import listening_in_thread, with_listening_threads
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.handlers import ENDING_SIGNALS, BlockingMiddleware, DeclaredHandlers, F, Options, wait_for_first
from sparrowmq.client.loop_affinity import check_main_thread
from sparrowmq.client.loop_thread import Callbacks, LoopThread
from sparrowmq.client.popping.simple_consumer import SimpleConsumer
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_result import SendResult
from sparrowmq.client.sending.transaction import Transaction
from sparrowmq.client.transaction_checks import Check
from sparrowmq.errors import ClientClosed, ConfigError, SparrowError
from sparrowmq.loop.tasks import ENTERED_TWICE
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.messages.typed_bodies import Body

if TYPE_CHECKING:
    from sparrowmq.admin.blocking_admin import SyncAdmin

A = TypeVar("A", covariant=True)
C = TypeVar("C", covariant=True, bound=AbstractAsyncContextManager[Any])
P = ParamSpec("P")
R = TypeVar("R")
BlockingWork: TypeAlias = "Callable[[SyncClient, threading.Event], object]"
PREFETCHED = 100  # messages that an iterating consumer takes from the loop's thread at once


class Twin(Generic[A]):
    """A blocking object around an asynchronous one."""

    def __init__(self, inner: A, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread


@overload
def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Twin[A], P], R]: ...
@overload
def blocking(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[Twin[A], P], R]: ...
def blocking(method: Any) -> Any:
    """The twin of a method, which runs in the loop's thread; a coroutine method is awaited there."""

    @functools.wraps(method)
    def call(self: Twin[Any], /, *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            result = method(self._inner, *args, **kwargs)
            return await result if asyncio.iscoroutine(result) else result

        return self._thread.run(run())

    return call


def as_thread_future(
    method: Callable[Concatenate[A, P], asyncio.Future[R]],
) -> Callable[Concatenate[Twin[A], P], Future[R]]:
    """The twin of a method that returns a future: its future belongs to threads, and calls back in threads."""

    @functools.wraps(method)
    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        return self._thread.start_call(functools.partial(method, self._inner, *args, **kwargs))

    return call


class _LeftByError(Exception):
    """Leaves the asynchronous twin, because the block of the blocking one has raised an exception."""


class Context(Twin[C]):
    """A blocking context manager around an asynchronous one, which one task enters and leaves."""

    def __init__(self, inner: C, thread: LoopThread, *, owns_thread: bool = False) -> None:
        super().__init__(inner, thread)
        self._owns_thread = owns_thread
        self._leave = asyncio.Event()
        self._is_failed = False
        self._life: Future[None] = Future()
        self._life.set_result(None)  # Not entered is as good as ended.

    def __enter__(self) -> Self:
        if not self._life.done():
            raise ConfigError(ENTERED_TWICE)
        if self._owns_thread:
            self._thread.start()
        entered: Future[None] = Future()
        self._life = self._thread.submit(self._run_until_left(entered))
        self._life.add_done_callback(functools.partial(_pass_on_failure, entered))
        try:
            entered.result()
        except BaseException as error:
            self._life.cancel()
            self._stop_own_thread()
            if isinstance(error, SparrowError):
                raise error.with_traceback(None) from None  # without the frames of the loop's thread
            raise
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_forked:
            return  # The thread, and all that it has open, are the parent's.
        self._is_failed = error_type is not None
        self._thread.call_soon(self._leave.set)
        try:
            self._life.result()
        except ClientClosed:  # It ended with its client. The error of the block says more.
            if error_type is None:
                raise
        finally:
            self._stop_own_thread()

    def _stop_own_thread(self) -> None:
        if self._owns_thread:
            self._thread.stop()

    async def _run_until_left(self, entered: Future[None]) -> None:
        try:
            async with self._inner:
                entered.set_result(None)
                await self._leave.wait()
                if self._is_failed:
                    raise _LeftByError
        except _LeftByError:
            pass


def _pass_on_failure(entered: Future[None], life: Future[None]) -> None:
    if not entered.done():
        failure = None if life.cancelled() else life.exception()
        entered.set_exception(failure or ClientClosed("it was closed while it was entered"))


class SyncTransaction(Context[Transaction]):
    """The blocking twin of `Transaction`."""

    commit = blocking(Transaction.commit)
    rollback = blocking(Transaction.rollback)
    unknown = blocking(Transaction.unknown)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error_type is not None and not issubclass(error_type, Exception) and not self._inner.is_over:
            self.unknown()  # After Ctrl-C only the check can say what the block has done.
        super().__exit__(error_type, error, trace)

    @property
    def result(self) -> SendResult:
        return self._inner.result

    @property
    def msg_id(self) -> str:
        return self._inner.msg_id


def as_blocking_transaction(
    method: Callable[Concatenate[A, P], Transaction],
) -> Callable[Concatenate[Twin[A], P], SyncTransaction]:
    @functools.wraps(method)
    def call(self: Twin[A], /, *args: P.args, **kwargs: P.kwargs) -> SyncTransaction:
        return SyncTransaction(method(self._inner, *args, **kwargs), self._thread)

    return call


class SyncConsumer(Context[Consumer]):
    """The blocking twin of `Consumer`: iterate over it, from several threads if you like."""

    def __init__(self, inner: Consumer, thread: LoopThread) -> None:
        super().__init__(inner, thread)
        self._fetched_messages: deque[ReceivedMessage] = deque()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while True:
            try:
                if self._thread.is_forked:
                    self._fetched_messages.clear()  # The parent handles them.
                message = self._fetched_messages.popleft()
                if message.is_current:
                    yield message
            except IndexError:
                fetched = self.take(PREFETCHED if self._inner._is_quick else 1)
                if not fetched:
                    return
                self._fetched_messages.extend(fetched)

    def take(self, max_count: int = 1) -> list[ReceivedMessage]:
        """Wait for a message, and return it with the others that are here. Return none when the consumer was left."""
        return self._thread.run(_settled_anywhere(lambda: self._inner.take(max_count)))

    subscribe = blocking(Consumer.subscribe)
    unsubscribe = blocking(Consumer.unsubscribe)
    commit = blocking(Consumer.commit)
    closed = blocking(Consumer.closed)

    pause = blocking(Consumer.pause)
    resume = blocking(Consumer.resume)
    seek = blocking(Consumer.seek)
    position = blocking(Consumer.position)
    lag = blocking(Consumer.lag)

    @property
    def queues(self) -> list[MessageQueue]:
        return self._inner.queues

    @property
    def concurrency(self) -> int:
        """The number of threads that handle messages. It can be changed. Raises: ConfigError, as `Consumer`."""
        return self._inner.concurrency

    @concurrency.setter
    def concurrency(self, concurrency: int) -> None:
        async def resize() -> None:
            self._inner.concurrency = concurrency

        self._thread.run(resize())


class SyncPullConsumer(Context[PullConsumer]):
    """The blocking twin of `PullConsumer`."""

    queues = blocking(PullConsumer.queues)
    assign = blocking(PullConsumer.assign)
    subscribe = blocking(PullConsumer.subscribe)
    unsubscribe = blocking(PullConsumer.unsubscribe)
    pause = blocking(PullConsumer.pause)
    resume = blocking(PullConsumer.resume)
    seek = blocking(PullConsumer.seek)
    seek_to_beginning = blocking(PullConsumer.seek_to_beginning)
    seek_to_end = blocking(PullConsumer.seek_to_end)
    seek_to_time = blocking(PullConsumer.seek_to_time)
    offset_at = blocking(PullConsumer.offset_at)
    position = blocking(PullConsumer.position)
    positions = blocking(PullConsumer.positions)
    committed = blocking(PullConsumer.committed)
    commit = blocking(PullConsumer.commit)
    poll = blocking(PullConsumer.poll)
    wakeup = blocking(PullConsumer.wakeup)

    def watch(self, topic: str, changed: QueuesChanged) -> None:
        """As `PullConsumer.watch`; a plain function is called in a thread and may block."""
        self._thread.run(self._inner.watch(topic, listening_in_thread("changed", changed)))

    @property
    def assigned(self) -> list[MessageQueue]:
        return self._inner.assigned


class SyncSimpleConsumer(Context[SimpleConsumer]):
    """The blocking twin of `SimpleConsumer`; any thread may settle the messages."""

    ack = blocking(SimpleConsumer.ack)
    change_invisible = blocking(SimpleConsumer.change_invisible)
    dead_letter = blocking(SimpleConsumer.dead_letter)
    subscribe = blocking(SimpleConsumer.subscribe)
    unsubscribe = blocking(SimpleConsumer.unsubscribe)

    def receive(
        self, max_messages: int = 16, *, invisible_s: float = 30.0, wait_s: float = 20.0
    ) -> list[ReceivedMessage]:
        """As `SimpleConsumer.receive`."""
        receive = functools.partial(self._inner.receive, max_messages, invisible_s=invisible_s, wait_s=wait_s)
        return self._thread.run(_settled_anywhere(receive))


class SyncProducer(Twin[Producer]):
    """The blocking twin of `Producer`."""

    send = blocking(Producer.send)
    send_soon = as_thread_future(Producer.send_soon)
    send_nowait = blocking(Producer.send_nowait)
    send_many = blocking(Producer.send_many)
    recall = blocking(Producer.recall)
    drain = blocking(Producer.drain)
    flush = blocking(Producer.flush)
    transaction = as_blocking_transaction(Producer.transaction)

    @property
    def unanswered(self) -> int:
        return self._inner.unanswered


class SyncClient(Context[Client]):
    """The blocking twin of `Client`."""

    def __init__(self, inner: Client, thread: LoopThread, *, owns_thread: bool = False) -> None:
        super().__init__(inner, thread, owns_thread=owns_thread)
        self._declared_handlers: DeclaredHandlers[SyncConsumer] = DeclaredHandlers(is_blocking=True)
        self._declared_handlers.warn_if_forgotten(self)
        self._asked_to_end = asyncio.Event()
        self._serving_lock = threading.RLock()  # The handler of a signal may leave while its own thread serves.
        self._served_consumers: list[SyncConsumer] = []
        self._start_stack: ExitStack | None = None

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_forked:
            return  # Another thread may have held the lock below when the process was forked.
        self._thread.call_soon(self._asked_to_end.set)
        with self._serving_lock:  # Another thread may serve handlers, which end first.
            for consumer in self._served_consumers:
                consumer.__exit__(error_type, error, trace)
            super().__exit__(error_type, error, trace)

    def start(self, *, serve: bool = False) -> Self:
        """As `Client.start`, for a framework or a server's worker; after a fork, start in the child."""
        with ExitStack() as stack:
            stack.enter_context(self)
            for consumer in self._declared_handlers.consumers() if serve else ():
                stack.enter_context(consumer)
            self._start_stack = stack.pop_all()
        return self

    def close(self) -> None:
        """As `Client.close`; also leaves a client that a `with` block entered, whose end does nothing more then."""
        started, self._start_stack = self._start_stack, None
        if started is not None:
            started.close()
        elif not self._life.done():
            self.__exit__(None, None, None)

    send = blocking(Client.send)
    send_soon = as_thread_future(Client.send_soon)
    send_nowait = blocking(Client.send_nowait)
    send_many = blocking(Client.send_many)
    request = blocking(Client.request)
    recall = blocking(Client.recall)
    drain = blocking(Client.drain)
    flush = blocking(Client.flush)
    queues = blocking(Client.queues)
    transaction = as_blocking_transaction(Client.transaction)

    @property
    def unanswered(self) -> int:
        return self._inner.unanswered

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    def reply(self, message: ReceivedMessage, body: Body) -> bool:
        """Answer a request, as `await message.reply(body)` does."""
        check_kind("message", message, ReceivedMessage, "a message of a consumer, which is a request")
        return self._thread.run(message.reply(body))

    @property
    def admin(self) -> SyncAdmin:
        from sparrowmq.admin.blocking_admin import SyncAdmin  # only operators need it

        return SyncAdmin(self._inner.admin, self._thread)

    def producer(
        self, group: str, settings: ProducerSettings | None = None, *, check: Check | None = None
    ) -> SyncProducer:
        return SyncProducer(self._inner.producer(group, settings, check=check), self._thread)

    def check(
        self, group: str | None = None, *, concurrency: int = 16, waiting: int = 2000, timeout_s: float = 60.0
    ) -> Callable[[K], K]:
        """As `Client.check`. A plain function runs in threads and may block."""
        return self._inner.check(group, concurrency=concurrency, waiting=waiting, timeout_s=timeout_s)

    def pull_consumer(self, *, group: str, **tuning: Unpack[PullTuning]) -> SyncPullConsumer:
        inner = self._inner.pull_consumer(group=group, **with_listening_threads(tuning))
        return SyncPullConsumer(inner, self._thread)

    def simple_consumer(
        self,
        topics: Topics = (),
        *,
        group: str,
        tag: str | None = None,
        where: str | None = None,
        **tuning: Unpack[SimpleTuning],
    ) -> SyncSimpleConsumer:
        inner = self._inner.simple_consumer(topics, group=group, tag=tag, where=where, **tuning)
        return SyncSimpleConsumer(inner, self._thread)

    @overload
    def subscribe(
        self,
        topics: Topics,
        handler: Handler | None = None,
        *,
        group: str,
        tag: str | None = None,
        where: str | None = None,
        batch: None = None,
        **tuning: Unpack[Tuning],
    ) -> SyncConsumer: ...
    @overload
    def subscribe(
        self,
        topics: Topics,
        handler: BatchHandler | None = None,
        *,
        group: str,
        tag: str | None = None,
        where: str | None = None,
        batch: int,
        **tuning: Unpack[Tuning],
    ) -> SyncConsumer: ...
    def subscribe(self, topics: Topics, handler: Any = None, **options: Any) -> SyncConsumer:
        """As `Client.subscribe`. A plain handler runs in `concurrency` threads and may block; an async one runs in the
        client's loop, where it must not call the blocking client.
        """
        consumer = self._inner.subscribe(topics, handler, **with_listening_threads(options))
        return SyncConsumer(consumer, self._thread)

    def handler(self, topics: Topics, *, group: str, **options: Unpack[Options]) -> Callable[[F], F]:
        """As `Client.handler`, for a plain function; it runs in threads and may block."""
        self._inner._check_options(topics, group, options)
        return self._declared_handlers.handler(self.subscribe, topics, group, options)

    def middleware(self, function: BlockingMiddleware) -> BlockingMiddleware:
        """As `Client.middleware`, with a plain function and a plain `call_next`."""
        self._declared_handlers.add_middleware(function)
        return function

    def serve(self) -> None:
        """As `Client.serve`, until another thread or a signal's handler leaves the client, or a consumer fails."""
        self._serve(())

    def _serve(self, work: Sequence[BlockingWork]) -> None:
        for work_function in work:
            self._declared_handlers.check_work(work_function)
        stop, futures = threading.Event(), list[Future[object]]()
        try:
            with self._serving_lock, ThreadPoolExecutor(len(work) or 1) as threads, ExitStack() as stack:
                stack.callback(self._served_consumers.clear)
                stack.callback(stop.set)
                futures += [threads.submit(work_function, self, stop) for work_function in work]
                for future in futures:
                    future.add_done_callback(lambda _: self._thread.call_soon(self._asked_to_end.set))
                for consumer in self._declared_handlers.consumers(or_none=bool(work)):
                    self._served_consumers.append(consumer)
                    stack.enter_context(consumer)

                async def until_one_ends() -> None:
                    await wait_for_first(
                        self._asked_to_end.wait(),
                        *(work_function._inner.closed() for work_function in self._served_consumers),
                    )

                self._thread.run(until_one_ends())
                stop.set()
            for future in futures:
                future.result()
        except ClientClosed:  # as by the handler of a signal while a consumer is entered
            if not self._asked_to_end.is_set():
                raise

    def run(self, *work: BlockingWork) -> None:
        """As `Client.run`; only in the main thread, which gets the signals.

        Each `work` is a plain function, called with this client and a `threading.Event` in a thread of its own.
        """
        check_main_thread()
        handlers_before = {
            number: signal.signal(number, lambda *_: self._thread.call_soon(self._asked_to_end.set))
            for number in ENDING_SIGNALS
        }
        try:
            with self:
                self._serve(work)
        finally:
            for number, handler in handlers_before.items():
                signal.signal(number, handler)


async def _settled_anywhere(receive: Callable[[], Coroutine[Any, Any, list[ReceivedMessage]]]) -> list[ReceivedMessage]:
    messages = await receive()
    for message in messages:
        message._settle_in(asyncio.get_running_loop())
    return messages


def connect(
    namesrv: str | Sequence[str] | None = None,
    *,
    callback_threads: int | None = None,
    **arguments: Unpack[ClientArguments],
) -> SyncClient:
    """A client of a cluster, for `with`. Arguments and errors are those of `Client`; `callback_threads` is the number
    of threads for the callbacks of `send_soon`'s futures.
    """
    check_names("connect", arguments, ClientArguments, "namesrv", "callback_threads")
    callbacks = Callbacks(callback_threads)
    return SyncClient(Client(namesrv, **arguments), LoopThread(callbacks), owns_thread=True)
