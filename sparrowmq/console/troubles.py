"""Troubles of the cluster: since when, which topics and groups suffer, and what to do.

    conditions    of which servers, and the console, report that they do less than expected (docs/operate/conditions.md)
    no_answer     a broker is registered, and does not answer
    no_master     only slaves of a name are registered
    missing       fewer brokers of a name are registered than the console has seen, or none
    name_server_dead    a name server does not answer, and another one does
    no_name_server

The console looks every few seconds, whether a page is open or not. It remembers the brokers that it has seen, because
a name server forgets a broker as soon as its connection ends. A broker that was removed for good is forgotten by an
administrator's click, or after a week.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from sparrowmq.admin.catalogue import conditions_of_namesrv, groups_of_topic, topic_table
from sparrowmq.admin.findings import (
    ELECTION_ADVICE,
    HEADLESS,
    NO_ANSWER,
    Sign,
    elects_master,
    reported_conditions,
    with_causes,
)
from sparrowmq.console.cluster_view import BrokerNow, ClusterView
from sparrowmq.errors import BrokerUnreachable, NetworkError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.requests.bodies import MASTER, TopicConfig

_WEEK_MS: Final = 7 * 86_400_000
_GROUPS_S: Final = 60.0  # how long the groups that suffer are kept
_TOPICS_S: Final = 30.0
_MAX_TOPICS: Final = 50  # topics whose groups are asked for
_CRITICAL: Final = "critical"
_AWAY: Final = ("no_answer", "no_master", "missing")

# The names in the rules of findings.py; the condition no_master is another one.
_SIGNS: Final = {"no_master": HEADLESS, "no_name_server": NO_ANSWER, "name_server_dead": NO_ANSWER}
_RESTART_REMEDY: Final = "see whether it runs, and start it again"
_REMEDIES: Final = {
    "no_answer": "see whether its process hangs, and whether this machine reaches its port; restart it if it hangs",
    "no_master": f"{_RESTART_REMEDY}; or make a slave the master (docs/operate/replication.md)",
    "missing": f"{_RESTART_REMEDY}; if it was removed for good, an administrator forgets it on the page Conditions",
    "refused": "start the console with an account that may, by --access-key and --secret-key",
    "name_server_dead": "start it again with `mqnamesrv`; brokers and clients use the others meanwhile",
    "no_name_server": "start one with `mqnamesrv`, or start the console with the right addresses (-n)",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong at one broker, or at the name servers."""

    name: str  # of the condition, or one of those above
    is_critical: bool
    broker: str
    subject: str
    text: str
    remedy: str
    since_ms: int  # as far as it is known
    is_older: bool = False  # the console found it at its first poll
    queues: int = 0  # queues, topics and groups of applications that suffer
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    sign: Sign | None = None  # what the rules of findings.py read of it
    cause: str = ""  # the title of the trouble from which this one follows
    has_critical_effects: bool = False

    @property
    def is_urgent(self) -> bool:
        return self.is_critical or self.has_critical_effects

    @property
    def is_everywhere(self) -> bool:
        """Whether all topics and brokers suffer."""
        return self.name == "no_name_server"

    @property
    def title(self) -> str:
        return f"{self.subject}: {self.name}"


@dataclass(slots=True)
class _KnownName:
    """The brokers of one name that the console has seen."""

    cluster: str
    max_count: int = 0  # that were registered at the same time
    # Each address with its number, and the time when it was registered last.
    addresses: dict[str, tuple[int, int]] = field(default_factory=dict)


class Troubles:
    """All troubles of now, the worst and oldest first."""

    def __init__(self, cluster: ClusterView, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._names: dict[str, _KnownName] = {}
        self._since: dict[tuple[str, str], tuple[int, bool]] = {}
        self._current: tuple[Trouble, ...] = ()
        self._lost: tuple[BrokerNow, ...] = ()
        self._groups: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._has_polled = False
        self._slave_tables: dict[str, Mapping[str, TopicConfig]] = {}
        self._next_topics_s = 0.0

    def current(self) -> tuple[Trouble, ...]:
        return self._current

    def lost_brokers(self) -> tuple[BrokerNow, ...]:
        """The brokers that are not registered any more; none of them answers."""
        return self._lost

    def of_broker(self, broker: str) -> list[Trouble]:
        return self._with_causes(
            [trouble for trouble in self._current if trouble.broker == broker or trouble.is_everywhere]
        )

    def of_topics(self, topics: Iterable[str]) -> list[Trouble]:
        """The troubles that keep some topics from being used."""
        topic_set = set(topics)
        return self._with_causes(
            [trouble for trouble in self._current if trouble.is_everywhere or not topic_set.isdisjoint(trouble.topics)]
        )

    def _with_causes(self, troubles: Sequence[Trouble]) -> list[Trouble]:
        titles = {trouble.title for trouble in troubles}
        while (
            causes := {trouble.cause for trouble in self._current if trouble.title in titles and trouble.cause} - titles
        ):
            titles |= causes
        return [trouble for trouble in self._current if trouble.title in titles]

    def left_out_queues(self, topic: str, silent: Iterable[str] = ()) -> dict[str, int]:
        """The brokers whose messages of a topic cannot be read, and the number of its queues there; 0 if unknown.

        `silent` are brokers that did not answer just now.
        """
        away = {
            trouble.broker
            for trouble in self._current
            if trouble.name in _AWAY and trouble.is_critical and topic in self._table(trouble.broker)
        }
        tables = {name: self._table(name) for name in sorted(away.union(silent))}
        return {name: table[topic].read_queue_nums if topic in table else 0 for name, table in tables.items()}

    def forget(self, broker: str) -> None:
        """Expect no more brokers of a name than are registered now."""
        self._names.pop(broker, None)
        self._cluster.tables.pop(broker, None)
        self._lost = tuple(lost for lost in self._lost if lost.name != broker)
        self._current = tuple(
            trouble for trouble in self._current if trouble.name != "missing" or trouble.broker != broker
        )

    async def poll(self) -> Sequence[BrokerNow]:
        """Poll all brokers, and return those that are registered. Raises: what `ClusterView.poll_brokers` raises."""
        try:
            brokers = await self._cluster.poll_brokers()
        except NetworkError as error:
            subject, address = f"name server {self._cluster.servers.namesrv}", self._cluster.name_servers[0]
            silent = self._trouble("no_name_server", True, "", subject, str(error), address, is_master=False)
            known_brokers = [
                BrokerNow(known.cluster, name, number, address, {}, None)
                for name, known in self._names.items()
                for address, (number, _) in known.addresses.items()
            ]
            await self.update(await self._cluster.poll_known(known_brokers), [silent])
            raise
        await self.update(brokers, await self._name_server_troubles())
        return brokers

    async def _name_server_troubles(self) -> list[Trouble]:
        servers = self._cluster.servers
        answers, failures = await servers.ask_namesrvs(lambda address: conditions_of_namesrv(servers, address))
        troubles = [
            self._trouble("name_server_dead", False, "", f"name server {address}", str(error), address, is_master=False)
            for address, error in failures.items()
            if isinstance(error, NetworkError)
        ]
        for address, figures in answers.items():
            troubles += _reported_troubles(figures, "", f"name server {address}", address)
        return troubles

    async def update(self, brokers: Sequence[BrokerNow], of_name_servers: Sequence[Trouble] = ()) -> None:
        """Find what is wrong, given the brokers that are registered."""
        self._remember(brokers)
        own_troubles = _reported_troubles(self._cluster.conditions.as_properties(), "", "this console", "")
        troubles = [*own_troubles, *of_name_servers]
        for broker in brokers:
            troubles += self._troubles_of(broker)
        registered = sorted({broker.name for broker in brokers})
        for name in registered:
            members = [broker for broker in brokers if broker.name == name]
            if all(member.number != MASTER for member in members):
                slaves = ", ".join(member.address for member in members)
                text = f"no broker of this name is the master; registered are only slaves ({slaves})"
                trouble = self._trouble("no_master", True, name, f"broker {name}", text, "")
                is_elected = any(elects_master(member.figures) for member in members)
                troubles.append(replace(trouble, remedy=ELECTION_ADVICE) if is_elected else trouble)
        headless = {trouble.broker for trouble in troubles if trouble.name == "no_master"}
        for lost in self._lost:
            is_master = lost.number == MASTER
            if is_master and lost.name in registered and lost.name in headless:
                continue
            text = f"it was registered at {lost.address}, and is no more"
            is_critical = lost.name not in registered
            troubles.append(
                self._trouble("missing", is_critical, lost.name, _broker_text(lost), text, lost.address, is_master)
            )
        await self._learn_topics(brokers)
        troubles = [await self._with_topics_and_groups(trouble, brokers) for trouble in troubles]
        self._current = ranked(troubles)
        current = {(trouble.name, trouble.subject) for trouble in troubles}
        self._since = {key: begun for key, begun in self._since.items() if key in current}
        self._has_polled = True

    def _troubles_of(self, broker: BrokerNow) -> list[Trouble]:
        subject, is_master, address = _broker_text(broker), broker.number == MASTER, broker.address
        if broker.silence is not None:
            name, is_critical = "refused", False
            if isinstance(broker.silence, NetworkError):
                name, is_critical = "no_answer", is_master
            return [self._trouble(name, is_critical, broker.name, subject, str(broker.silence), address, is_master)]
        return _reported_troubles(broker.figures, broker.name, subject, address, is_master)

    def _trouble(
        self, name: str, is_critical: bool, broker: str, subject: str, text: str, address: str, is_master: bool = True
    ) -> Trouble:
        begun = self._since.setdefault((name, subject), (self._clock.now_ms(), not self._has_polled))
        sign = Sign(_SIGNS.get(name, name), broker, address, is_master, text)
        return Trouble(name, is_critical, broker, subject, text, _REMEDIES[name], *begun, sign=sign)

    def _remember(self, brokers: Sequence[BrokerNow]) -> None:
        """Note which brokers are registered, and find those that were and are no more."""
        now_ms, counts = self._clock.now_ms(), dict[str, int]()
        for broker in brokers:
            known = self._names.setdefault(broker.name, _KnownName(broker.cluster))
            known.addresses[broker.address] = broker.number, now_ms
            counts[broker.name] = counts.get(broker.name, 0) + 1
        lost: list[BrokerNow] = []
        for name, known in list(self._names.items()):
            addresses = known.addresses
            known.max_count = max(known.max_count, counts.get(name, 0))
            gone = [(last_ms, number, address) for address, (number, last_ms) in addresses.items() if last_ms < now_ms]
            # An address that was replaced by another one is not missing.
            missing = sorted(gone, reverse=True)[: known.max_count - counts.get(name, 0)]
            for last_ms, number, address in gone:
                if (last_ms, number, address) not in missing or now_ms - last_ms > _WEEK_MS:
                    del addresses[address]
            known.max_count = min(known.max_count, len(addresses))
            if not addresses:
                del self._names[name]
            reason = BrokerUnreachable(name, "it is not registered at the name server any more")
            lost += [
                BrokerNow(known.cluster, name, number, address, {}, reason)
                for _, number, address in missing
                if address in addresses
            ]
        self._lost = tuple(lost)

    async def _learn_topics(self, brokers: Sequence[BrokerNow]) -> None:
        """Read the topics of all masters twice a minute; of a master that never answered, its slave knows them."""
        if self._clock.monotonic() < self._next_topics_s:
            return
        self._next_topics_s = self._clock.monotonic() + _TOPICS_S
        with suppress(SparrowError):
            await self._cluster.topics()
        for broker in brokers:
            if broker.number != MASTER and broker.silence is None and broker.name not in self._cluster.tables:
                with suppress(SparrowError):
                    self._slave_tables[broker.name] = await topic_table(self._cluster.servers, broker.address)

    def _table(self, broker: str) -> Mapping[str, TopicConfig]:
        """The topics of a broker, as it or its slave answered last."""
        return self._cluster.tables.get(broker) or self._slave_tables.get(broker, {})

    async def _with_topics_and_groups(self, trouble: Trouble, brokers: Sequence[BrokerNow]) -> Trouble:
        """The trouble with its topics and groups, if it keeps a master from its work."""
        is_of_slave = any(
            _broker_text(broker) == trouble.subject and broker.number != MASTER for broker in (*brokers, *self._lost)
        )
        if not trouble.is_critical or not trouble.broker or is_of_slave:
            return trouble
        table = self._table(trouble.broker)
        topics = [name for name in sorted(table) if self._cluster.kind_of(name) == "topic"]
        queues = sum(max(table[name].read_queue_nums, table[name].write_queue_nums) for name in topics)
        groups = await self._groups_of(trouble.broker, topics, brokers)
        return replace(trouble, queues=queues, topics=tuple(topics), groups=groups)

    async def _groups_of(self, name: str, topics: Sequence[str], brokers: Sequence[BrokerNow]) -> tuple[str, ...]:
        """The groups that consume topics of a broker, as the brokers know that answer; at most a minute old."""
        cached = self._groups.get(name)
        if cached is not None and self._clock.monotonic() - cached[0] < _GROUPS_S:
            return cached[1]
        servers = self._cluster.servers
        questions = {
            f"{broker.address} {topic}": broker.address
            for broker in brokers
            if broker.silence is None and (broker.number == MASTER or broker.name == name)
            for topic in topics[:_MAX_TOPICS]
        }
        answers, _ = await servers.ask_masters(
            questions, lambda question, address: groups_of_topic(servers, address, question.partition(" ")[2])
        )
        groups = tuple(sorted({group for answer in answers.values() for group in answer}))
        self._groups[name] = self._clock.monotonic(), groups
        return groups


def _reported_troubles(
    figures: Mapping[str, str], broker: str, subject: str, address: str, is_master: bool = True
) -> list[Trouble]:
    return [
        Trouble(
            name,
            condition.severity == _CRITICAL,
            broker,
            subject,
            condition.what,
            condition.remedy,
            condition.since_ms,
            sign=Sign(name, broker, address, is_master, condition.what, condition.cause or ""),
        )
        for name, condition in reported_conditions(figures).items()
    ]


def ranked(troubles: Iterable[Trouble]) -> tuple[Trouble, ...]:
    """Return the worst and oldest first, and what follows from a trouble after it."""
    worst_first = sorted(troubles, key=lambda trouble: (not trouble.is_critical, trouble.since_ms, trouble.subject))
    trees = [
        [trouble if cause is None else replace(trouble, cause=cause.title) for trouble, cause in tree]
        for tree in with_causes(worst_first, lambda trouble: trouble.sign)
    ]
    # A warning with critical effects, such as a lost slave, is as urgent as they are.
    urgent = [
        [replace(tree[0], has_critical_effects=any(trouble.is_critical for trouble in tree[1:])), *tree[1:]]
        for tree in trees
    ]
    return tuple(trouble for tree in sorted(urgent, key=lambda tree: not tree[0].is_urgent) for trouble in tree)


def _broker_text(broker: BrokerNow) -> str:
    return f"broker {broker.name} ({broker.role}) at {broker.address}"
