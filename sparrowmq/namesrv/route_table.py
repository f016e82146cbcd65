"""The route table: which broker has which topic, as brokers registered. Pure: time is passed in.

    register    a broker registers with its topics: every 30 s, and when the topics changed
    is_current  a broker asks whether its registration is current, which is also a sign of life
    unregister  it stops              forget_connection    its connection ended        expire    it was silent for 120 s

    groups      broker name -> cluster, and id -> address            a master (id 0) and its slaves
    live brokers     address     -> last sign of life, version of its topics, the connection of its requests
    topics      topic       -> group       -> queues
    drained     broker names that are shown without the permission to write
    vanished brokers    names of brokers that went without a goodbye, until they come back

Only masters announce topics. A broker's topics go when the last address of its name is gone. A broker may have 50,000
topics, which are added in steps; the broker's version is known after the last one. When a group is gone, no reader sees
its queues any more, and steps remove them later. A broker that comes back meanwhile gets another group.
Source: RouteInfoManager, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sparrowmq.core.safe_text import shown
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.slices import Steps, at_once
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.requests.bodies import (
    MASTER,
    BrokerRoute,
    ClusterTable,
    DataVersion,
    QueueRoute,
    TopicConfig,
    TopicList,
    TopicRoute,
)
from sparrowmq.remoting.log_limit import LogLimit

log = logging.getLogger(__name__)

EXPIRY_S: Final = 120.0
# Lost brokers that are remembered, and their topics: without accounts, any client can register brokers and go.
MAX_LOST_BROKERS: Final = 1000
MAX_LOST_TOPICS: Final = 200_000
_MAX_LOG_LINES: Final = 200  # a minute of each kind: all brokers of most clusters, after a name server's restart
_ADDRESS_TAKEN: Final = (
    "broker %s is registered at %s over another connection; give this broker another address, or try again when that "
    "one is gone, within two minutes"
)


class BrokerId(NamedTuple):
    cluster: str
    name: str
    id: int
    address: str


class Queues(NamedTuple):
    read_count: int
    write_count: int
    perm: int
    sys_flag: int = 0


class Master(NamedTuple):
    """The addresses of a slave's master; "" if it is unknown."""

    address: str
    ha_address: str


class VanishedBroker(NamedTuple):
    """A broker of which no address is left, and whose master, or last slave, went without a goodbye."""

    cluster: str
    address: str
    topics: tuple[str, ...]


@dataclass(slots=True, eq=False)
class _Group:
    name: str
    cluster: str
    is_gone: bool = False
    addresses: dict[int, str] = field(default_factory=dict)
    dead_master: str = ""  # the address of a master that went without a goodbye


@dataclass(slots=True)
class _LiveBroker:
    broker: BrokerId
    last_heard_s: float
    topics_version: DataVersion | None  # None until all topics are added
    ha_address: str
    connection: object

    def note_topics_added(self, version: DataVersion) -> None:
        self.topics_version = version


# The queues of the topic with the cluster's name (Java: TopicConfigManager).
_CLUSTER_TOPIC: Final = Queues(16, 16, Perm.READ_WRITE | Perm.INHERIT)


class Routes:
    """The table of all brokers and topics. `run_later` does steps that no caller waits for. Only the death of a broker
    puts it into `vanished_brokers`, not a stop."""

    def __init__(self, run_later: Callable[[Steps[None]], object] = at_once) -> None:
        self._run_later = run_later
        self._log_limit = LogLimit(SystemClock(), _MAX_LOG_LINES)  # a broker can come, go and be renamed at will
        self.vanished_brokers: dict[str, VanishedBroker] = {}
        # Invariant: each living address is in the group of its name, unless another broker took its id there.
        self._groups: dict[str, _Group] = {}
        self._live_brokers: dict[str, _LiveBroker] = {}
        self._topics: dict[str, dict[_Group, Queues]] = {}
        self._drained: set[str] = set()

    def register(
        self,
        broker: BrokerId,
        topics: Iterable[TopicConfig],
        version: DataVersion,
        *,
        ha_address: str,
        connection: object,
        now_s: float,
    ) -> Steps[Master | None]:
        """Register a broker over a connection, and return the master's addresses to a slave. A broker that goes
        meanwhile gets no more topics. Raises: RemoteError, a broker of another name has the address."""
        former = self._live_brokers.get(broker.address)
        if former is not None and former.broker.name != broker.name:
            if former.connection is not connection:
                raise RemoteError(ResponseCode.SYSTEM_ERROR, _ADDRESS_TAKEN % (former.broker.name, broker.address))
            self._forget(former, f"it is called {broker.name} now", is_dead=False)
        if former is None or former.broker != broker:
            text = "broker %s (id %d, cluster %s) is at %s"
            self._log_limit.log(log, logging.INFO, text, broker.name, broker.id, broker.cluster, shown(broker.address))
        is_new = self._join_group(broker)
        if broker.id == MASTER:
            self._groups[broker.name].dead_master = ""
            self.vanished_brokers.pop(broker.name, None)
        is_known = former is not None and former.topics_version is not None and former.topics_version.is_same(version)
        live_broker = self._live_brokers[broker.address] = _LiveBroker(broker, now_s, None, ha_address, connection)
        if broker.id == MASTER and (is_new or not is_known):
            yield from self._add_topics(live_broker, topics)
        live_broker.note_topics_added(version)
        if broker.id == MASTER:
            return None
        address = self._groups[broker.name].addresses.get(MASTER, "")
        master = self._live_brokers.get(address)
        return Master(address, master.ha_address if master else "")

    def _add_topics(self, live_broker: _LiveBroker, topics: Iterable[TopicConfig]) -> Steps[None]:
        group = self._groups[live_broker.broker.name]
        for topic in topics:
            queues = Queues(topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag)
            self._topics.setdefault(topic.topic_name, {})[group] = queues
            yield
            if self._live_brokers.get(live_broker.broker.address) is not live_broker:
                return

    def is_current(self, broker: BrokerId, version: DataVersion, *, connection: object, now_s: float) -> bool:
        """Whether the broker is registered with this version of its topics. If so, this is a sign of life."""
        live_broker = self._broker_shown_at(broker.address)
        if live_broker is None or live_broker.broker != broker or live_broker.topics_version is None:
            return False
        if not live_broker.topics_version.is_same(version):
            return False
        live_broker.last_heard_s, live_broker.connection = now_s, connection
        return True

    def version_of(self, address: str) -> DataVersion | None:
        """The known version of a broker's topics; None if there is none, or if another broker took its name and id."""
        live_broker = self._broker_shown_at(address)
        return live_broker.topics_version if live_broker else None

    def unregister(self, broker: BrokerId) -> None:
        live_broker = self._live_brokers.get(broker.address)
        if live_broker is not None and live_broker.broker.name == broker.name:
            self._forget(live_broker, "it said goodbye", is_dead=False)

    def forget_connection(self, connection: object) -> None:
        """Forget every broker whose connection was the one that ended."""
        for live_broker in [each for each in self._live_brokers.values() if each.connection is connection]:
            self._forget(live_broker, "its connection ended")

    def expire(self, age: Callable[[float], float]) -> list[object]:
        """Forget every broker that was silent for too long. Returns their connections. `age` is `Clock.age`."""
        silent = [each for each in self._live_brokers.values() if age(each.last_heard_s) > EXPIRY_S]
        for live_broker in silent:
            self._forget(live_broker, f"it was silent for {EXPIRY_S:g} s")
        return [live_broker.connection for live_broker in silent]

    def has_master(self, name: str) -> bool:
        return name in self._groups and MASTER in self._groups[name].addresses

    def drain(self, broker_name: str) -> int:
        """Show a broker's queues without the permission to write. Returns the number of its topics. Unlike Java: this
        also holds for later topics, until `undrain` or until the broker is gone."""
        if broker_name in self._groups:
            self._drained.add(broker_name)
        return self._count_topics(broker_name)

    def undrain(self, broker_name: str) -> int:
        """Show a broker's queues with their own permissions again. Returns the number of its topics."""
        self._drained.discard(broker_name)
        return self._count_topics(broker_name)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, in one cluster or in all, until a broker announces it again."""
        by_group = self._topics.get(topic, {})
        for group in [group for group in by_group if cluster in (None, group.cluster)]:
            del by_group[group]
        if not by_group:
            self._topics.pop(topic, None)

    def route(self, topic: str) -> TopicRoute | None:
        """The queues of a topic and the brokers that have them, or None when no broker does."""
        by_group = {group: queues for group, queues in self._topics.get(topic, {}).items() if not group.is_gone}
        by_group = by_group or self._queues_of_cluster(topic)
        if not by_group:
            return None
        return TopicRoute(
            broker_datas=[self._broker_route(group) for group in by_group],
            queue_datas=[self._shown_queues(group.name, queues) for group, queues in by_group.items()],
        )

    def clusters(self) -> ClusterTable:
        """All brokers, and which cluster each belongs to."""
        names: dict[str, list[str]] = {}
        for name, group in self._groups.items():
            names.setdefault(group.cluster, []).append(name)
        return ClusterTable({name: self._broker_route(group) for name, group in self._groups.items()}, names)

    def addresses_of(self, broker_name: str) -> dict[int, str]:
        group = self._groups.get(broker_name)
        return dict(group.addresses) if group is not None else {}

    @property
    def topic_count(self) -> int:
        """The number of topics. Those of a group that is gone count until they are removed, within moments."""
        return len(self._topics)

    def topic_names(self, cluster: str | None = None) -> Steps[list[str]]:
        names = []
        for topic in list(self._topics):
            if any(not group.is_gone and cluster in (None, group.cluster) for group in self._topics.get(topic, ())):
                names.append(topic)
            yield
        return names

    def system_topics(self) -> TopicList:
        """The topics named like clusters and brokers, and a broker's address for the other system topics."""
        clusters = {group.cluster: None for group in self._groups.values()}
        address = next((a for group in self._groups.values() for a in group.addresses.values()), None)
        return TopicList([*clusters, *self._groups], address)

    def _broker_shown_at(self, address: str) -> _LiveBroker | None:
        """The broker at an address, if its group has it. If two brokers have one name and id, the second takes the
        place of the first, and leaves it empty when it goes. The first is still alive then, and must register again."""
        live_broker = self._live_brokers.get(address)
        group = self._groups.get(live_broker.broker.name) if live_broker else None
        if live_broker is None or group is None or group.addresses.get(live_broker.broker.id) != address:
            return None
        return live_broker

    def _join_group(self, broker: BrokerId) -> bool:
        """Add a broker to its group. Returns whether it is new there."""
        group = self._groups.setdefault(broker.name, _Group(broker.name, broker.cluster))
        group.cluster = broker.cluster
        # A slave that became a master comes from the same address with another id.
        for former_id in [id for id, at in group.addresses.items() if at == broker.address and id != broker.id]:
            del group.addresses[former_id]
        former_address = group.addresses.get(broker.id)
        if former_address not in (None, broker.address):
            text, addresses = (
                "broker %s (id %d) was at %s and is now at %s",
                (shown(former_address), shown(broker.address)),
            )
            self._log_limit.log(log, logging.WARNING, text, broker.name, broker.id, *addresses)
        group.addresses[broker.id] = broker.address
        return former_address != broker.address

    def _forget(self, live_broker: _LiveBroker, reason: str, is_dead: bool = True) -> None:
        broker = live_broker.broker
        text = "broker %s (id %d) at %s is gone: %s"
        self._log_limit.log(log, logging.INFO, text, broker.name, broker.id, shown(broker.address), reason)
        del self._live_brokers[broker.address]
        group = self._groups.get(broker.name)
        if group is None or group.addresses.get(broker.id) != broker.address:
            return
        del group.addresses[broker.id]
        if is_dead and broker.id == MASTER:
            group.dead_master = broker.address
        if not group.addresses:
            del self._groups[broker.name]
            group.is_gone = True
            self._drained.discard(broker.name)
            is_dead = is_dead or bool(group.dead_master)
            self._run_later(self._remove_queues(group, group.dead_master or broker.address, is_dead))

    def _remove_queues(self, group: _Group, address: str, is_dead: bool) -> Steps[None]:
        """Remove the queues of a group that is gone. If it died, `vanished_brokers` gets it with its topics."""
        topics = []
        for topic in list(self._topics):
            by_group = self._topics.get(topic, {})
            if by_group.pop(group, None) is not None:
                topics.append(topic)
                if not by_group:
                    del self._topics[topic]
            yield
        if is_dead and not self.has_master(group.name) and len(self.vanished_brokers) < MAX_LOST_BROKERS:
            room = MAX_LOST_TOPICS - sum(len(lost_broker.topics) for lost_broker in self.vanished_brokers.values())
            self.vanished_brokers[group.name] = VanishedBroker(group.cluster, address, tuple(topics[:room]))

    def _queues_of_cluster(self, topic: str) -> dict[_Group, Queues]:
        """The queues of a topic named like a cluster: all its brokers have it, so tools find them by it."""
        return {group: _CLUSTER_TOPIC for group in self._groups.values() if group.cluster == topic}

    def _broker_route(self, group: _Group) -> BrokerRoute:
        return BrokerRoute(cluster=group.cluster, broker_name=group.name, broker_addrs=dict(group.addresses))

    def _shown_queues(self, name: str, queues: Queues) -> QueueRoute:
        perm = queues.perm & ~Perm.WRITE if name in self._drained else queues.perm
        return QueueRoute(name, queues.read_count, queues.write_count, perm, queues.sys_flag)

    def _count_topics(self, broker_name: str) -> int:
        group = self._groups.get(broker_name)
        return sum(group in by_group for by_group in self._topics.values()) if group is not None else 0
