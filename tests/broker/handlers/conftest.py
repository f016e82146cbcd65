"""All parts that the handlers need, over a real store, asked through a real connection."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparrowmq.broker.access_control import AccessControl
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.clients import Clients
from sparrowmq.broker.delayed.delay import DelayedDelivery, delay_levels
from sparrowmq.broker.delayed.timer import timer_redirect
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.handlers.access_handler import AccessHandler
from sparrowmq.broker.handlers.admin_handler import CleaningHandler, InspectHandler
from sparrowmq.broker.handlers.assignment_handler import LockHandler
from sparrowmq.broker.handlers.clients_handler import ClientHandler, RelayHandler
from sparrowmq.broker.handlers.groups_handler import GroupHandler
from sparrowmq.broker.handlers.handler import SharedParts
from sparrowmq.broker.handlers.offsets_handler import OffsetHandler, ProgressHandler
from sparrowmq.broker.handlers.query_handler import QueryHandler
from sparrowmq.broker.handlers.retry_handler import RetryHandler
from sparrowmq.broker.handlers.topics_handler import TopicHandler
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.metrics.consumption import Consumption
from sparrowmq.broker.metrics.status import Status
from sparrowmq.broker.metrics.traffic import Traffic
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.pop.pop_queue import PopTable
from sparrowmq.broker.pop.pop_state import PopState
from sparrowmq.broker.queue_locks import QueueLocks
from sparrowmq.broker.sql_filters import Filters
from sparrowmq.broker.store import store_part
from sparrowmq.broker.topics import Topics
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.tasks import Background
from sparrowmq.loop.turn import Turn
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.protocol.requests.bodies import HaStatus, TopicConfig
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat, Heartbeat, ProducerBeat
from sparrowmq.protocol.requests.headers import HeartBeat
from sparrowmq.protocol.requests.request_table import Role
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.remoting.request_dispatch import Dispatcher
from sparrowmq.remoting.server import Server
from sparrowmq.remoting.session import Session
from sparrowmq.settings.live_settings import LiveSettings
from sparrowmq.store.message_store import MessageStore
from sparrowmq.testing.clock import ManualClock

BORN = hosts.pack("127.0.0.1:5000")


@dataclass
class Client:
    """A connection to the broker, and what the broker pushed down it."""

    session: Session
    pushed: list[Command] = field(default_factory=list)

    async def call(self, request, body=b"", **options):
        return await self.session.call(request, body, **options)

    async def refusal(self, request, body=b""):
        """The error that a request is answered with."""
        with pytest.raises(RemoteError) as refused:
            await self.session.call(request, body)
        return refused.value

    async def beat(self, client_id, *topics, group="g", consume_type="CONSUME_PASSIVELY", **more):
        """Send the heartbeat of a consumer."""
        subscriptions = [Subscription.build(topic, version=1) for topic in topics]
        consumers = [ConsumerBeat(group, consume_type, subscription_data_set=subscriptions)] if group else []
        body = Heartbeat(client_id, consumer_data_set=consumers, **more)
        return (await self.session.call(HeartBeat(), body.encode())).header

    async def produce(self, client_id, group):
        body = Heartbeat(client_id, producer_data_set=[ProducerBeat(group)])
        await self.session.call(HeartBeat(), body.encode())


class Desk:
    """The parts of a broker, without those that send and pull."""

    def __init__(self, path: Path, clock: ManualClock, **settings) -> None:
        self.clock = clock
        self.settings = BrokerSettings(
            name="broker-a",
            store_path=path,
            commit_log_file_bytes=1 << 20,
            index_slots=100,
            index_entries=1000,
            **settings,
        )
        config = self.settings.config_path
        self.store = MessageStore.open(self.settings.store(10911), clock=clock)
        self.figures = Figures()
        self.topics = Topics(config / "topics.json", self.settings, clock)
        self.groups = Groups(config / "subscriptionGroup.json", self.settings.auto_create_group, clock)
        self.offsets = Offsets(config / "consumerOffset.json")
        self.clients = Clients(clock)
        self.locks = QueueLocks(clock)
        delays = self.settings.delay_levels
        redirect = delay_levels(delays, clock)
        timers = timer_redirect(clock, self.settings.max_timer_s)
        self.writer = Writer(self.store, self.settings.cluster, (timers, redirect))
        self.pops = PopState(PopTable(), self.store, self.offsets, clock, Turn(), None, 1 << 40)
        self.delayed = DelayedDelivery(
            self.store, self.writer, redirect, delays, config / "delayOffset.json", clock, self.figures
        )
        self.received = self.figures.counter("sparrowmq_messages_received_total", "messages stored for producers")
        self.consumption = Consumption(clock, self.figures)
        self.storage = store_part(self.store, Turn(), clock, self.figures)
        self.status = Status(self.settings, self.figures, clock, self.store.appender.put_times)
        self.traffic = Traffic(self.store, self.consumption, self.settings.cluster, clock, self.figures)
        self.announcements: list[int] = []
        self.shared = SharedParts(
            store=self.store,
            writer=self.writer,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            clients=self.clients,
            consumption=self.consumption,
            clock=clock,
            quotas=Quotas(clock),
            accepts_writes=lambda: True,
        )

    async def announced(self) -> None:
        """Notes which version of the topics name servers would know now."""
        self.announcements.append(self.topics.version.counter)

    def handlers(self) -> tuple[object, ...]:
        return (
            ClientHandler(self.shared, self.announced, Filters(False)),
            LockHandler(self.shared, self.locks),
            OffsetHandler(self.shared, self.delayed.progress, 1 << 40),
            TopicHandler(self.shared, self.announced),
            GroupHandler(self.shared, self.pops),
            ProgressHandler(self.shared, "127.0.0.1:10911", self.pops.table),
            QueryHandler(self.shared),
            CleaningHandler(self.shared),
            RetryHandler(self.shared, self.pops, longest_ms=self.settings.longest_pause_ms),
            InspectHandler(LiveSettings(self.settings), self.status, self.traffic, HaStatus),
            RelayHandler(self.shared),
            AccessHandler(AccessControl(self.settings, lambda offset: None), ("c", "b", "a"), self.clock),
        )

    def create(self, topic="Orders", queues=4, perm=6) -> None:
        self.topics.put(TopicConfig(topic, queues, queues, perm))

    def send(self, body: bytes, topic="Orders", queue_id=0, reconsume_times=0, **properties) -> int:
        """Store a message as a send would; returns its log offset."""
        if self.topics.get(topic) is None:
            self.create(topic)
        entry = Entry(topic, queue_id, body, Properties(render(properties)), self.clock.now_ms(), BORN)
        entry.reconsume_times = reconsume_times
        placed = self.writer.put(entry)
        self.store.publish()
        return placed.offset

    def stored(self, topic="Orders", queue_id=0) -> list[StoredMessage]:
        self.store.publish()
        views = self.store.read(topic, queue_id, 0, 1000).views
        return [record.decode(each) for view in views for each in record.walk(view)]


@pytest.fixture
async def desk(tmp_path, clock) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path, clock)
    yield desk
    desk.store.close()


@pytest.fixture
async def connect(desk) -> AsyncIterator:
    """`await connect()`: a client of the desk."""
    clock = SystemClock()
    clients: list[Client] = []
    turn = Turn()
    async with Background() as tasks:
        tasks.spawn(desk.store.run(turn), "store")
        dispatch = Dispatcher(Role.NOBODY, desk.handlers(), tasks.spawn)
        async with Server(dispatch, clock, "127.0.0.1", 0, turn=turn) as server:

            async def connect(answer=None) -> Client:
                """Connect; `answer(session, command)` serves what the broker asks the client."""
                pushed: list[Command] = []

                def hear(session: Session, command: Command) -> None:
                    pushed.append(command)
                    if answer is not None and not command.is_oneway:
                        answer(session, command)

                loop = asyncio.get_running_loop()
                _, session = await loop.create_connection(lambda: Session(hear, clock), "127.0.0.1", server.port)
                clients.append(Client(session, pushed))
                return clients[-1]

            yield connect
            for client in clients:
                client.session.close()


@pytest.fixture
async def client(connect):
    return await connect()
