"""Consumer groups: create, change, delete and show them, and reset their offsets.

Brokers reset online members; for offline members the new offsets are committed in their place. Source:
UpdateSubGroupSubCommand, DeleteSubscriptionGroupCommand, ConsumerProgressSubCommand and ResetOffsetByTimeCommand, Java
4.9.8.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

import msgspec

from sparrowmq.client.admin import topics
from sparrowmq.client.admin.operations import (
    commit_offset,
    delete_group,
    group_connections,
    group_progress,
    group_table,
    offset_since,
    progress_of_all_groups,
    put_group,
    reset_members,
    running_member,
    topic_offsets,
)
from sparrowmq.client.admin.servers import Masters, Servers
from sparrowmq.client.arguments import check_count, check_kind, check_time
from sparrowmq.client.cluster.network import Network
from sparrowmq.errors import AlreadyThere, ChangeFailed, ConfigError, NoGroup, RemoteError, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import INT32, MessageQueue
from sparrowmq.protocol.names import check_group, dlq_topic, is_system_group, retry_topic
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.client_bodies import Connection, ConsumerRunning
from sparrowmq.protocol.requests.offset_bodies import BrokerConsumeStats, ConsumeStats, TopicOffset

ResetTo = Literal["earliest", "latest"] | datetime | int

_TIMESTAMPS: Final = {"earliest": 0, "latest": -1}  # as the protocol says it to a broker
_SWITCHES: Final = {
    "consume_enable": "may_consume",
    "consume_broadcast_enable": "may_broadcast",
    "consume_message_orderly": "ordered",
}
_COUNTS: Final = {"retry_max_times": "max_retries", "retry_queue_nums": "retry_queues"}


@dataclass(frozen=True, slots=True)
class QueueLag:
    """The progress of a group in a queue.

    Attributes:
        broker_offset: the offset that the queue's next message will get.
        committed: the offset that the group handles next.
        last_consumed: the storage time of the last message that it handled, local; None if the message is deleted.
        in_flight: the number of messages with its consumers; None if the group does not pop the queue.
        unacknowledged: likewise, the number of messages that are ready or in flight.
    """

    queue: MessageQueue
    broker_offset: int
    committed: int
    last_consumed: datetime | None
    in_flight: int | None = None
    unacknowledged: int | None = None

    @property
    def lag(self) -> int:
        """The number of messages that it has not acknowledged."""
        return self.broker_offset - self.committed if self.unacknowledged is None else self.unacknowledged

    def behind_s(self, now: datetime) -> float | None:
        """Return the age of the last handled message in seconds; 0 if none waits, None if it is unknown."""
        if self.lag <= 0:
            return 0.0
        if self.last_consumed is None:
            return None
        return max(0.0, now.timestamp() - self.last_consumed.timestamp())


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The progress of a group in all queues, with those of its retry topic.

    Attributes:
        per_second: consumed messages per second, at all brokers together.
    """

    group: str
    queues: tuple[QueueLag, ...]
    per_second: float

    @property
    def lag(self) -> int:
        """The number of messages that it has not acknowledged in all queues."""
        return sum(each.lag for each in self.queues)

    @property
    def in_flight(self) -> int | None:
        """The number of messages with its consumers; None if the group pops no queue."""
        counts = [each.in_flight for each in self.queues if each.in_flight is not None]
        return sum(counts) if counts else None

    def behind_s(self, now: datetime) -> float | None:
        """Return the greatest age of the last handled message of a queue with a lag; None if it is unknown."""
        ages = [age for each in self.queues if (age := each.behind_s(now)) is not None]
        return max(ages, default=None)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as it is now.

    Attributes:
        settings: by the name of each broker that knows it.
        members: the online members, by client id.
    """

    name: str
    settings: Mapping[str, GroupConfig]
    members: Mapping[str, Connection]


@dataclass(frozen=True, slots=True)
class Member:
    """An online consumer, with its own report.

    Attributes:
        version: the name of its client's version; its number if the report has no name.
        running: its settings by Java's names, subscriptions and queues; None without a report.
        silence: the reason why there is no report.
        wanted: the filter of each topic, by its report or its heartbeats; None if neither says so.
    """

    client_id: str
    address: str
    language: str
    version: str
    running: ConsumerRunning | None
    silence: SparrowError | None
    wanted: Mapping[str, str] | None = None

    @staticmethod
    def _from_connection(connection: Connection, report: ConsumerRunning | SparrowError, network: Network) -> Member:
        running, silence = (None, report) if isinstance(report, SparrowError) else (report, None)
        named = running.properties.get("PROP_CLIENT_VERSION") if running is not None else None
        wanted = None
        if running is not None:
            wanted = {each.topic: each.filter_text for each in running.subscription_set}
        elif connection.wanted is not None:
            wanted = {network.plain_name(topic): text for topic, text in connection.wanted.items()}
        return Member(
            connection.client_id,
            connection.client_addr,
            connection.language,
            named or str(connection.version),
            running,
            silence,
            wanted,
        )


async def create(servers: Servers, config: GroupConfig, cluster: str | None, exist_ok: bool) -> list[str]:
    name = check_group(config.group_name)
    _check_counts(msgspec.structs.asdict(config))
    masters = await servers.masters(cluster)
    holders, _ = await _configs(servers, name, masters)
    if holders and not exist_ok:
        raise AlreadyThere(f"group {name} is there already, at {', '.join(holders)}; change it, or take another name")
    return await servers.change(
        f"setting group {name}", masters, lambda _, address: put_group(servers, address, config)
    )


async def change(servers: Servers, name: str, cluster: str | None, changes: Mapping[str, object]) -> list[str]:
    """See `Admin.change_group`; None changes nothing."""
    given = {key: value for key, value in changes.items() if value is not None}
    _check_counts(given)
    masters = await servers.masters(cluster)
    configs = await _existing(servers, name, masters)
    some = next(iter(configs.values()))

    async def at(broker: str, address: str) -> None:
        await put_group(servers, address, msgspec.structs.replace(configs.get(broker, some), **given))

    return await servers.change(f"changing group {name}", masters, at)


def _check_counts(config: Mapping[str, object]) -> None:
    for key, name in _COUNTS.items():
        if key in config:
            check_count(name, config[key], at_least=0, at_most=INT32)
    for key, name in _SWITCHES.items():
        check_kind(name, config.get(key, True), bool, "True or False")


async def delete(servers: Servers, name: str, cluster: str | None) -> list[str]:
    masters = await servers.masters(cluster)
    await _existing(servers, name, masters)
    done = await servers.change(
        f"deleting group {name}", masters, lambda _, address: delete_group(servers, address, name, with_offsets=True)
    )
    for topic in (retry_topic(name), dlq_topic(name)):
        await topics.remove(servers, topic, masters, cluster)
    return done


async def names(servers: Servers, cluster: str | None, hidden: bool) -> list[str]:
    masters = await servers.all_masters(cluster)
    tables = await servers.all(masters, lambda _, address: group_table(servers, address))
    found = {name for table in tables.values() for name in table}
    rest = {name for name in found if not is_system_group(name)}
    return sorted(servers.network.inside(rest) | (found - rest if hidden else set()))


async def show(servers: Servers, name: str) -> Group:
    masters = await servers.all_masters()
    settings = await _existing(servers, check_group(name), masters)
    found = await servers.all(masters, lambda _, address: members_at(servers, name, address))
    members = {member.client_id: member for each in found.values() for member in each}
    plain = servers.network.plain_name(name)
    settings = {broker: msgspec.structs.replace(each, group_name=plain) for broker, each in settings.items()}
    return Group(plain, settings, dict(sorted(members.items())))


async def members(servers: Servers, name: str) -> list[Member]:
    masters = await servers.all_masters()
    check_group(name)
    found = await servers.all(masters, lambda _, address: members_at(servers, name, address))
    if not any(found.values()):
        await _existing(servers, name, masters)
    # Each is asked through one of the brokers that it is connected to.
    connections = {each.client_id: (each, masters[broker]) for broker, some in found.items() for each in some}
    addresses = {client_id: address for client_id, (_, address) in connections.items()}

    async def at(client_id: str, address: str) -> ConsumerRunning | SparrowError:
        try:
            return _plain(await running_member(servers, address, name, client_id), servers.network)
        except SparrowError as error:
            return error

    reports = await servers.all(addresses, at)
    return [
        Member._from_connection(connections[each][0], reports[each], servers.network) for each in sorted(connections)
    ]


def _plain(running: ConsumerRunning, network: Network) -> ConsumerRunning:
    subscriptions = [
        msgspec.structs.replace(each, topic=network.plain_name(each.topic)) for each in running.subscription_set
    ]
    queues = {network.plain_queue(queue): each for queue, each in running.mq_table.items()}
    rates = {network.plain_name(topic): each for topic, each in running.status_table.items()}
    return msgspec.structs.replace(running, subscription_set=subscriptions, mq_table=queues, status_table=rates)


async def lag(servers: Servers, name: str, topic: str | None) -> GroupLag:
    check_group(name)
    masters = await servers.all_masters()
    if topic is not None:
        masters = dict(await servers.masters_of(topic))
    found = await _lag(servers, name, topic, masters)
    if topic is not None or not found.queues:
        await _existing(servers, name, masters)
    return found


async def lags(servers: Servers, names: Sequence[str]) -> dict[str, GroupLag | SparrowError]:
    """Return the lag of some groups, asked at once; an error in place of a lag that is unknown.

    A group without offsets may not exist. All of these are looked up in the table of groups of each broker.
    """
    masters = await servers.all_masters()

    async def one(name: str) -> GroupLag | SparrowError:
        try:
            return await _lag(servers, check_group(name), None, masters)
        except SparrowError as error:
            return error

    found = dict(zip(names, await asyncio.gather(*map(one, names)), strict=True))
    if doubtful := [name for name, each in found.items() if isinstance(each, GroupLag) and not each.queues]:
        tables, failures = await servers.ask_masters(masters, lambda _, address: group_table(servers, address))
        known = {name for table in tables.values() for name in table}
        for name in doubtful:
            if name not in known:
                found[name] = next(iter(failures.values()), NoGroup(name))
    return found


async def all_lags(servers: Servers) -> dict[str, GroupLag]:
    """Return the lag of each group that has committed offsets, by one request to each master."""
    masters = await servers.all_masters()
    found = await servers.all(masters, lambda _, address: progress_of_all_groups(servers, address))
    return lags_in(servers.network, found.values())


def lags_in(network: Network, brokers: Iterable[BrokerConsumeStats]) -> dict[str, GroupLag]:
    """Return the lag of each group by its full name, from what some brokers say of all groups."""
    found: dict[str, list[ConsumeStats]] = defaultdict(list)
    for broker in brokers:
        for table in broker.consume_stats_list:
            for group, each in table.items():
                found[group] += each
    return {name: _lag_of(network, network.plain_name(name), each) for name, each in found.items()}


async def count_members(servers: Servers, name: str, masters: Masters) -> int:
    """Return the number of online members. Raises: the error of a master that does not answer."""
    found = await servers.all(masters, lambda _, address: members_at(servers, name, address))
    return len({each.client_id for some in found.values() for each in some})


async def _lag(servers: Servers, name: str, topic: str | None, masters: Masters) -> GroupLag:
    stats = await servers.all(masters, lambda _, address: group_progress(servers, address, name, topic))
    return _lag_of(servers.network, servers.network.plain_name(name), stats.values())


def _lag_of(network: Network, name: str, stats: Collection[ConsumeStats]) -> GroupLag:
    rows = {queue: each for table in stats for queue, each in table.offset_table.items()}
    return GroupLag(
        name,
        tuple(
            QueueLag(
                network.plain_queue(queue),
                row.broker_offset,
                row.consumer_offset,
                topics.local_time(row.last_timestamp),
                row.in_flight,
                row.unacknowledged,
            )
            for queue, row in sorted(rows.items())
        ),
        sum(each.consume_tps for each in stats),
    )


async def reset(servers: Servers, name: str, topic: str, to: ResetTo) -> dict[MessageQueue, int]:
    _check_target(to)
    masters = await servers.masters_of(topic)
    await _existing(servers, check_group(name), masters)

    async def at(_: str, address: str) -> dict[MessageQueue, int]:
        # Unlike Java, which orders the reset first: Apache's broker refuses it for a group that never committed.
        if await members_at(servers, name, address):
            if isinstance(to, int):
                # Brokers of 4.9 know no offset here, and would move the members to the time in the request.
                raise ConfigError(
                    f"group {name} has online members, which can be reset to a time and not to an offset; "
                    "stop them first, or give a time, 'earliest' or 'latest'"
                )
            return await reset_members(servers, address, name, topic, _timestamp(to))
        offsets = await _targets_at(servers, address, topic, to)
        for queue, offset in offsets.items():
            await commit_offset(servers, address, name, queue, offset)
        return offsets

    moved, failures = await servers.ask_masters(masters, at)
    if failures and moved:
        raise ChangeFailed(f"resetting group {name} in topic {topic}", list(moved), failures)
    for error in failures.values():
        raise error
    plain = servers.network.plain_queue
    return dict(sorted((plain(queue), offset) for table in moved.values() for queue, offset in table.items()))


async def targets(servers: Servers, topic: str, to: ResetTo) -> dict[MessageQueue, int]:
    """Return the offset of each queue after a reset; changes nothing. Raises: ConfigError, NoRoute."""
    _check_target(to)
    masters = await servers.masters_of(topic)
    found = await servers.all(masters, lambda _, address: _targets_at(servers, address, topic, to))
    return dict(sorted((queue, offset) for table in found.values() for queue, offset in table.items()))


async def _configs(
    servers: Servers, name: str, masters: Masters
) -> tuple[dict[str, GroupConfig], dict[str, SparrowError]]:
    tables, failures = await servers.ask_masters(masters, lambda _, address: group_table(servers, address))
    return {broker: table[name] for broker, table in tables.items() if name in table}, failures


async def _existing(servers: Servers, name: str, masters: Masters) -> dict[str, GroupConfig]:
    configs, failures = await _configs(servers, name, masters)
    if not configs:
        raise next(iter(failures.values()), NoGroup(name))
    return configs


async def members_at(servers: Servers, name: str, address: str) -> list[Connection]:
    try:
        return (await group_connections(servers, address, name)).connection_set
    except RemoteError as error:
        if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return []
        raise


# Moving a group -----------------------------------------------------------------------------------------------------


def _check_target(to: ResetTo) -> None:
    is_offset = isinstance(to, int) and not isinstance(to, bool) and to >= 0
    if not is_offset and to not in list(_TIMESTAMPS) and not isinstance(to, datetime):
        raise ConfigError(f"to={to!r} is unknown; use 'earliest', 'latest', a datetime, or an offset from 0 on")


def _timestamp(to: datetime | str) -> int:
    return check_time("to", to) if isinstance(to, datetime) else _TIMESTAMPS[to]


async def _targets_at(servers: Servers, address: str, topic: str, to: ResetTo) -> dict[MessageQueue, int]:
    offsets = await topic_offsets(servers, address, topic)
    return {queue: await _offset(servers, address, queue, each, to) for queue, each in offsets.items()}


async def _offset(servers: Servers, address: str, queue: MessageQueue, span: TopicOffset, to: ResetTo) -> int:
    if to == "earliest":
        return span.min_offset
    if to == "latest":
        return span.max_offset
    if isinstance(to, int):
        return min(max(to, span.min_offset), span.max_offset)
    return await offset_since(servers, address, queue, _timestamp(to))
