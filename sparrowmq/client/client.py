"""The client of a cluster, with which every program begins.

    async with sparrowmq.connect("127.0.0.1:9876") as mq:
        result = await mq.send("orders", b"hello", tag="paid")
        async with mq.subscribe("orders", group="billing") as orders:
            async for msg in orders:
                ...

It holds the network that its producers and consumers share, and a producer of its own for `mq.send`.
Source: MQClientInstance, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from functools import partial, wraps
from math import ceil
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    ParamSpec,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from sparrowmq.client import tracing
from sparrowmq.client.arguments import check_handler, check_kind, check_names, is_stray
from sparrowmq.client.cluster.credentials import Credentials, Tls
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.consumer import BatchHandler, Consumer, Handler
from sparrowmq.client.consuming.consumer_settings import (
    ConsumerSettings,
    PullSettings,
    PullTuning,
    SimpleSettings,
    SimpleTuning,
    Topics,
    Tuning,
    full_names,
    subscriptions,
)
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.consuming.received_message import ConsumeHooks, ReceivedMessage
from sparrowmq.client.handlers import DeclaredHandlers, F, Middleware, Options, run_until_signalled, wait_for_first
from sparrowmq.client.hooks import Hooks, check_hooks
from sparrowmq.client.loop_affinity import check_asyncio, check_main_thread, checks_loop, running_loop
from sparrowmq.client.popping.pop_consumer import PopConsumer
from sparrowmq.client.popping.simple_consumer import SimpleConsumer
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.producer_settings import (
    DEFAULT_GROUP,
    OWN_GROUP,
    Body,
    ProducerSettings,
    RequestArguments,
    SendCall,
    check_producer_group,
    check_timeout,
    make_send_call,
)
from sparrowmq.client.sending.send_hooks import SendHooks
from sparrowmq.client.sending.send_queue import FLUSH_LIMIT_S, SendQueues
from sparrowmq.client.sending.transaction import EndRetries, OnEnd, TransactionEnds
from sparrowmq.client.tracebacks import short_tracebacks
from sparrowmq.client.tracing import Tracing
from sparrowmq.client.transaction_checks import Check, Checks, CheckSettings
from sparrowmq.errors import ConfigError, InvalidMessage, RequestTimeout, SendFailed, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import ENTERED_TWICE
from sparrowmq.protocol.messages.message import Message, MessageQueue, Property, StoredMessage
from sparrowmq.protocol.names import INNER_PRODUCER_GROUP, TRACE_TOPIC, check_topic
from sparrowmq.protocol.requests.headers import UnregisterClient
from sparrowmq.protocol.subscription import Subscription

if TYPE_CHECKING:
    from sparrowmq.admin.admin import Admin

REQUEST_TIMEOUT_S: Final = 3.0
_PRODUCER_METHODS: Final = ("send", "send_soon", "send_nowait", "send_many", "transaction", "drain")
Work: TypeAlias = "Callable[[Client, asyncio.Event], Awaitable[object]]"
K = TypeVar("K", bound=Check)
P = ParamSpec("P")
R = TypeVar("R")


def delegate_to_producer(method: Callable[Concatenate[Producer, P], R]) -> Callable[Concatenate[Client, P], R]:

    @wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(self._producer, *args, **kwargs)

    return call


@short_tracebacks
@checks_loop("request", "flush", "queues", "serve")
class Client:
    """A program's client of a cluster; use it as an async context manager.

    Entering returns at once, even if no server can be reached: the client connects when it needs a connection, and
    reconnects. Leaving waits at most 10 s for the answers of messages that were sent. After an exception or a
    cancellation it does not wait.

    Args:
        namesrv: name servers as "host:port;host:port" or a list, or the URL of an address server; by default
            the environment's NAMESRV_ADDR. Without a port it is 9876.
        group: the producer group of the client's own sends. Transactions need one.
        instance: keeps programs on one machine apart in the files of broadcast offsets.
        client_id: its name at brokers; by default a new one each time.
        settings: of the client's own sends.
        credentials: of the user, for brokers with ACL.
        tls: encrypts the connections to name servers and brokers. True trusts this machine's certificates; an
            `ssl.SSLContext` or the `Path` of a tls.properties file has its own settings.
        namespace: keeps topics and groups apart from those of other namespaces. Brokers know them as `namespace%name`;
            this program uses `name` everywhere, and may use the full name.
        hooks: see every message before and after it is sent or consumed, and every connection that begins or ends.
        trace: report sent and consumed messages to the trace topic, so that `admin.trace` and dashboards show them.
            True is the brokers' own topic (traceTopicEnable); a text names another topic.
    Raises: ConfigError, an address or `tls` is invalid.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        instance: str = "DEFAULT",
        client_id: str | None = None,
        settings: ProducerSettings | None = None,
        credentials: Credentials | None = None,
        tls: Tls = False,
        namespace: str = "",
        hooks: Sequence[Hooks] = (),
        trace: bool | str = False,
        clock: Clock | None = None,
    ) -> None:
        check_kind("settings", settings, ProducerSettings | None, "ProducerSettings, or leave it out")
        check_kind("trace", trace, bool | str, "True, or the name of a topic")
        self._hooks = check_hooks(hooks)
        self._network = Network(
            namesrv,
            instance=instance,
            client_id=client_id,
            credentials=credentials,
            tls=tls,
            namespace=namespace,
            hooks=self._hooks,
            clock=clock,
        )
        self._loop_affinity = self._network.loop_affinity
        self._send_queues = SendQueues(self._network)
        self._requests = Requests(self._network)
        self._checks = Checks(self._network.background.spawn, self._network.clock, namespace)
        self._network.membership.on_check = self._checks.take_question
        self._declared_handlers: DeclaredHandlers[Consumer] = DeclaredHandlers()
        self._declared_handlers.warn_if_forgotten(self)
        self._lifetime = ManagedLifetime()
        self._inner_queue = self._send_queues.open(INNER_PRODUCER_GROUP, ProducerSettings())
        self._tracing = self._start_tracing(trace) if trace is not False else None
        self._checks.on_end = self._tracing.on_transaction_end if self._tracing is not None else None
        self._producer = self.producer(group, settings)
        # Attributes of the instance save each message the call of the class's method, a hundredth of a send.
        vars(self).update({name: getattr(self._producer, name) for name in _PRODUCER_METHODS})

    send = delegate_to_producer(Producer.send)
    send_soon = delegate_to_producer(Producer.send_soon)
    send_nowait = delegate_to_producer(Producer.send_nowait)
    send_many = delegate_to_producer(Producer.send_many)
    transaction = delegate_to_producer(Producer.transaction)
    recall = delegate_to_producer(Producer.recall)
    drain = delegate_to_producer(Producer.drain)

    async def request(
        self,
        topic: str | Message,
        body: Body | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        **arguments: Unpack[RequestArguments],
    ) -> ReceivedMessage:
        """Send a request, and return the answer that a consumer of the topic gives by `message.reply`.

        The other arguments are those of `send`. Any number of requests may be under way; cancelling one drops its
        answer.
        Raises: RequestTimeout, no answer came within `timeout_s`, and a consumer may have handled the request;
        otherwise as `send`.
        """
        check_names("request", arguments, RequestArguments)
        return await self._requests.send(self._producer, make_send_call(topic, body, **arguments), timeout_s)

    async def flush(self) -> None:
        """Wait until every message that a producer of this client has sent is answered or has failed."""
        await self._send_queues.answers()

    @property
    def unanswered(self) -> int:
        """The number of messages, of all its producers and retrying consumers, that wait or are in flight."""
        return self._send_queues.unanswered

    @property
    def client_id(self) -> str:
        """The client's name at brokers and for other members of a group."""
        return self._network.client_id

    def producer(self, group: str, settings: ProducerSettings | None = None, *, check: Check | None = None) -> Producer:
        """Make another producer, with its own group and settings; it lives as long as the client. `check` is the check
        of its transactions, as `@mq.check(group)` declares one.
        Raises: ConfigError, this client has a producer of that group, or the group has a check.
        """
        check_kind("settings", settings, ProducerSettings | None, "ProducerSettings, or leave it out")
        full_group = self._producer_group(group)
        # As Java's clients do, announce a group without transactions: brokers push answers to announced clients only.
        group = self._network.plain_name(full_group)
        heartbeat_group = INNER_PRODUCER_GROUP if group == DEFAULT_GROUP else full_group
        self._network.membership.add_producer(full_group, heartbeat_group)
        try:
            if check is not None:
                self._add_check(full_group, check, CheckSettings())
        except SparrowError:
            self._network.membership.producers.pop(full_group, None)
            raise
        settings_or_default = settings or ProducerSettings()
        transaction_ends = self._make_transaction_ends(
            full_group, self._tracing.on_transaction_end if self._tracing is not None else None
        )
        send_queue = self._send_queues.open(full_group, settings_or_default)
        hooks: tuple[SendHooks, ...] = self._hooks
        if self._tracing is not None:
            hooks = (*hooks, self._tracing.send_hooks(group))
        return Producer(
            group, send_queue, self._network.ids, settings_or_default, transaction_ends, self._network.namespace, hooks
        )

    def check(
        self, group: str | None = None, *, concurrency: int = 16, waiting: int = 2000, timeout_s: float = 60.0
    ) -> Callable[[K], K]:
        """Declare the decorated function as the check of a producer group, which its transactions need.

        A broker that did not get the end of a transaction asks any client of the group. The function, async or plain,
        gets the message. It returns True if the transaction was committed, False if it was rolled back, and None if
        that is unknown; an exception means unknown, too. A plain function runs in threads.

        Args:
            group: by default that of the client's own sends.
            concurrency: checks that run at once.
            waiting: questions that wait for a check; brokers repeat those that are dropped.
            timeout_s: the time limit of a check.
        Raises: ConfigError, an argument is wrong, the group has a check, or the program named no group.
        """
        settings = CheckSettings(concurrency, waiting, timeout_s)
        full_group = self._producer_group(self._producer.group if group is None else group)

        def declare(function: K) -> K:
            self._add_check(full_group, function, settings)
            return function

        return declare

    def _add_check(self, full_group: str, check: Check, settings: CheckSettings) -> None:
        if self._network.plain_name(full_group) == DEFAULT_GROUP:
            raise ConfigError(OWN_GROUP)
        self._checks.add(full_group, check, settings)

    def _producer_group(self, group: str) -> str:
        return self._network.full_group(check_producer_group(group))

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
    ) -> Consumer: ...
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
    ) -> Consumer: ...
    def subscribe(
        self,
        topics: Topics,
        handler: Handler | BatchHandler | None = None,
        *,
        group: str,
        tag: str | None = None,
        where: str | None = None,
        batch: int | None = None,
        **tuning: Unpack[Tuning],
    ) -> Consumer:
        """Consume topics as a member of a group; enter the result with `async with`.

        Args:
            topics: one or several, or tags by topic. All members of a group must subscribe to the same.
            handler: is called for each message, or with a list of messages if `batch` is given. A plain function runs
                in `concurrency` threads and may block. If it raises, the error is logged, and the message comes again
                later. Without a handler, iterate.
            tag: tags as "paid || refunded"; by default all.
            where: an SQL92 filter on properties instead, such as "amount > 5 AND region IS NOT NULL".
            batch: the most messages delivered at once; by default each alone.
            concurrency: the number of handlers that run at once; 16 by default, at most 10,000.
            start: where the group begins if it has never consumed the topic: "latest", the default, is Java's rule, by
                which a queue that still holds its first message is read from there; "new" is only what is sent from
                now on; "earliest"; or a time.
            ordered: one message of each queue at a time; a failure blocks its queue.
            broadcast: every member gets every message; offsets are kept in a file here, failures are not
                retried.
            max_reconsume_times: failures before a message ends in the group's dead letters; 16 by default.
            retry: the delays and the number of retries, as Retry("1s", "10s", "1m"), instead of the broker's.
            on_assigned, on_revoked: plain or async functions, called with the queues that this member gets, and loses.
            handler_timeout_s: the time after which a message is given to another handler; 15 minutes by default.
            tuning: these, and the other fields of `ConsumerSettings`.
        Raises: ConfigError, InvalidName, an argument is wrong.
        """
        if handler is not None:
            check_handler(handler, "a function of one message, and a tag by its name: tag=", takes=1)
        check_names("subscribe", tuning, Options)
        settings, subscribed = self._subscription(topics, group, tag=tag, where=where, batch=batch, **tuning)
        consumer_class = PopConsumer if settings.mode == "pop" else Consumer
        hooks = self._consume_hooks(group)
        return consumer_class(settings, subscribed, self._network, self._inner_queue, handler, hooks=hooks)

    def simple_consumer(
        self,
        topics: Topics = (),
        *,
        group: str,
        tag: str | None = None,
        where: str | None = None,
        **tuning: Unpack[SimpleTuning],
    ) -> SimpleConsumer:
        """Receive messages by requests and acknowledge each by itself; enter the result with `async with`.

        It needs brokers of SparrowMQ or Apache RocketMQ 5. There may be more consumers than queues.

        Args:
            topics, tag, where: as for `subscribe`.
            order: a queue gives no more messages until those before are acknowledged.
            tuning: these, and the other fields of `SimpleSettings`.
        Raises: ConfigError, InvalidName, an argument is wrong.
        """
        check_names("simple_consumer", tuning, SimpleTuning, "topics", "tag", "where")
        settings = SimpleSettings(self._network.full_group(group), **tuning)
        if topics == () and (tag is not None or where is not None):
            raise ConfigError("tag= and where= filter topics: name the topics, or give the filter to `subscribe`")
        subscribed = self._subscriptions_to(topics, tag, where) if topics != () else {}
        hooks = self._consume_hooks(group)
        return SimpleConsumer(settings, subscribed, self._network, self._inner_queue, hooks)

    def pull_consumer(self, *, group: str, **tuning: Unpack[PullTuning]) -> PullConsumer:
        """Read queues under your own control; enter the result with `async with`.

        Args:
            start: the begin of a queue without committed offset, as for `subscribe`.
            auto_commit_s: seconds between commits of handled messages, such as 5; by default only `commit` commits.
            broadcast: a subscriber of a topic gets all its queues; offsets are kept in a file here.
            on_assigned, on_revoked: called with the queues that a subscription brings, and takes.
            tuning: these, and the other fields of `PullSettings`.
        Raises: ConfigError, InvalidName, an argument is wrong.
        """
        check_names("pull_consumer", tuning, PullTuning)
        settings = PullSettings(self._network.full_group(group), **tuning)
        return PullConsumer(settings, self._network)

    @property
    def admin(self) -> Admin:
        """Topics, groups, offsets and messages for operators, over this client's connections."""
        from sparrowmq.admin.admin import Admin  # only operators need it

        return Admin(self._network)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues to which a topic is sent; of an ordered topic also those of absent brokers. Raises: NoRoute."""
        route = await self._network.routes.for_sending(self._network.full_topic(topic))
        return self._network.plain_queues(route.keyed)

    def handler(self, topics: Topics, *, group: str, **options: Unpack[Options]) -> Callable[[F], F]:
        """Declare the decorated function as a handler: `run` and `serve` subscribe it.

        Its annotations choose its arguments; see handlers.py. The other arguments are those of `subscribe`.
        Raises: ConfigError, the function cannot be called with such arguments.
        """
        self._check_options(topics, group, options)
        return self._declared_handlers.handler(self.subscribe, topics, group, options)

    def _check_options(self, topics: Topics, group: str, options: Options) -> None:
        check_names("handler", options, Options)
        self._subscription(topics, group, **options)  # Only checked here, and made again for each run.

    def middleware(self, function: Middleware) -> Middleware:
        """Declare a coroutine function `(delivered, call_next)` to be called around every declared handler.

        `delivered` is a message, or for handlers with `batch=` a list; `await call_next(delivered)` goes on.
        """
        self._declared_handlers.add_middleware(function)
        return function

    async def serve(self) -> None:
        """Consume with the declared handlers, inside `async with`, until cancelled or until a consumer fails."""
        await self._serve_until(asyncio.Event())

    def run(self, *work: Work) -> None:
        """Enter the client and consume with the declared handlers until Ctrl-C or SIGTERM; for a program's main.

        Running handlers may finish, as when a consumer is left. A second signal cuts them short. Each `work` is a
        coroutine function that runs beside the handlers, such as the `relay` of an outbox. It is called with this
        client and an event, and returns soon after the event is set. The program ends when one ends.
        Raises: ConfigError, an event loop runs already, or this is not the main thread, which gets the signals.
        """
        if running_loop() is not None:
            raise ConfigError("run() starts an event loop, and one runs already; use `await mq.serve()` instead")
        check_main_thread()

        async def serve(asked_to_end: asyncio.Event) -> None:
            async with self:
                await self._serve_until(asked_to_end, work)

        asyncio.run(run_until_signalled(serve))

    async def _serve_until(self, asked_to_end: asyncio.Event, work: Sequence[Work] = ()) -> None:
        async with AsyncExitStack() as stack:
            tasks: list[asyncio.Future[object]] = []
            stack.push_async_exit(partial(_end_work, tasks, asked_to_end))
            for work_function in work:
                self._declared_handlers.check_work(work_function)
                tasks.append(asyncio.ensure_future(work_function(self, asked_to_end)))
            consumers = self._declared_handlers.consumers(or_none=bool(work))
            for consumer in consumers:
                await stack.enter_async_context(consumer)
            shielded = (asyncio.shield(task) for task in tasks)
            await wait_for_first(asked_to_end.wait(), *shielded, *(consumer.closed() for consumer in consumers))

    async def start(self, *, serve: bool = False) -> Self:
        """Enter the client where no `async with` block can be, such as in the start-up hook of a framework. With
        `serve` it consumes with the declared handlers until `close`.

        A task of its own enters and leaves the client, so another task may call `close`.
        Raises: ConfigError, the client was entered before, or no handler was declared; AccessDenied, the account may
        not consume.
        """
        self._loop_affinity.check_if_entered()
        await self._lifetime.start([self, *(self._declared_handlers.consumers() if serve else ())])
        return self

    async def close(self) -> None:
        """Leave the client that `start` entered, as the end of its `async with` block would; once more does nothing.

        In a handler it returns at once, and the client is left when the handler has ended.
        Raises: SparrowError, a consumer had failed, as when leaving it.
        """
        if self._loop_affinity.is_forked:
            return  # It lives in the parent.
        self._loop_affinity.check_if_entered()
        if self._network.is_inside:
            self._lifetime.close_soon()
        else:
            await self._lifetime.close()

    async def __aenter__(self) -> Self:
        await self._network.__aenter__()
        self._send_queues.warn_if_forgotten(self)
        if self._tracing is not None:
            self._network.background.spawn(self._tracing.run(), "traces")
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop_affinity.is_forked:
            return  # Everything that would be closed is the parent's.
        self._network.check_outside()

        async def finish() -> None:
            await self._send_queues.last_answers()
            await self._network.membership.commit_consumers()

        try:
            if error_type is None:
                await self._network.clock.wait_for(finish(), FLUSH_LIMIT_S)
                if self._tracing is not None:
                    await self._tracing.drain()
            self._send_queues.shut()
            # Brokers ask other clients about transactions then.
            for group in sorted(self._network.membership.producers.values()):
                await self._network.brokers.tell_all(UnregisterClient(client_id=self.client_id, producer_group=group))
        except TimeoutError:
            pass  # `close` says it
        finally:
            self._send_queues.close()
            await self._network.__aexit__(error_type, error, trace)

    def _make_transaction_ends(self, group: str, on_end: OnEnd | None = None) -> TransactionEnds:
        network = self._network
        retries = EndRetries(network.brokers, network.clock, network.background.spawn)
        return TransactionEnds(group, network.brokers, self._checks.has, self._loop_affinity, retries, on_end)

    def _start_tracing(self, trace: bool | str) -> Tracing:
        topic = TRACE_TOPIC if trace is True else check_topic(str(trace))
        settings = ProducerSettings()
        send_queue = self._send_queues.open_for_traces(tracing.TRACE_GROUP, settings)
        producer = Producer(
            tracing.TRACE_GROUP,
            send_queue,
            self._network.ids,
            settings,
            self._make_transaction_ends(tracing.TRACE_GROUP),
        )
        return Tracing(topic, producer, self._network.clock, self._network.ids.next, self._network.namespace)

    def _subscription(
        self,
        topics: Topics,
        group: str,
        *,
        tag: str | None = None,
        where: str | None = None,
        batch: int | None = None,
        **tuning: Unpack[Tuning],
    ) -> tuple[ConsumerSettings, dict[str, Subscription]]:
        settings = ConsumerSettings(self._network.full_group(group), batch=batch, **tuning)
        return settings, self._subscriptions_to(topics, tag, where)

    def _subscriptions_to(self, topics: Topics, tag: str | None, where: str | None) -> dict[str, Subscription]:
        full_topics = full_names(topics, self._network.full_topic)
        return subscriptions(full_topics, tag, where, self._network.clock.now_ms())

    def _consume_hooks(self, group: str) -> tuple[ConsumeHooks, ...]:
        if self._tracing is None:
            return self._hooks
        return (*self._hooks, self._tracing.consume_hooks(self._network.plain_name(group)))


async def _end_work(
    tasks: Sequence[asyncio.Future[object]],
    asked_to_end: asyncio.Event,
    error_type: type[BaseException] | None,
    *_: object,
) -> None:
    """Let work end in order, but cut it short when the program was cancelled. Raises the error of work."""
    asked_to_end.set()
    if error_type is not None and issubclass(error_type, asyncio.CancelledError):
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=error_type is not None)


class ClientArguments(TypedDict, total=False):
    """The keyword arguments of `Client`, which describes them."""

    group: str
    instance: str
    client_id: str | None
    settings: ProducerSettings | None
    credentials: Credentials | None
    tls: Tls
    namespace: str
    hooks: Sequence[Hooks]
    trace: bool | str


def connect(
    namesrv: str | Sequence[str] | None = None, *, clock: Clock | None = None, **arguments: Unpack[ClientArguments]
) -> Client:
    """A client of a cluster, for `async with`. Arguments and errors are those of `Client`."""
    check_names("connect", arguments, ClientArguments, "namesrv")
    return Client(namesrv, clock=clock, **arguments)


class ManagedLifetime:
    """Enters and leaves the client for a framework, where no `async with` block can be.

        start ──> a task of its own: enters ── lives ── leaves <── close

    One task enters and leaves, as task groups need it. A framework may start in one task, and close in another.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()

    async def start(self, managers: Sequence[AbstractAsyncContextManager[Any]]) -> None:
        """Enter the managers, and return when they are entered. Cancelling leaves them.
        Raises: ConfigError, it was started before, or asyncio does not run; Exception, the error of the manager that
        could not be entered.
        """
        check_asyncio()
        if self._task is not None:
            raise ConfigError(ENTERED_TWICE)
        entered = asyncio.Event()
        self._task = asyncio.create_task(self._run_until_left(managers, entered), name="sparrowmq life")
        waiting = asyncio.ensure_future(entered.wait())
        try:
            await asyncio.wait([self._task, waiting], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._end()
            raise
        finally:
            waiting.cancel()
        if not entered.is_set():
            failed, self._task = self._task, None
            await failed

    async def close(self) -> None:
        """Leave the managers, if they were entered. Cancelling leaves them at once. Raises: the error of a manager."""
        task = self._task
        if task is None:
            return
        self._leave.set()
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and is_stray():
                return  # Another call was cancelled, and has ended it.
            await self._end()
            raise

    def close_soon(self) -> None:
        """Leave the managers soon, without waiting for it."""
        self._leave.set()

    async def _end(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])

    async def _run_until_left(
        self, managers: Sequence[AbstractAsyncContextManager[Any]], entered: asyncio.Event
    ) -> None:
        async with AsyncExitStack() as stack:
            for manager in managers:
                await stack.enter_async_context(manager)
            entered.set()
            await self._leave.wait()


class Requests:
    """Sends requests, and waits for their answers.

        answer = await mq.request("prices", b"EURUSD", timeout_s=2)

    A request is an ordinary message of its topic. Some group must consume it, and one of its members answers by
    `message.reply`. The request carries its sender and an id, which the answer repeats. The first answer counts.
    Source: DefaultMQProducerImpl.request, Java 4.9.8.
    """

    def __init__(self, network: Network) -> None:
        self._network = network

    async def send(self, producer: Producer, call: SendCall, timeout_s: float) -> ReceivedMessage:
        """Send a request and wait for its answer. See `Client.request`."""
        check_timeout(timeout_s)
        message = call.message
        if message.is_delayed:
            raise InvalidMessage("a request cannot be delayed, because the sender waits for the answer")
        correlation_id = str(uuid.uuid4())
        request_properties = {
            Property.CORRELATION_ID: correlation_id,
            Property.REPLY_TO_CLIENT: self._network.client_id,
            Property.TTL: str(ceil(timeout_s * 1000)),
        }
        request = replace(message, properties=dict(message.properties) | request_properties)
        with self._network.answers.expect_reply(correlation_id) as reply:
            try:
                reply_message = await self._network.clock.wait_for(
                    self._exchange(producer, SendCall(request, call.fifo, call.queue, timeout_s), reply), timeout_s
                )
            except TimeoutError:
                consumer = f"a consumer of {request.topic}"
                raise RequestTimeout(consumer, f"request {correlation_id}", timeout_s) from None
        brokers = self._network.routes.brokers
        broker_names = (name for name, addresses in brokers.items() if reply_message.store_host in addresses.values())
        queue = MessageQueue(reply_message.topic, next(broker_names, ""), reply_message.queue_id)
        return ReceivedMessage(reply_message, queue, namespace=self._network.namespace)

    async def _exchange(
        self, producer: Producer, call: SendCall, reply: asyncio.Future[StoredMessage]
    ) -> StoredMessage:
        await self._network.answers.greet_brokers(self._network.full_name(call.message.topic))
        try:
            await producer.send(call.message, fifo=call.fifo, queue=call.queue, timeout_s=call.timeout_s)
        except SendFailed:
            if not reply.done():  # Otherwise only the broker's acknowledgement was lost.
                raise
        return await reply
