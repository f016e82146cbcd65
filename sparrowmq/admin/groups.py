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

from sparrowmq.admin import catalogue, topics
from sparrowmq.admin.servers import Masters, Servers
from sparrowmq.client.arguments import check_count, check_kind, check_time
from sparrowmq.client.cluster.network import Network
from sparrowmq.errors import AlreadyThere, ChangeFailed, ConfigError, NoGroup, RemoteError, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import INT32, MessageQueue
from sparrowmq.protocol.names import check_group, dlq_topic, is_system_group, retry_topic
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.client_bodies import Connection, ConsumerRunning
from sparrowmq.protocol.requests.group_settings import policy_of
from sparrowmq.protocol.requests.offset_bodies import BrokerConsumeStats, ConsumeStats, TopicOffset

ResetTo = Literal["earliest", "latest"] | datetime | int
_RESET_TIMESTAMPS: Final = {"earliest": 0, "latest": -1}  # as the protocol says it to a broker
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
    """The progress of a group in all queues, with those of its retry topic, and its rate at all brokers together."""

    group: str
    queues: tuple[QueueLag, ...]
    per_second: float

    @property
    def lag(self) -> int:
        """The number of messages that it has not acknowledged in all queues."""
        return sum(queue_lag.lag for queue_lag in self.queues)

    @property
    def in_flight(self) -> int | None:
        """The number of messages with its consumers; None if the group pops no queue."""
        counts = [queue_lag.in_flight for queue_lag in self.queues if queue_lag.in_flight is not None]
        return sum(counts) if counts else None

    def behind_s(self, now: datetime) -> float | None:
        """Return the greatest age of the last handled message of a queue with a lag; None if it is unknown."""
        ages = [age for queue_lag in self.queues if (age := queue_lag.behind_s(now)) is not None]
        return max(ages, default=None)


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as it is now: its settings by broker name, and its online members by client id."""

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
        version_name = running.properties.get("PROP_CLIENT_VERSION") if running is not None else None
        wanted = None
        if running is not None:
            wanted = {each.topic: each.filter_text for each in running.subscription_set}
        elif connection.wanted is not None:
            wanted = {network.plain_name(topic): text for topic, text in connection.wanted.items()}
        return Member(
            connection.client_id,
            connection.client_addr,
            connection.language,
            version_name or str(connection.version),
            running,
            silence,
            wanted,
        )


async def create_group(
    servers: Servers,
    name: str,
    *,
    max_retries: int = 16,
    retry_queues: int = 1,
    may_consume: bool = True,
    may_broadcast: bool = True,
    ordered: bool = False,
    retry_pauses: str | None = None,
    cluster: str | None = None,
    exist_ok: bool = False,
) -> list[str]:
    """Create a consumer group at every master; returns their names.

    Args:
        max_retries: failures before a message goes to the dead-letter queue.
        retry_queues: the number of queues of its retry topic on each broker; 0 is no retries.
        ordered: consumers of 5.x, and those that pop, get the messages of a queue in order.
        retry_pauses: the pauses before the tries: "10s 1m 5m", where the last one stays, or "5s..2h", where each
            is twice as long; None for the delay levels from 3 on.
        exist_ok: replace the settings of an existing group.
    Raises: AlreadyThere, a master has it, and `exist_ok` is not given; InvalidName; ChangeFailed.
    """
    name = servers.network.full_group(name)
    config = GroupConfig(
        name,
        consume_enable=may_consume,
        consume_broadcast_enable=may_broadcast,
        retry_queue_nums=retry_queues,
        retry_max_times=max_retries,
        consume_message_orderly=ordered,
        group_retry_policy=policy_of(retry_pauses),
    )
    _check_counts(msgspec.structs.asdict(config))
    masters = await servers.masters(cluster)
    holders, _ = await _configs(servers, name, masters)
    if holders and not exist_ok:
        raise AlreadyThere(f"group {name} is there already, at {', '.join(holders)}; change it, or take another name")
    return await servers.change(
        f"setting group {name}", masters, lambda _, address: catalogue.put_group(servers, address, config)
    )


async def change_group(
    servers: Servers,
    name: str,
    *,
    max_retries: int | None = None,
    retry_queues: int | None = None,
    may_consume: bool | None = None,
    may_broadcast: bool | None = None,
    ordered: bool | None = None,
    retry_pauses: str | None = None,
    cluster: str | None = None,
) -> list[str]:
    """Change a group at every master; without a value a setting stays. Returns their names. `retry_pauses` as in
    `create_group`; "levels" for the delay levels. Raises: NoGroup, ChangeFailed.
    """
    name = servers.network.full_group(name)
    changes = {
        "retry_max_times": max_retries,
        "retry_queue_nums": retry_queues,
        "consume_enable": may_consume,
        "consume_broadcast_enable": may_broadcast,
        "consume_message_orderly": ordered,
        "group_retry_policy": None if retry_pauses is None else policy_of(retry_pauses),
    }
    new_values = {key: value for key, value in changes.items() if value is not None}
    _check_counts(new_values)
    masters = await servers.masters(cluster)
    configs = await _existing(servers, name, masters)
    any_config = next(iter(configs.values()))
    changed_configs = {
        broker: msgspec.structs.replace(configs.get(broker, any_config), **new_values) for broker in masters
    }
    return await servers.change(
        f"changing group {name}",
        masters,
        lambda broker, address: catalogue.put_group(servers, address, changed_configs[broker]),
    )


def _check_counts(config: Mapping[str, object]) -> None:
    for key, name in _COUNTS.items():
        if key in config:
            check_count(name, config[key], at_least=0, at_most=INT32)
    for key, name in _SWITCHES.items():
        check_kind(name, config.get(key, True), bool, "True or False")


async def delete_group(servers: Servers, name: str, *, cluster: str | None = None) -> list[str]:
    """Delete a group with its offsets, retries and dead letters; returns the masters. Raises: NoGroup,
    ChangeFailed.
    """
    name = servers.network.full_group(name)
    masters = await servers.masters(cluster)
    await _existing(servers, name, masters)
    deleted_brokers = await servers.change(
        f"deleting group {name}",
        masters,
        lambda _, address: catalogue.delete_group(servers, address, name, with_offsets=True),
    )
    for topic in (retry_topic(name), dlq_topic(name)):
        await topics.remove(servers, topic, masters, cluster)
    return deleted_brokers


async def names(servers: Servers, cluster: str | None = None, *, hidden: bool = False) -> list[str]:
    """Return the names of all consumer groups, or of a cluster's; `hidden` adds RocketMQ's own."""
    masters = await servers.all_masters(cluster)
    tables = await servers.all(masters, lambda _, address: catalogue.group_table(servers, address))
    full_names = {name for table in tables.values() for name in table}
    user_groups = {name for name in full_names if not is_system_group(name)}
    return sorted(servers.network.names_inside(user_groups) | (full_names - user_groups if hidden else set()))


async def show(servers: Servers, name: str) -> Group:
    """Return a group with its settings at each broker, and its online members. Raises: NoGroup."""
    name = servers.network.full_group(name)
    masters = await servers.all_masters()
    settings = await _existing(servers, name, masters)
    members_by_broker = await servers.all(masters, lambda _, address: members_at(servers, name, address))
    members = {member.client_id: member for each in members_by_broker.values() for member in each}
    plain_name = servers.network.plain_name(name)
    settings = {broker: msgspec.structs.replace(each, group_name=plain_name) for broker, each in settings.items()}
    return Group(plain_name, settings, dict(sorted(members.items())))


async def members(servers: Servers, group: str) -> list[Member]:
    """Return the online members of a group with their own reports, by client id. Raises: NoGroup."""
    name = servers.network.full_group(group)
    masters = await servers.all_masters()
    connections_by_broker = await servers.all(masters, lambda _, address: members_at(servers, name, address))
    if not any(connections_by_broker.values()):
        await _existing(servers, name, masters)
    # Each is asked through one of the brokers that it is connected to.
    connections = {
        each.client_id: (each, masters[broker]) for broker, some in connections_by_broker.items() for each in some
    }
    addresses = {client_id: address for client_id, (_, address) in connections.items()}

    async def report_of(client_id: str, address: str) -> ConsumerRunning | SparrowError:
        try:
            return _without_namespace(
                await catalogue.running_member(servers, address, name, client_id), servers.network
            )
        except SparrowError as error:
            return error

    reports = await servers.all(addresses, report_of)
    return [
        Member._from_connection(connections[each][0], reports[each], servers.network) for each in sorted(connections)
    ]


def _without_namespace(running: ConsumerRunning, network: Network) -> ConsumerRunning:
    subscriptions = [
        msgspec.structs.replace(each, topic=network.plain_name(each.topic)) for each in running.subscription_set
    ]
    queues = {network.plain_queue(queue): each for queue, each in running.mq_table.items()}
    rates = {network.plain_name(topic): each for topic, each in running.status_table.items()}
    return msgspec.structs.replace(running, subscription_set=subscriptions, mq_table=queues, status_table=rates)


async def lag(servers: Servers, group: str, topic: str | None = None) -> GroupLag:
    """Return the lag of a group, in one topic or in all that it consumes. Raises: NoGroup, NoRoute."""
    name = servers.network.full_group(group)
    topic = None if topic is None else servers.network.full_topic(topic)
    masters = await servers.all_masters()
    if topic is not None:
        masters = dict(await servers.masters_of(topic))
    group_lag = await _lag(servers, name, topic, masters)
    if topic is not None or not group_lag.queues:
        await _existing(servers, name, masters)
    return group_lag


async def lags(servers: Servers, names: Sequence[str]) -> dict[str, GroupLag | SparrowError]:
    """Return the lag of some groups, asked at once; an error in place of a lag that is unknown. A group without offsets
    may not exist. All of these are looked up in the table of groups of each broker.
    """
    masters = await servers.all_masters()

    async def lag_or_error(name: str) -> GroupLag | SparrowError:
        try:
            return await _lag(servers, check_group(name), None, masters)
        except SparrowError as error:
            return error

    lag_by_name = dict(zip(names, await asyncio.gather(*map(lag_or_error, names)), strict=True))
    if doubtful := [name for name, lag in lag_by_name.items() if isinstance(lag, GroupLag) and not lag.queues]:
        tables, failures = await servers.ask_masters(
            masters, lambda _, address: catalogue.group_table(servers, address)
        )
        known = {name for table in tables.values() for name in table}
        for name in doubtful:
            if name not in known:
                lag_by_name[name] = next(iter(failures.values()), NoGroup(name))
    return lag_by_name


async def all_lags(servers: Servers) -> dict[str, GroupLag]:
    """Return the lag of each group that has committed offsets, by one request to each master."""
    masters = await servers.all_masters()
    stats_by_broker = await servers.all(masters, lambda _, address: catalogue.progress_of_all_groups(servers, address))
    return lags_in(servers.network, stats_by_broker.values())


def lags_in(network: Network, brokers: Iterable[BrokerConsumeStats]) -> dict[str, GroupLag]:
    """Return the lag of each group by its full name, from what some brokers say of all groups."""
    stats_by_group: dict[str, list[ConsumeStats]] = defaultdict(list)
    for broker in brokers:
        for table in broker.consume_stats_list:
            for group, group_stats in table.items():
                stats_by_group[group] += group_stats
    return {
        name: _lag_of(network, network.plain_name(name), group_stats) for name, group_stats in stats_by_group.items()
    }


async def count_members(servers: Servers, name: str, masters: Masters) -> int:
    """Return the number of online members. Raises: the error of a master that does not answer."""
    members_by_broker = await servers.all(masters, lambda _, address: members_at(servers, name, address))
    return len({connection.client_id for connections in members_by_broker.values() for connection in connections})


async def _lag(servers: Servers, name: str, topic: str | None, masters: Masters) -> GroupLag:
    stats = await servers.all(masters, lambda _, address: catalogue.group_progress(servers, address, name, topic))
    return _lag_of(servers.network, servers.network.plain_name(name), stats.values())


def _lag_of(network: Network, name: str, stats: Collection[ConsumeStats]) -> GroupLag:
    rows = {queue: group_stats for table in stats for queue, group_stats in table.offset_table.items()}
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
        sum(group_stats.consume_tps for group_stats in stats),
    )


async def reset(
    servers: Servers, group: str, topic: str, to: ResetTo, *, dry_run: bool = False
) -> dict[MessageQueue, int]:
    """Reset the offsets of a group, forward or back; returns the new offset of each queue.

    Brokers reset online members, which continue there within seconds. For members that are offline the offsets are
    committed in their place. `to` is "earliest", "latest", a time (the first message stored since; without a zone
    it is local), or an offset for each queue. Offsets are kept within the queue, and need that no member is online.
    `dry_run` only returns the new offsets. Raises: NoGroup, NoRoute.
    """
    name, topic = servers.network.full_group(group), servers.network.full_topic(topic)
    if dry_run:
        await show(servers, name)
        return await targets(servers, topic, to)
    _check_reset(to)
    masters = await servers.masters_of(topic)
    await _existing(servers, name, masters)

    async def reset_at(_: str, address: str) -> dict[MessageQueue, int]:
        # Unlike Java, which orders the reset first: Apache's broker refuses it for a group that never committed.
        if await members_at(servers, name, address):
            if isinstance(to, int):
                # Brokers of 4.9 know no offset here, and would move the members to the time in the request.
                raise ConfigError(
                    f"group {name} has online members, which can be reset to a time and not to an offset; "
                    "stop them first, or give a time, 'earliest' or 'latest'"
                )
            return await catalogue.reset_members(
                servers, address, topic=topic, group=name, timestamp=_timestamp(to), is_force=True
            )
        offsets = await _new_offsets_at(servers, address, topic, to)
        for queue, offset in offsets.items():
            await catalogue.commit_offset(servers, address, name, queue, offset)
        return offsets

    offsets_by_broker, failures = await servers.ask_masters(masters, reset_at)
    if failures and offsets_by_broker:
        raise ChangeFailed(f"resetting group {name} in topic {topic}", list(offsets_by_broker), failures)
    for error in failures.values():
        raise error
    plain = servers.network.plain_queue
    return dict(
        sorted((plain(queue), offset) for table in offsets_by_broker.values() for queue, offset in table.items())
    )


async def targets(servers: Servers, topic: str, to: ResetTo) -> dict[MessageQueue, int]:
    """Return the offset of each queue after a reset; changes nothing. Raises: ConfigError, NoRoute."""
    _check_reset(to)
    masters = await servers.masters_of(topic)
    offsets_by_broker = await servers.all(masters, lambda _, address: _new_offsets_at(servers, address, topic, to))
    return dict(sorted((queue, offset) for table in offsets_by_broker.values() for queue, offset in table.items()))


async def _configs(
    servers: Servers, name: str, masters: Masters
) -> tuple[dict[str, GroupConfig], dict[str, SparrowError]]:
    tables, failures = await servers.ask_masters(masters, lambda _, address: catalogue.group_table(servers, address))
    return {broker: table[name] for broker, table in tables.items() if name in table}, failures


async def _existing(servers: Servers, name: str, masters: Masters) -> dict[str, GroupConfig]:
    configs, failures = await _configs(servers, name, masters)
    if not configs:
        raise next(iter(failures.values()), NoGroup(name))
    return configs


async def members_at(servers: Servers, name: str, address: str) -> list[Connection]:
    try:
        return (await catalogue.group_connections(servers, address, name)).connection_set
    except RemoteError as error:
        if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return []
        raise


def _check_reset(to: ResetTo) -> None:
    is_offset = isinstance(to, int) and not isinstance(to, bool) and to >= 0
    if not is_offset and to not in list(_RESET_TIMESTAMPS) and not isinstance(to, datetime):
        raise ConfigError(f"to={to!r} is unknown; use 'earliest', 'latest', a datetime, or an offset from 0 on")


def _timestamp(to: datetime | str) -> int:
    return check_time("to", to) if isinstance(to, datetime) else _RESET_TIMESTAMPS[to]


async def _new_offsets_at(servers: Servers, address: str, topic: str, to: ResetTo) -> dict[MessageQueue, int]:
    offsets = await catalogue.topic_offsets(servers, address, topic)
    return {queue: await _new_offset(servers, address, queue, span, to) for queue, span in offsets.items()}


async def _new_offset(servers: Servers, address: str, queue: MessageQueue, span: TopicOffset, to: ResetTo) -> int:
    if to == "earliest":
        return span.min_offset
    if to == "latest":
        return span.max_offset
    if isinstance(to, int):
        return min(max(to, span.min_offset), span.max_offset)
    return await catalogue.offset_since(servers, address, queue, _timestamp(to))
