"""One connection to a cluster: everything a program does with it begins here.

    async with sparrowmq.connect("127.0.0.1:9876") as mq:
        result = await mq.send("orders", b"hello", tag="paid")
        async with mq.subscribe("orders", group="billing") as orders:
            async for msg in orders:
                ...

It holds what producers and consumers share: connections, routes, heartbeats. A client is itself a producer.
Source: MQClientInstance, Java 4.9.8.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from types import TracebackType
from typing import Final, Self, Unpack

from sparrowmq.background import Background
from sparrowmq.client.cluster.brokers import Brokers
from sparrowmq.client.cluster.membership import Membership
from sparrowmq.client.cluster.name_servers import NameServers, addresses_of
from sparrowmq.client.cluster.network import Network, local_ip, unique_client_id
from sparrowmq.client.cluster.pushes import Pushes
from sparrowmq.client.cluster.routes import Routes
from sparrowmq.client.consuming.consumer import BatchHandler, Consumer, Handler
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.consuming.settings import ConsumerSettings, Start, Tuning, subscriptions
from sparrowmq.client.sending.outbox import Outbox
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.settings import ProducerSettings
from sparrowmq.clock import Clock, SystemClock
from sparrowmq.errors import InvalidName
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.messages.message_id import UniqueIds
from sparrowmq.protocol.names import DEFAULT_PRODUCER_GROUP, INNER_PRODUCER_GROUP, check_group
from sparrowmq.protocol.requests.headers import UnregisterClient
from sparrowmq.protocol.requests.table import Role
from sparrowmq.remoting.dispatch import Dispatcher
from sparrowmq.remoting.pool import Pool

log = logging.getLogger(__name__)

GROUP: Final = "SPARROWMQ_PRODUCER"
FLUSH_S: Final = 10.0


class Client(Producer):
    """A program's side of a cluster; use it as an async context manager.

    Entering returns at once, whether or not anything can be reached: connections are made when they are needed,
    and again after they broke. Leaving waits, for at most 10 s, until what was sent is answered; left by an
    exception or a cancellation it does not wait.

    Args:
        namesrv: name servers as "host:port;host:port" or a list, or the URL of an address server; by default
            the environment's NAMESRV_ADDR.
        group: the producer group of the client's own sends.
        instance: tells programs on one machine apart in the files of broadcast offsets.
        client_id: by which brokers know it; made up by default, and never the same twice.
        settings: how messages are sent.
    Raises:
        ConfigError: there is no such address.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        group: str = GROUP,
        instance: str = "DEFAULT",
        client_id: str | None = None,
        settings: ProducerSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        addresses, page = addresses_of(namesrv)
        ip = local_ip(addresses)
        self._clock = clock or SystemClock()
        self._background = Background()
        self.client_id = client_id or unique_client_id(ip)
        self._membership = Membership(self.client_id)
        dispatcher = Dispatcher(
            Role.CLIENT,
            [Pushes(self._membership)],
            lambda coroutine: self._background.spawn(coroutine, "push"),
        )
        self._pool = Pool(self._clock, dispatcher)
        self._name_servers = NameServers(addresses, self._pool, page)
        routes = Routes(self._name_servers, self._clock)
        brokers = Brokers(self._pool, routes, self._clock, self._membership.heartbeat)
        self._network = Network(
            self.client_id, ip, instance, str(self._name_servers), routes, brokers, self._clock
        )
        self._ids = UniqueIds(ip_address(ip).packed, os.getpid(), random.getrandbits(32))
        self._outboxes: list[Outbox] = []
        self._inner_outbox = self._open_outbox(INNER_PRODUCER_GROUP, ProducerSettings())
        own = settings or ProducerSettings()
        self._membership.add_producer(_check_producer_group(group))
        super().__init__(group, self._open_outbox(group, own), self._make_id, own)

    # Parts of it ----------------------------------------------------------------------------------------------------

    def producer(self, group: str, settings: ProducerSettings | None = None) -> Producer:
        """A further producer, with a group and settings of its own; it lives as long as the client.

        Raises:
            ConfigError: this client has a producer of that group.
        """
        self._membership.add_producer(_check_producer_group(group))
        own = settings or ProducerSettings()
        return Producer(group, self._open_outbox(group, own), self._make_id, own)

    def subscribe(
        self,
        topics: str | Sequence[str] | Mapping[str, str],
        handler: Handler | BatchHandler | None = None,
        *,
        group: str,
        tag: str | None = None,
        where: str | None = None,
        concurrency: int = 16,
        batch: int | None = None,
        start: Start = "latest",
        ordered: bool = False,
        broadcast: bool = False,
        max_reconsume_times: int | None = None,
        **tuning: Unpack[Tuning],
    ) -> Consumer:
        """Consume topics as a member of a group; enter the result with `async with`.

        Args:
            topics: one or several, or tags by topic. All members of a group must ask for the same.
            handler: is called for each message, or with a list of them if `batch` is given; a plain function
                must not block. What it raises is logged, and the message comes again later. Without a handler,
                iterate.
            tag: tags as "paid || refunded"; by default all.
            where: an SQL92 filter on properties instead, such as "amount > 5 AND region IS NOT NULL".
            concurrency: how many handlers run at once.
            batch: messages delivered at once, at most.
            start: "latest", "earliest" or a time: where the group begins if it has never consumed the topic.
            ordered: one message of each queue at a time; a failure blocks its queue.
            broadcast: every member gets every message; offsets are kept in a file here, failures are not
                retried.
            max_reconsume_times: failures before a message ends in the group's dead letters.
            tuning: `pull_batch`, `flow`, `strategy`, `grace_s`, `offset_folder`, as in `ConsumerSettings`.
        Raises:
            ConfigError, InvalidName: an argument is wrong.
        """
        settings = ConsumerSettings(
            group, concurrency, batch, start, ordered, broadcast, max_reconsume_times, **tuning
        )
        wanted = subscriptions(topics, tag, where, self._clock.now_ms())
        return Consumer(settings, wanted, self._network, self._membership, self._inner_outbox, handler)

    def pull_consumer(self, *, group: str, start: Start = "latest", pull_batch: int = 32) -> PullConsumer:
        """Read queues under your own control; enter the result with `async with`."""
        return PullConsumer(group, self._network, self._membership, start, pull_batch)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that messages of a topic can be sent to. Raises: NoRoute."""
        return list((await self._network.routes.for_sending(topic)).writable)

    # Life -----------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._background.__aenter__()
        self._background.spawn(self._name_servers.keep_fresh(self._clock), "name servers")
        self._background.spawn(self._network.routes.keep_fresh(), "routes")
        self._background.spawn(self._network.brokers.keep_alive(), "heartbeats")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                await self._clock.wait_for(self._flush_all(), FLUSH_S)
            await self._leave()
        except TimeoutError:
            log.warning("%d messages are not answered; they may or may not be stored", self.unanswered)
        finally:
            for outbox in self._outboxes:
                outbox.close()
            self._pool.close()
            await self._background.__aexit__(kind, error, trace)

    async def _flush_all(self) -> None:
        for outbox in self._outboxes:
            await outbox.flush()

    async def _leave(self) -> None:
        """Tell brokers that our producers go, so that they ask others about transactions."""
        for group in sorted(self._membership.producers):
            await self._network.brokers.tell_all(
                UnregisterClient(client_id=self.client_id, producer_group=group)
            )

    def _open_outbox(self, group: str, settings: ProducerSettings) -> Outbox:
        network = self._network
        outbox = Outbox(group, settings, network.routes, network.brokers, self._clock, self._background.spawn)
        self._outboxes.append(outbox)
        return outbox

    def _make_id(self) -> str:
        return self._ids.next(self._clock.now_ms())


def connect(
    namesrv: str | Sequence[str] | None = None,
    *,
    group: str = GROUP,
    instance: str = "DEFAULT",
    client_id: str | None = None,
    settings: ProducerSettings | None = None,
    clock: Clock | None = None,
) -> Client:
    """A client of a cluster, for `async with`. Arguments and errors are those of `Client`."""
    return Client(
        namesrv, group=group, instance=instance, client_id=client_id, settings=settings, clock=clock
    )


def _check_producer_group(group: str) -> str:
    if check_group(group) == DEFAULT_PRODUCER_GROUP:
        raise InvalidName(f"producer group {group} is reserved; choose a name that tells the application")
    return group
