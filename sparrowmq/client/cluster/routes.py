"""Routes: the brokers of each topic's queues. A route is asked for once, kept, and refreshed every 30 s.

Name servers never push, so a change is seen at the next refresh (as in Java), or at once after a failed call (`doubt`).
Routes are kept while no name server answers, and when the name servers forgot a topic. A broker's address comes from
the last answer for any topic, so a deleted topic does not keep the address that a broker has left.

A topic that does not exist yet is sent to by the route of the template topic TBW102: the broker that gets the first
message creates the topic.

Source: MQClientInstance and TopicPublishInfo, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from sparrowmq.client.cluster.name_servers import NameServers
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import BrokerUnreachable, NetworkError, NoRoute, ProtocolError, RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, Perm
from sparrowmq.protocol.names import DEFAULT_TOPIC
from sparrowmq.protocol.requests.bodies import MASTER as MASTER
from sparrowmq.protocol.requests.bodies import MOST_ROUTE_QUEUES, BrokerRoute, ClusterTable, TopicRoute
from sparrowmq.protocol.requests.namesrv_headers import GetBrokerCluster, GetRoute
from sparrowmq.remoting.log_limit import LogLimit

log = logging.getLogger(__name__)
REFRESH_S: Final = 30.0
MIN_REFRESH_PERIOD_S: Final = 1.0  # however often `doubt` is called
TEMPLATE_QUEUES: Final = 4  # defaultTopicQueueNums of Java's producer
MAX_ORDER_QUEUES: Final = 65_536  # of one broker that an ordered topic may name
Addresses = Mapping[int, str]  # by broker id; 0 is the master


@dataclass(frozen=True, slots=True)
class Route:
    """The queues of a topic and their brokers, in Java's order: by broker name, then queue id.

    Attributes:
        writable: queues that take messages. Their broker has a master: slaves take none. In an ordered topic they are
            those of `fixed`; all of these while none of their brokers has a master.
        readable: queues that can be consumed.
        lacks_master: a broker that would take messages has only slaves now.
        fixed: all queues of an ordered topic, also those of brokers that are away; empty for a plain topic.
    """

    topic: str
    writable: tuple[MessageQueue, ...]
    readable: tuple[MessageQueue, ...]
    brokers: Mapping[str, Addresses]
    clusters: frozenset[str] = frozenset()
    lacks_master: bool = False
    fixed: tuple[MessageQueue, ...] = ()

    @classmethod
    def build(cls, topic: str, body: TopicRoute) -> Route:
        brokers = addresses_in(body.broker_datas)
        writable: list[MessageQueue] = []
        readable: list[MessageQueue] = []
        lacks_master = False
        for row in sorted(body.queue_datas, key=lambda row: row.broker_name):
            addresses = brokers.get(row.broker_name, {})
            if row.perm & Perm.WRITE and MASTER in addresses:
                writable += (MessageQueue(topic, row.broker_name, number) for number in range(row.write_queue_nums))
            lacks_master |= bool(row.perm & Perm.WRITE and addresses and MASTER not in addresses)
            if row.perm & Perm.READ and addresses:
                readable += (MessageQueue(topic, row.broker_name, number) for number in range(row.read_queue_nums))
        clusters = frozenset(broker.cluster for broker in body.broker_datas)
        built = cls(topic, tuple(writable), tuple(readable), brokers, clusters=clusters, lacks_master=lacks_master)
        return built.with_order(fixed_queues(topic, body.order_topic_conf or ""))

    def with_order(self, fixed: tuple[MessageQueue, ...]) -> Route:
        """The route of an ordered topic that has these queues; without queues the route of a plain topic."""
        if not fixed:
            return self
        writable_brokers = {queue.broker_name for queue in self.writable}
        present_queues = tuple(queue for queue in fixed if queue.broker_name in writable_brokers)
        return replace(self, writable=present_queues or fixed, fixed=fixed)

    def with_order_of(self, previous: Route | None) -> Route:
        """This route, with the order of the previous one if the name server did not say an order.

        A name server that has just been added, or has `orderMessageEnable=false`, does not say it. Keys would move. The
        order is given up if the brokers have too few queues for it: then the topic is another one of the same name.
        """
        if self.fixed or previous is None or not previous.fixed:
            return self
        own_queues = set(self.writable)
        writable_brokers = {queue.broker_name for queue in own_queues}
        has_all_queues = all(queue in own_queues for queue in previous.fixed if queue.broker_name in writable_brokers)
        return self.with_order(previous.fixed) if has_all_queues else self

    @property
    def keyed(self) -> tuple[MessageQueue, ...]:
        """The queues among which a key chooses. Those of an ordered topic stay the same when a broker goes away."""
        return self.fixed or self.writable

    @property
    def waits_for_master(self) -> bool:
        """Return whether no queue takes messages until a master is back."""
        return self.lacks_master and not self.writable

    def for_new_topic(self, topic: str) -> Route:
        """The route for the first messages of a topic that does not exist; this route is the template's."""
        writable = tuple(
            MessageQueue(topic, queue.broker_name, queue.queue_id)
            for queue in self.writable
            if queue.queue_id < TEMPLATE_QUEUES
        )
        return Route(topic, writable, (), self.brokers, clusters=self.clusters)


def address_of(addresses: Addresses, broker_id: int = MASTER) -> str | None:
    """The address of a broker's replica, or of the first other one; None if there is none."""
    return addresses.get(broker_id) or (addresses[min(addresses)] if addresses else None)


def fixed_queues(topic: str, conf: str) -> tuple[MessageQueue, ...]:
    """The queues of an ordered topic, as in broker-a:4;broker-b:4; none for a text in another form. Source:
    MQClientInstance.topicRouteData2TopicPublishInfo, Java 4.9.8, which keeps their order.
    """
    queues: list[MessageQueue] = []
    for part in filter(None, conf.split(";")):
        broker, _, count = part.strip().rpartition(":")
        number = whole_number(count)
        if not broker or number is None:
            return ()
        queues += (MessageQueue(topic, broker, queue_id) for queue_id in range(min(number, MAX_ORDER_QUEUES)))
        if len(queues) > MOST_ROUTE_QUEUES:
            return ()
    return tuple(queues)


def addresses_in(rows: Iterable[BrokerRoute]) -> dict[str, Addresses]:
    return {row.broker_name: row.broker_addrs for row in rows}


class Routes:
    def __init__(self, name_servers: NameServers, clock: Clock) -> None:
        self._name_servers = name_servers
        self._clock = clock
        self._routes: dict[str, Route] = {}
        self._templates: dict[str, Route] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._brokers: dict[str, Addresses] = {}  # by the last answer that names each
        self._refresh_requested = asyncio.Event()
        self._watchers: list[Callable[[str], object]] = []
        self._lines = LogLimit(clock)
        self._topics_without_order: set[str] = set()  # ordered topics whose order the last answer did not say

    @property
    def name_servers_text(self) -> str:
        """The name servers, as an error names them."""
        return str(self._name_servers)

    def cached(self, topic: str) -> Route | None:
        """The topic's own route, if it was asked for before."""
        return self._routes.get(topic)

    def cached_for_sending(self, topic: str) -> Route | None:
        """As `cached`, or the template's for a topic that does not exist yet."""
        return self._routes.get(topic) or self._templates.get(topic)

    async def of(self, topic: str) -> Route:
        """The topic's route. Raises: NoRoute, the topic does not exist; NetworkError, no name server answered."""
        if route := self._routes.get(topic):
            return route
        async with self._locks.setdefault(topic, asyncio.Lock()):
            return self._routes.get(topic) or await self.fetch(topic)

    async def for_sending(self, topic: str) -> Route:
        """As `of`; for a topic that does not exist the template's, if brokers create topics by themselves.
        Raises: NoRoute, NetworkError, as `of`; also while no broker is there at all, which would have the topic.
        """
        if route := self.cached_for_sending(topic):
            return route
        try:
            return await self._own_or_template(topic)
        except NoRoute:
            answer = await self._name_servers.call(GetBrokerCluster())
            if not ClusterTable.decode(answer.body).broker_addr_table:  # The name server has just started.
                raise BrokerUnreachable("any broker", f"none is registered at {self._name_servers} now") from None
            return await self._own_or_template(topic)  # The brokers may have come after the request for the topic.

    async def fetch(self, topic: str) -> Route:
        """Ask for the topic's present route. Raises: as `of`."""
        route = await self._ask(topic)
        if route is None:
            raise NoRoute(topic, str(self._name_servers))
        _warn_of_few(route, self._templates.pop(topic, None))
        known_route = self._routes.get(topic)
        self._warn_of_order(route, known_route)
        route = route.with_order_of(known_route)
        if known_route != route:
            self._routes[topic] = route
            routes = [*self._routes.values(), *self._templates.values()]
            named = {name for route in routes for name in route.brokers}
            self._brokers = {name: self._brokers[name] for name in self._brokers if name in named}
            for watcher in self._watchers:
                watcher(topic)
        return route

    def master(self, broker_name: str) -> str | None:
        """The address of a broker's master; None if no route names the broker, or it has no master now."""
        return self._brokers.get(broker_name, {}).get(MASTER)

    @property
    def masters(self) -> Iterator[str]:
        return (address for replicas in self._brokers.values() if (address := replicas.get(MASTER)) is not None)

    def replica(self, broker_name: str, broker_id: int) -> str | None:
        """The address of a broker's replica, or of another one; None if no route names the broker."""
        return address_of(self._brokers.get(broker_name, {}), broker_id)

    @property
    def brokers(self) -> Mapping[str, Addresses]:
        return self._brokers

    def doubt(self) -> None:
        """Refresh soon: a broker was not where its route says."""
        self._refresh_requested.set()

    def watch(self, watcher: Callable[[str], object]) -> None:
        """Call `watcher(topic)` whenever a route has changed."""
        self._watchers.append(watcher)

    def unwatch(self, watcher: Callable[[str], object]) -> None:
        self._watchers.remove(watcher)

    async def keep_fresh(self) -> None:
        """Refresh all routes every 30 s until cancelled, and sooner after `doubt`."""
        while True:
            await self._clock.sleep(MIN_REFRESH_PERIOD_S)
            with suppress(TimeoutError):
                await self._clock.wait_for(self._refresh_requested.wait(), REFRESH_S - MIN_REFRESH_PERIOD_S)
            self._refresh_requested.clear()
            await self.refresh()

    async def refresh(self) -> None:
        """Ask for every known topic again. Routes without an answer stay as they are."""
        has_lost_route = False
        try:
            for topic in [*self._routes, *self._templates]:
                try:
                    await self.fetch(topic)
                except NoRoute:
                    has_lost_route = True
                    log.debug("name servers have no route for %s (any more)", topic)
                except (RemoteError, ProtocolError) as error:
                    # The other topics need their routes all the same.
                    text = "cannot refresh the route of %s, the known one stays in use: %s"
                    self._lines.log(log, logging.WARNING, text, topic, error)
            if has_lost_route:  # Only deleted topics may have named some brokers.
                answer = await self._name_servers.call(GetBrokerCluster())
                table = ClusterTable.decode(answer.body)
                addresses = addresses_in(table.broker_addr_table.values())
                self._brokers |= {name: addresses[name] for name in self._brokers if name in addresses}
        except (NetworkError, RemoteError, ProtocolError) as error:
            text = "cannot refresh routes, the known ones stay in use: %s"
            self._lines.log(log, logging.WARNING, text, error)

    async def _ask(self, topic: str) -> Route | None:
        request = GetRoute(topic=topic, accept_standard_json_only=True)
        answer = await self._name_servers.call(request, accept=(ResponseCode.TOPIC_NOT_EXIST,))
        if answer.code:
            return None
        route = Route.build(topic, TopicRoute.decode(answer.body))
        self._brokers |= route.brokers
        return route

    def _warn_of_order(self, route: Route, previous: Route | None) -> None:
        """Warn once that the order of an ordered topic has changed, or that a name server does not say it."""
        topic = route.topic
        if previous is None or not previous.fixed or previous.fixed == route.fixed:
            self._topics_without_order.discard(topic)
        elif route.fixed:
            log.warning("the queues of the ordered topic %s have changed: keys may be in other queues now", topic)
        elif topic not in self._topics_without_order:
            self._topics_without_order.add(topic)
            log.warning(
                "a name server does not say that topic %s is ordered; its keys stay in their queues. All name servers "
                "need orderMessageEnable=true and the same order: mqadmin updateOrderConf -m get -t %s",
                topic,
                topic,
            )

    async def _own_or_template(self, topic: str) -> Route:
        try:
            return await self.of(topic)
        except NoRoute:
            template = await self._ask(DEFAULT_TOPIC)
            if template is None:
                raise
            route = self._templates[topic] = template.for_new_topic(topic)
            return route


def _warn_of_few(route: Route, template: Route | None) -> None:
    """Warn once of a topic that a send has created on a part of the brokers: the others will never get its messages."""
    if template is None or route.lacks_master:
        return
    brokers = {queue.broker_name for queue in route.writable}
    missing = sorted({queue.broker_name for queue in template.writable} - brokers)
    if missing:
        log.warning(
            "topic %s was made by a send and is on %s alone, so %s will never get its messages; create it on all "
            "brokers: mqadmin updateTopic -c CLUSTER, or Admin.create_topic",
            route.topic,
            ", ".join(sorted(brokers)) or "no broker",
            ", ".join(missing),
        )
