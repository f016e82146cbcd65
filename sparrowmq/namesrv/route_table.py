"""The route table: which broker has which topic, as brokers registered. Pure: time is passed in.

    announce    a broker registers with its topics: every 30 s, and when the topics changed
    is_current  a broker asks whether its registration is current, which is also a sign of life
    leave       it unregisters           lost    its connection ended          expire    it was silent for 120 s

    groups      broker name -> cluster, and id -> address            a master (id 0) and its slaves
    living      address     -> last sign of life, version of its topics, the connection of its requests
    topics      topic       -> group       -> queues
    drained     broker names that are shown without the permission to write
    vanished    broker names that went without a goodbye, until they come back

A broker's topics go when the last address of its name is gone. Only masters announce topics.

A broker may have 50,000 topics. They are added in steps, and the broker's version is known after the last one. When a
group is gone, no reader sees its queues any more, and steps remove them later. A broker that comes back in the meantime
gets another group.
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
MOST_LOST: Final = 1000
MOST_LOST_TOPICS: Final = 200_000
_LINES: Final = 200  # a minute of each kind: all brokers of most clusters, after a name server's restart
_HAS_ADDRESS: Final = (
    "broker %s is registered at %s over another connection; give this broker another address, or try again when that "
    "one is gone, within two minutes"
)


class BrokerId(NamedTuple):
    """A broker's identity, as it registers."""

    cluster: str
    name: str
    id: int
    address: str


class Queues(NamedTuple):
    """A topic's queues on one broker."""

    read: int
    write: int
    perm: int
    sys_flag: int = 0


class Master(NamedTuple):
    """The addresses of a slave's master; "" if it is unknown."""

    address: str
    ha_address: str


class Vanished(NamedTuple):
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
    dead: str = ""  # the address of a master that went without a goodbye


@dataclass(slots=True)
class _Living:
    broker: BrokerId
    heard_s: float
    version: DataVersion | None  # None until all topics are added
    ha_address: str
    via: object


# The queues of the topic with the cluster's name (Java: TopicConfigManager).
_CLUSTER_TOPIC: Final = Queues(16, 16, Perm.READ_WRITE | Perm.INHERIT)


class Routes:
    """The table of all brokers and topics.

    Attributes:
        later: does steps that no caller waits for.
        vanished: by name; only the death of a broker puts it here, not a stop.
    """

    def __init__(self) -> None:
        self.later: Callable[[Steps[None]], object] = at_once
        self._lines = LogLimit(SystemClock(), _LINES)  # a broker can come, go and be renamed at will
        self.vanished: dict[str, Vanished] = {}
        # Invariant: each living address is in the group of its name, unless another broker took its id there.
        self._groups: dict[str, _Group] = {}
        self._living: dict[str, _Living] = {}
        self._topics: dict[str, dict[_Group, Queues]] = {}
        self._drained: set[str] = set()

    def announcing(
        self,
        broker: BrokerId,
        topics: Iterable[TopicConfig],
        version: DataVersion,
        *,
        ha_address: str,
        via: object,
        now_s: float,
    ) -> Steps[Master | None]:
        """Register a broker over the connection `via`. Returns the master's addresses to a slave.

        A broker that goes meanwhile gets no more topics.

        Raises: RemoteError, a broker of another name has the address, over another connection.
        """
        before = self._living.get(broker.address)
        if before is not None and before.broker.name != broker.name:
            if before.via is not via:
                raise RemoteError(ResponseCode.SYSTEM_ERROR, _HAS_ADDRESS % (before.broker.name, broker.address))
            self._forget(before, f"it is called {broker.name} now", is_dead=False)
        if before is None or before.broker != broker:
            text = "broker %s (id %d, cluster %s) is at %s"
            self._lines.log(log, logging.INFO, text, broker.name, broker.id, broker.cluster, shown(broker.address))
        is_new = self._join_group(broker)
        if broker.id == MASTER:
            self._groups[broker.name].dead = ""
            self.vanished.pop(broker.name, None)
        is_known = before is not None and before.version is not None and before.version.is_same(version)
        living = self._living[broker.address] = _Living(broker, now_s, None, ha_address, via)
        if broker.id == MASTER and (is_new or not is_known):
            yield from self._adding(living, topics)
        living.version = version
        return None if broker.id == MASTER else self._master_of(broker.name)

    def _adding(self, living: _Living, topics: Iterable[TopicConfig]) -> Steps[None]:
        group = self._groups[living.broker.name]
        for topic in topics:
            queues = Queues(topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag)
            self._topics.setdefault(topic.topic_name, {})[group] = queues
            yield
            if self._living.get(living.broker.address) is not living:
                return

    def is_current(self, broker: BrokerId, version: DataVersion, *, via: object, now_s: float) -> bool:
        """Whether the broker is registered with this version of its topics. If so, this is a sign of life."""
        living = self._shown_at(broker.address)
        if living is None or living.broker != broker or living.version is None:
            return False
        if not living.version.is_same(version):
            return False
        living.heard_s, living.via = now_s, via
        return True

    def version_of(self, address: str) -> DataVersion | None:
        """The known version of a broker's topics; None if there is none, or if another broker took its name and id."""
        living = self._shown_at(address)
        return living.version if living else None

    def leave(self, broker: BrokerId) -> None:
        living = self._living.get(broker.address)
        if living is not None and living.broker.name == broker.name:
            self._forget(living, "it said goodbye", is_dead=False)

    def lost(self, via: object) -> None:
        """Forget every broker whose connection was the one that ended."""
        for living in [each for each in self._living.values() if each.via is via]:
            self._forget(living, "its connection ended")

    def expire(self, age: Callable[[float], float]) -> list[object]:
        """Forget every broker that was silent for too long. Returns their connections.

        Args:
            age: the seconds since a moment, as clocks count them (`Clock.age`).
        """
        silent = [each for each in self._living.values() if age(each.heard_s) > EXPIRY_S]
        for living in silent:
            self._forget(living, f"it was silent for {EXPIRY_S:g} s")
        return [living.via for living in silent]

    def has_master(self, name: str) -> bool:
        return name in self._groups and MASTER in self._groups[name].addresses

    def drain(self, broker_name: str) -> int:
        """Show a broker's queues without the permission to write. Returns the number of its topics.

        Unlike Java: this also holds for later topics, until `undrain` or until the broker is gone.
        """
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
        by_group = by_group or self._of_cluster(topic)
        if not by_group:
            return None
        return TopicRoute(
            broker_datas=[self._addresses(group) for group in by_group],
            queue_datas=[self._shown(group.name, queues) for group, queues in by_group.items()],
        )

    def clusters(self) -> ClusterTable:
        """All brokers, and which cluster each belongs to."""
        names: dict[str, list[str]] = {}
        for name, group in self._groups.items():
            names.setdefault(group.cluster, []).append(name)
        return ClusterTable({name: self._addresses(group) for name, group in self._groups.items()}, names)

    def addresses_of(self, broker_name: str) -> dict[int, str]:
        """The addresses of the brokers of one name, by their ids."""
        group = self._groups.get(broker_name)
        return dict(group.addresses) if group is not None else {}

    @property
    def topic_count(self) -> int:
        """The number of topics. Those of a group that is gone count until they are removed, within moments."""
        return len(self._topics)

    def naming(self, cluster: str | None = None) -> Steps[list[str]]:
        """Return the topics of one cluster or of all."""
        found = []
        for topic in list(self._topics):
            if any(not group.is_gone and cluster in (None, group.cluster) for group in self._topics.get(topic, ())):
                found.append(topic)
            yield
        return found

    def system_topics(self) -> TopicList:
        """The topics named like clusters and brokers, and a broker's address for the other system topics."""
        clusters = {group.cluster: None for group in self._groups.values()}
        address = next((a for group in self._groups.values() for a in group.addresses.values()), None)
        return TopicList([*clusters, *self._groups], address)

    def _shown_at(self, address: str) -> _Living | None:
        """The broker at an address, if its group has it.

        If two brokers have one name and id, the second takes the place of the first, and leaves it empty when it goes.
        The first is still alive then, and must register again.
        """
        living = self._living.get(address)
        group = self._groups.get(living.broker.name) if living else None
        if living is None or group is None or group.addresses.get(living.broker.id) != address:
            return None
        return living

    def _join_group(self, broker: BrokerId) -> bool:
        """Add a broker to its group. Returns whether it is new there."""
        group = self._groups.setdefault(broker.name, _Group(broker.name, broker.cluster))
        group.cluster = broker.cluster
        # A slave that became a master comes from the same address with another id.
        for stale in [id for id, address in group.addresses.items() if address == broker.address and id != broker.id]:
            del group.addresses[stale]
        holder = group.addresses.get(broker.id)
        if holder not in (None, broker.address):
            text = "broker %s (id %d) was at %s and is now at %s"
            self._lines.log(log, logging.WARNING, text, broker.name, broker.id, shown(holder), shown(broker.address))
        group.addresses[broker.id] = broker.address
        return holder != broker.address

    def _master_of(self, name: str) -> Master:
        address = self._groups[name].addresses.get(MASTER, "")
        living = self._living.get(address)
        return Master(address, living.ha_address if living else "")

    def _forget(self, living: _Living, reason: str, is_dead: bool = True) -> None:
        who = living.broker
        text = "broker %s (id %d) at %s is gone: %s"
        self._lines.log(log, logging.INFO, text, who.name, who.id, shown(who.address), reason)
        del self._living[who.address]
        group = self._groups.get(who.name)
        if group is None or group.addresses.get(who.id) != who.address:
            return
        del group.addresses[who.id]
        if is_dead and who.id == MASTER:
            group.dead = who.address
        if not group.addresses:
            del self._groups[who.name]
            group.is_gone = True
            self._drained.discard(who.name)
            self.later(self._removing(group, group.dead or who.address, is_dead or bool(group.dead)))

    def _removing(self, group: _Group, address: str, is_dead: bool) -> Steps[None]:
        """Remove the queues of a group that is gone. If it died, `vanished` gets it with its topics."""
        topics = []
        for topic in list(self._topics):
            by_group = self._topics.get(topic, {})
            if by_group.pop(group, None) is not None:
                topics.append(topic)
                if not by_group:
                    del self._topics[topic]
            yield
        if is_dead and not self.has_master(group.name) and len(self.vanished) < MOST_LOST:
            room = MOST_LOST_TOPICS - sum(len(each.topics) for each in self.vanished.values())
            self.vanished[group.name] = Vanished(group.cluster, address, tuple(topics[:room]))

    def _of_cluster(self, topic: str) -> dict[_Group, Queues]:
        """The queues of a topic named like a cluster: all its brokers have it, so tools find them by it."""
        return {group: _CLUSTER_TOPIC for group in self._groups.values() if group.cluster == topic}

    def _addresses(self, group: _Group) -> BrokerRoute:
        return BrokerRoute(cluster=group.cluster, broker_name=group.name, broker_addrs=dict(group.addresses))

    def _shown(self, name: str, queues: Queues) -> QueueRoute:
        perm = queues.perm & ~Perm.WRITE if name in self._drained else queues.perm
        return QueueRoute(name, queues.read, queues.write, perm, queues.sys_flag)

    def _count_topics(self, broker_name: str) -> int:
        group = self._groups.get(broker_name)
        return sum(group in by_group for by_group in self._topics.values()) if group is not None else 0
