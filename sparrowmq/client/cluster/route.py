"""A route: the brokers of a topic's queues, by one answer of a name server.

A topic that does not exist yet is sent to by the route of the template topic TBW102: the broker that gets the first
message creates the topic. Source: TopicPublishInfo and MQClientInstance.topicRouteData2TopicPublishInfo, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from sparrowmq.core.digits import whole_number
from sparrowmq.protocol.hosts import with_broker
from sparrowmq.protocol.messages.message import MessageQueue, Perm
from sparrowmq.protocol.requests.bodies import MASTER as MASTER
from sparrowmq.protocol.requests.bodies import MOST_ROUTE_QUEUES, BrokerRoute, TopicRoute

TEMPLATE_QUEUES: Final = 4  # defaultTopicQueueNums of Java's producer
MOST_QUEUES: Final = 65_536  # of one broker that an ordered topic may name

Addresses = Mapping[int, str]  # by broker id; 0 is the master


@dataclass(frozen=True, slots=True)
class Route:
    """The queues of a topic and their brokers, in Java's order: by broker name, then queue id.

    Attributes:
        writable: queues that take messages. Their broker has a master: slaves take none. In an ordered topic they are
            those of `fixed`; all of these while none of their brokers has a master.
        readable: queues that can be consumed.
        brokers: the addresses of each broker.
        clusters: the clusters of its brokers.
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
        brokers = addresses_in(body.broker_datas, names_brokers=body.names_brokers)
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
        return built.ordered(fixed_queues(topic, body.order_topic_conf or ""))

    def ordered(self, fixed: tuple[MessageQueue, ...]) -> Route:
        """The route of an ordered topic that has these queues; without queues the route of a plain topic."""
        if not fixed:
            return self
        taking = {queue.broker_name for queue in self.writable}
        present = tuple(queue for queue in fixed if queue.broker_name in taking)
        return replace(self, writable=present or fixed, fixed=fixed)

    def after(self, previous: Route | None) -> Route:
        """This route, with the order of the previous one if the name server did not say an order.

        A name server that has just been added, or has `orderMessageEnable=false`, does not say it. Keys would move. The
        order is given up if the brokers have too few queues for it: then the topic is another one of the same name.
        """
        if self.fixed or previous is None or not previous.fixed:
            return self
        mine = set(self.writable)
        taking = {queue.broker_name for queue in mine}
        fits = all(queue in mine for queue in previous.fixed if queue.broker_name in taking)
        return self.ordered(previous.fixed) if fits else self

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
    """The queues of an ordered topic, as in broker-a:4;broker-b:4; none for a text in another form.

    Source: MQClientInstance.topicRouteData2TopicPublishInfo, Java 4.9.8, which keeps their order.
    """
    queues: list[MessageQueue] = []
    for part in filter(None, conf.split(";")):
        broker, _, count = part.strip().rpartition(":")
        number = whole_number(count)
        if not broker or number is None:
            return ()
        queues += (MessageQueue(topic, broker, each) for each in range(min(number, MOST_QUEUES)))
        if len(queues) > MOST_ROUTE_QUEUES:
            return ()
    return tuple(queues)


def addresses_in(rows: Iterable[BrokerRoute], *, names_brokers: bool | None) -> dict[str, Addresses]:
    """The addresses of brokers. If a proxy has given them, each of its own for the broker."""
    return {row.broker_name: row.broker_addrs for row in of_brokers(rows, names_brokers=names_brokers)}


def of_brokers(rows: Iterable[BrokerRoute], *, names_brokers: bool | None) -> list[BrokerRoute]:
    """The same brokers; those behind a proxy with addresses of their own, by which each is asked."""
    if not names_brokers:
        return list(rows)
    return [
        structs.replace(
            row,
            broker_addrs={number: with_broker(at, row.broker_name) for number, at in row.broker_addrs.items()},
        )
        for row in rows
    ]
