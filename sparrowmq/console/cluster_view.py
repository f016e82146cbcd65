"""Reads the cluster for the pages, through one client and its `Admin`. No other file of the console does.

It keeps what is expensive: the tables of topics and groups and the lags of all groups for a few seconds, the figures of
single topics and groups for as long as a page allows. Brokers report the lags of all groups at once. What a topic has
and receives, and the members of a group, each cost a request to each of its masters. So a list of 50 rows asks for its
own rows only; a list that is sorted by such a figure asks for all rows, and then not again for minutes.

Visitors of all roles see settings without secrets. SparrowMQ's servers hide theirs, Apache's send them, so other files
of the console read settings only here. Every call may raise the errors of `Admin`; `View` shows them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from sparrowmq.admin import brokers, catalogue, groups
from sparrowmq.admin.admin import Admin
from sparrowmq.admin.catalogue import RequestSender, broker_figures, producers, topic_offsets, topic_table
from sparrowmq.admin.groups import GroupLag, ResetTo
from sparrowmq.admin.servers import Masters, Servers
from sparrowmq.client.client import Client
from sparrowmq.client.cluster.credentials import Credentials, Tls, tls_context
from sparrowmq.client.cluster.name_servers import addresses_of
from sparrowmq.console.console_metrics import CountedAdmin, CountedServers
from sparrowmq.errors import ConfigError, NetworkError, NoGroup, SparrowError
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.metrics.condition_kinds import Probe
from sparrowmq.metrics.conditions import Conditions, client_certificate_probe
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import DLQ, REPLY_SUFFIX, RETRY, is_system_topic
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.protocol.requests.client_bodies import ProducerEntry

_TABLE_AGE_S: Final = 3.0
_MAX_SINGLE_LAGS: Final = 8  # groups whose lags cost less one by one than those of all groups at once
_AT_ONCE: Final = 35
PAGE_AGE_S: Final = 20.0  # the age of figures on a page
SORTING_AGE_S: Final = 300.0  # the age of figures of all rows, for sorting
HIDDEN: Final = "••••••"
_SECRET_WORDS: Final = (
    "secret",
    "password",
    "privatekey",
    "credential",
    "token",
    "authenticationuser",
    "exporterheader",
)
_SECRET_MEMBERS: Final = ('"secretkey"', '"password"')  # keys of a value in JSON
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class BrokerNow:
    """One broker, master or slave, as it is now."""

    cluster: str
    name: str
    number: int  # 0 is the master
    address: str
    figures: Mapping[str, str]  # by Java's names; empty if it does not answer
    silence: SparrowError | None  # why it does not

    @property
    def role(self) -> str:
        return "master" if self.number == 0 else f"slave {self.number}"

    def per_second(self, *names: str) -> float:
        """A rate of about the last ten seconds, by the first of its names that exists; 0 if none does."""
        return brokers.per_second(self.figures, *names) or 0.0

    def number_of(self, key: str) -> int:
        try:
            return int(self.figures.get(key, "0"))
        except ValueError:
            return 0

    @property
    def in_per_second(self) -> float:
        """Messages per second that producers send to it."""
        return self.per_second(*brokers.IN_RATES)

    @property
    def out_per_second(self) -> float:
        """Messages per second that it delivers."""
        return self.per_second(*brokers.OUT_RATES)

    @property
    def received_today(self) -> int:
        return self.number_of("msgPutTotalTodayNow") - self.number_of("msgPutTotalTodayMorning")

    @property
    def received_yesterday(self) -> int:
        return self.number_of("msgPutTotalTodayMorning") - self.number_of("msgPutTotalYesterdayMorning")

    @property
    def delivered_yesterday(self) -> int:
        return self.number_of("msgGetTotalTodayMorning") - self.number_of("msgGetTotalYesterdayMorning")

    @property
    def delivered_today(self) -> int:
        return self.number_of("msgGetTotalTodayNow") - self.number_of("msgGetTotalTodayMorning")


class ClusterView:
    """The console's view of the cluster; enter it as a context. The console uses one account for all visitors."""

    def __init__(
        self, namesrv: str | None, credentials: Credentials | None = None, tls: Tls = False, clock: Clock | None = None
    ) -> None:
        context = tls_context(tls)
        self._make_client = partial(Client, namesrv, credentials=credentials, tls=context or False, clock=clock)
        self.client = self._make_client()
        self.is_encrypted = context is not None
        self.clock = clock or SystemClock()
        self.conditions = Conditions(self.clock, Figures())
        self._probes = [client_certificate_probe(self.clock, context)]
        self.watch()
        self.admin: Admin = (counted := CountedAdmin(self.client.admin.servers.network))
        self.servers: CountedServers = counted.counted
        self._polling_servers = CountedAdmin(self.client.admin.servers.network).counted  # it asks silent brokers too
        self._polling_servers.counter = self.servers
        self.tables: dict[str, Mapping[str, TopicConfig]] = {}  # the topics of each broker, as it answered last
        self._system_topics: frozenset[str] = frozenset()
        self._topics: tuple[float, dict[str, dict[str, TopicConfig]]] | None = None
        self._groups: dict[bool, tuple[float, list[str]]] = {}
        self._lags: tuple[float, dict[str, GroupLag]] | None = None
        self._members = TimedCache[int](self.clock)
        self._figures = TimedCache[TopicFigures](self.clock)
        self._reading = asyncio.Lock()

    def watch(self, *probes: Probe) -> None:
        """Watch these conditions of the console too."""
        self._probes += probes
        self.conditions.watch(self._probes)

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.__aexit__(kind, error, trace)

    def partial_admin(self) -> CountedAdmin:
        """An admin whose reads leave out the brokers that do not answer; `counted.missing` gets them."""
        admin = CountedAdmin(self.servers.network)
        admin.counted.counter = self.servers
        admin.counted.silent = self.servers.silent
        admin.counted.missing = {}
        return admin

    def new_client(self) -> Client:
        """Another client, for a consumer: one client is one member of a group. Enter it as a context."""
        return self._make_client()

    @property
    def name_servers(self) -> list[str]:
        return list(self.servers.network.name_servers.addresses)

    async def use_name_servers(self, text: str) -> None:
        """Ask other name servers from now on, for all visitors and until the console stops.

        Raises: ConfigError, an address is invalid; NetworkError, one of them does not answer. Nothing has changed then.
        """
        addresses, page = addresses_of(text)
        if page is not None:
            raise ConfigError(f"{page} is an address server; name the name servers themselves, as host:port;host:port")
        await asyncio.gather(*(namesrv_settings(self.servers, address) for address in addresses))
        self.servers.network.name_servers.addresses[:] = addresses
        self.forget()

    async def poll_brokers(self) -> list[BrokerNow]:
        """Ask every broker, and remember which do not answer: until the next look no page waits for them."""
        brokers = await self._brokers(self._polling_servers)
        self.servers.silent.clear()
        for broker in brokers:
            if isinstance(broker.silence, NetworkError):
                self.servers.silent[broker.address] = broker.silence
        return brokers

    async def brokers(self) -> list[BrokerNow]:
        """Every broker with its figures; one that does not answer has none."""
        return await self._brokers(self.servers)

    async def poll_known(self, brokers: Sequence[BrokerNow]) -> list[BrokerNow]:
        """Ask brokers whose addresses are known, when no name server names them."""

        return list(await asyncio.gather(*(_with_figures(self._polling_servers, broker) for broker in brokers)))

    async def _brokers(self, servers: CountedServers) -> list[BrokerNow]:
        brokers = [
            BrokerNow(place.cluster, place.name, number, address, {}, None)
            for place in await self.admin.brokers()
            for number, address in sorted(place.addresses.items())
        ]
        return list(await asyncio.gather(*(_with_figures(servers, broker) for broker in brokers)))

    async def topics(self) -> dict[str, dict[str, TopicConfig]]:
        """All topics with their settings by broker, as the masters have them; at most three seconds old."""
        async with self._reading:
            now_s = self.clock.monotonic()
            if self._topics is not None and now_s - self._topics[0] < _TABLE_AGE_S:
                return self._topics[1]
            places = await self.admin.brokers()
            masters = {place.name: place.master for place in places}
            names = {name for place in places for name in (place.name, place.cluster)}
            self._system_topics |= names | {name + REPLY_SUFFIX for name in names}  # also of brokers that have gone
            tables, failures = await self.servers.ask_masters(
                masters, lambda _, address: topic_table(self.servers, address)
            )
            if failures and not tables:
                raise next(iter(failures.values()))
            topics: dict[str, dict[str, TopicConfig]] = {}
            self.tables |= tables
            for broker, table in tables.items():
                for name, config in table.items():
                    topics.setdefault(name, {})[broker] = config
            self._topics = now_s, dict(sorted(topics.items()))
            return self._topics[1]

    async def groups(self, *, hidden: bool) -> list[str]:
        """The names of all groups, with RocketMQ's own if `hidden`; at most three seconds old."""
        async with self._reading:
            now_s = self.clock.monotonic()
            cached = self._groups.get(hidden)
            if cached is None or now_s - cached[0] >= _TABLE_AGE_S:
                cached = self._groups[hidden] = now_s, await self.admin.groups(hidden=hidden)
            return cached[1]

    def kind_of(self, topic: str) -> str:
        """The kind of a topic: topic, retry, dlq or system."""
        if topic.startswith(RETRY):
            return "retry"
        if topic.startswith(DLQ):
            return "dlq"
        return "system" if is_system_topic(topic) or topic in self._system_topics else "topic"

    def forget(self) -> None:
        """Drop the kept tables, because something has changed."""
        self._topics = None
        self._groups.clear()
        self._lags = None
        self._members.forget()
        self._figures.forget()

    async def producers(self) -> dict[str, list[ProducerEntry]]:
        """The online producers, by group, each once."""
        masters = await self.servers.all_masters()
        tables = await self.servers.all(masters, lambda _, address: producers(self.servers, address))
        by_group: dict[str, dict[str, ProducerEntry]] = {}
        for table in tables.values():
            for group, entries in table.items():
                by_group.setdefault(group, {}).update({entry.client_id: entry for entry in entries})
        return {group: list(members.values()) for group, members in sorted(by_group.items())}

    async def reset_targets(self, topic: str, to: ResetTo) -> dict[MessageQueue, int]:
        """The offsets of a topic's queues after a reset, if it ran now."""
        return await groups.targets(self.servers, topic, to)

    async def lags(self, names: Sequence[str]) -> dict[str, GroupLag | SparrowError]:
        """The lags of some groups, read at once; an error in the place of a lag that no broker reports."""
        if len(names) <= _MAX_SINGLE_LAGS:
            return await groups.lags(self.servers, names)
        try:
            progress, known = await self.progress(), set(await self.groups(hidden=True))
        except SparrowError as error:
            return dict.fromkeys(names, error)
        return {
            name: progress.get(name) or (GroupLag(name, (), 0.0) if name in known else NoGroup(name)) for name in names
        }

    async def progress(self) -> dict[str, GroupLag]:
        """The lag of each group that has committed offsets, by one request to each master; kept for three seconds.

        Raises: the error of a master that does not answer; a sum without its queues would be wrong.
        """
        async with self._reading:
            now_s = self.clock.monotonic()
            if self._lags is None or now_s - self._lags[0] >= _TABLE_AGE_S:
                self._lags = now_s, await groups.all_lags(self.servers)
            return self._lags[1]

    async def members(self, names: Sequence[str], age_s: float) -> dict[str, int | None]:
        """The number of online members of each group, at most so old; None if a broker does not report it."""
        masters = await self.servers.all_masters()
        return await self._members.read(names, age_s, lambda name: groups.count_members(self.servers, name, masters))

    async def topic_figures(self, names: Sequence[str], age_s: float) -> dict[str, TopicFigures | None]:
        """The figures of each topic, at most so old; None if a broker does not report them."""
        masters = await self.servers.all_masters()
        topics = await self.topics()

        async def read(name: str) -> TopicFigures:
            return await figures_of(
                self.servers, name, {broker: masters.get(broker) for broker in topics.get(name, ())}
            )

        return await self._figures.read(names, age_s, read)


async def _with_figures(servers: CountedServers, broker: BrokerNow) -> BrokerNow:
    try:
        return replace(broker, figures=await broker_figures(servers, broker.address))
    except SparrowError as error:
        return replace(broker, silence=error)


def behind_s(lag: GroupLag, now_ms: int) -> float | None:
    """The lag of a group in time: the greatest age of the last message that it has handled in a queue with a lag.

    None without a lag, or if no broker reports the age.
    """
    times = [
        queue_lag.last_consumed for queue_lag in lag.queues if queue_lag.lag > 0 and queue_lag.last_consumed is not None
    ]
    return max(0.0, now_ms / 1000 - min(times).timestamp()) if times else None


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """A topic, at all its masters."""

    messages: int
    per_second: float  # messages that it received, within the last minute
    mean_bytes: float | None  # of a stored message of the last day; None if no broker reports it

    @property
    def size(self) -> float | None:
        """About how many bytes of the log its messages take."""
        return None if self.mean_bytes is None else self.messages * self.mean_bytes


async def figures_of(servers: Servers, topic: str, masters: Masters) -> TopicFigures:
    """Ask each master of a topic. Raises: the error of a master that does not answer."""

    async def read(_: str, address: str) -> tuple[int, float, int, int]:
        offsets = await topic_offsets(servers, address, topic)
        count = sum(row.max_offset - row.min_offset for row in offsets.values())
        received = await brokers.traffic(servers, address, "TOPIC_PUT_NUMS", topic)
        if not received.sum_of_day:
            return count, 0.0, 0, 0
        size = await brokers.traffic(servers, address, "TOPIC_PUT_SIZE", topic)
        return count, received.stats_minute.tps, received.sum_of_day, size.sum_of_day

    answers = list((await servers.all(masters, read)).values())
    count, per_second = sum(answer[0] for answer in answers), sum(answer[1] for answer in answers)
    received, size = sum(answer[2] for answer in answers), sum(answer[3] for answer in answers)
    return TopicFigures(count, per_second, size / received if received and size else None)


class TimedCache(Generic[V]):
    """Values by name, each with the time of its reading."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._values: dict[str, tuple[float, V | None]] = {}
        self._reading = asyncio.Lock()  # visitors who want the same wait for one reading

    async def read(
        self, names: Sequence[str], age_s: float, read: Callable[[str], Awaitable[V]]
    ) -> dict[str, V | None]:
        """The values of some names, read again where they are older; None where the reading fails."""
        is_silent = False  # a broker does not answer, so each further question would wait for it

        async def read_one(name: str) -> None:
            nonlocal is_silent
            value = None
            try:
                value = None if is_silent else await read(name)
            except SparrowError as error:
                is_silent = is_silent or isinstance(error, NetworkError)
            self._values[name] = self._clock.monotonic(), value

        async with self._reading:
            limit_s = self._clock.monotonic() - age_s
            old = [name for name in names if name not in self._values or self._values[name][0] < limit_s]
            for begin in range(0, len(old), _AT_ONCE):
                await asyncio.gather(*map(read_one, old[begin : begin + _AT_ONCE]))
            return {name: self._values[name][1] for name in names}

    def forget(self) -> None:
        """Drop all values, because something has changed."""
        self._values.clear()


def hidden(key: str, value: str) -> str:
    """The value of a setting, unless it is a secret."""
    is_secret = any(word in key.lower() for word in _SECRET_WORDS)
    return HIDDEN if value and (is_secret or any(word in value.lower() for word in _SECRET_MEMBERS)) else value


async def broker_settings(sender: RequestSender, address: str) -> dict[str, str]:
    return _without_secrets(await catalogue.broker_settings(sender, address))


async def namesrv_settings(sender: RequestSender, address: str) -> dict[str, str]:
    return _without_secrets(await catalogue.namesrv_settings(sender, address))


def _without_secrets(settings: dict[str, str]) -> dict[str, str]:
    return {key: hidden(key, value) for key, value in settings.items()}
