"""Topics: create, change, delete and show them.

Queues become fewer without hiding messages that a topic's groups have not consumed:

    write queues 8 -> 2    at once: no new message goes to the other queues
    read queues  8 -> 2    only once the groups have consumed what is in them; consumers would not see it any more

A broker deletes what is hidden with the files of its log, and no lag counts it. Apache's tools do not look.

For each ordered topic the name servers keep the queues among which keys choose:

    ORDER_TOPIC_CONFIG, orders    broker-a:4;broker-b:4    as many queues of each broker, whether it is there or not

Each name server has its own copy, and gives it to clients in routes if its `orderMessageEnable` is true. A change of an
order moves keys to other queues, so nothing here changes one. `mqadmin updateOrderConf` does.
Source: UpdateTopicSubCommand, DeleteTopicSubCommand, TopicStatusSubCommand and
DefaultMQAdminExtImpl.createOrUpdateOrderConf, Java 4.9.8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, get_args

from sparrowmq.client.admin.operations import (
    delete_route,
    delete_topic,
    delete_value,
    group_progress,
    groups_of_topic,
    namesrv_settings,
    put_topic,
    put_value,
    system_topics_of_broker,
    system_topics_of_cluster,
    topic_config,
    topic_names,
    topic_offsets,
    topic_table,
    value_of,
    values_of,
)
from sparrowmq.client.admin.servers import Masters, Servers, masters_in
from sparrowmq.client.cluster.routes import fixed_queues
from sparrowmq.errors import (
    AlreadyThere,
    ChangeFailed,
    ConfigError,
    NetworkError,
    NoRoute,
    RemoteError,
    SparrowError,
    StillUnread,
)
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue, Perm
from sparrowmq.protocol.messages.message_types import MESSAGE_TYPE, type_of_topic
from sparrowmq.protocol.names import ORDER_TOPICS, REPLY_SUFFIX, check_new_topic, group_of, is_system_topic
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.protocol.requests.offset_bodies import TopicOffset

TopicPerm = Literal["rw", "r", "w", "none"]

TopicType = Literal["UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED"]

TYPES: Final[tuple[TopicType, ...]] = get_args(TopicType)
PERMS: Final[dict[TopicPerm, int]] = {"rw": Perm.READ_WRITE, "r": Perm.READ, "w": Perm.WRITE, "none": 0}

_ENABLED: Final = "orderMessageEnable"


@dataclass(frozen=True, slots=True)
class TopicShare:
    """The settings of a topic at one broker. A broker of 4.9 knows no `message_type`: None."""

    broker: str
    read_queues: int
    write_queues: int
    perm: TopicPerm
    message_type: TopicType | None = None


@dataclass(frozen=True, slots=True)
class QueueRange:
    """The messages in a queue: their offsets are in [min_offset, max_offset).

    Attributes:
        last_stored: the storage time of its newest message, local with its zone; None if it has none.
    """

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_stored: datetime | None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now.

    Attributes:
        order: the queues among which keys choose, as in "broker-a:4;broker-b:4"; None for a plain topic.
    """

    name: str
    shares: tuple[TopicShare, ...]
    queues: tuple[QueueRange, ...]
    order: str | None = None

    @property
    def count(self) -> int:
        return sum(each.max_offset - each.min_offset for each in self.queues)


async def create(
    servers: Servers, config: TopicConfig, cluster: str | None, exist_ok: bool, ordered: bool
) -> list[str]:
    name = check_new_topic(config.topic_name)
    masters = await servers.masters(cluster)
    if not exist_ok:
        with suppress(NoRoute):
            if holders := sorted(masters.keys() & await servers.masters_of(name)):
                raise AlreadyThere(
                    f"topic {name} is there already, at {', '.join(holders)}; change it, or take another name"
                )
    order = await order_of(servers, name)
    is_plain = order is None and not ordered
    chosen = masters if is_plain else await _put_in_order(servers, config, masters, order)
    return await servers.change(
        f"setting topic {name}", chosen, lambda _, address: put_topic(servers, address, config, config.attributes)
    )


async def _put_in_order(servers: Servers, config: TopicConfig, masters: Masters, order: str | None) -> Masters:
    """Make a topic ordered at all name servers, before any broker has it; return the masters that get it.

    An ordered topic stays on the brokers that it was created on, as its keys would move otherwise.
    """
    name, queues = config.topic_name, config.write_queue_nums
    if order is None:
        order = order_text(masters, queues)
    check_counts(name, order, queues)
    brokers = counts_in(name, order)
    chosen = {broker: address for broker, address in masters.items() if broker in brokers}
    if not chosen:
        raise ConfigError(
            f"topic {name} is ordered on {order}, and none of these brokers is there now; start one of them, or delete "
            f"the order with `mqadmin updateOrderConf -m delete -t {name}`"
        )
    await check_announced(servers)
    await put(servers, name, order)
    config.order = True
    return chosen


async def change(
    servers: Servers,
    name: str,
    cluster: str | None,
    *,
    read_queues: int | None,
    write_queues: int | None,
    perm: TopicPerm | None,
    message_type: TopicType | None = None,
    hide_unread: bool = False,
) -> list[str]:
    attributes = attributes_of(message_type)
    masters = await _masters(servers, check_new_topic(name), cluster)
    number = None if perm is None else number_of(perm)
    order = await order_of(servers, name)
    if order is not None:
        check_counts(name, order, read_queues, write_queues)
    left: dict[str, int] = {}
    unknown: dict[str, SparrowError] = {}
    if read_queues is not None and not hide_unread:
        left, unknown = await unread(servers, name, masters, read_queues)

    async def at(broker: str, address: str) -> None:
        if broker in unknown:
            raise unknown[broker]
        config = (await topic_table(servers, address)).get(name)
        if config is None:
            raise NoRoute(name, address)
        if read_queues is not None and (not left or read_queues > config.read_queue_nums):
            config.read_queue_nums = read_queues
        config.write_queue_nums = config.write_queue_nums if write_queues is None else write_queues
        config.perm = config.perm if number is None else number
        await put_topic(servers, address, config, attributes)

    done = await servers.change(f"changing topic {name}", masters, at)
    if left and read_queues is not None:
        raise StillUnread(servers.network.plain_name(name), read_queues, left)
    return done


async def delete(servers: Servers, name: str, cluster: str | None) -> list[str]:
    masters = await _masters(servers, check_new_topic(name), cluster)
    order = await order_of(servers, name)
    if order is not None and cluster is not None:
        others = {place.name for place in await servers.brokers() if place.cluster != cluster}
        if others := others & counts_in(name, order).keys():
            raise ConfigError(
                f"topic {name} is ordered on {order}, and {', '.join(sorted(others))} is in another cluster; delete it "
                "everywhere, without a cluster"
            )
    done = await remove(servers, name, masters, cluster)
    if order is not None:
        await drop(servers, name)  # or a later topic of this name would be ordered
    return done


async def remove(servers: Servers, name: str, masters: Masters, cluster: str | None) -> list[str]:
    """Delete a topic at some masters, and its route; an absent topic is no error. Raises: ChangeFailed."""
    done = await servers.change(
        f"deleting topic {name}", masters, lambda _, address: delete_topic(servers, address, name)
    )
    _, failures = await servers.ask_namesrvs(lambda address: delete_route(servers, address, name, cluster))
    if failures:
        raise ChangeFailed(f"deleting topic {name}", done, failures)
    return done


async def names(servers: Servers, cluster: str | None, hidden: bool) -> list[str]:
    if cluster is not None:
        await servers.brokers(cluster)
    found = set(await topic_names(servers, cluster))
    if hidden and not servers.network.namespace:
        return sorted(found)
    own = await _system_topics(servers)
    rest = {name for name in found - own if not is_system_topic(name)}
    inside = servers.network.inside(rest)
    if hidden:
        return sorted(inside | (found - rest))
    return sorted(name for name in inside if group_of(name) is None)


async def show(servers: Servers, name: str) -> Topic:
    route = await servers.route(name)
    masters = masters_in(route)
    configs, _ = await servers.ask_masters(masters, lambda _, address: topic_config(servers, address, name))
    types: dict[str, TopicType] = {broker: type_of_topic(config.attributes).value for broker, config in configs.items()}
    shares = [
        TopicShare(
            *(row.broker_name, row.read_queue_nums, row.write_queue_nums, perm_of(row.perm)),
            message_type=types.get(row.broker_name),
        )
        for row in sorted(route.queue_datas, key=lambda row: row.broker_name)
    ]
    offsets = await ranges(servers, name, masters)
    queues = [
        QueueRange(
            servers.network.plain_queue(queue), each.min_offset, each.max_offset, local_time(each.last_update_timestamp)
        )
        for queue, each in sorted(offsets.items())
    ]
    order = route.order_topic_conf if fixed_queues(name, route.order_topic_conf or "") else None
    return Topic(servers.network.plain_name(name), tuple(shares), tuple(queues), order)


async def ranges(servers: Servers, topic: str, masters: Masters) -> dict[MessageQueue, TopicOffset]:
    """Return the offsets of each queue of a topic. Raises: the error of a master that does not answer."""
    found = await servers.all(masters, lambda _, address: topic_offsets(servers, address, topic))
    return {queue: each for table in found.values() for queue, each in table.items()}


async def consumers_of(servers: Servers, topic: str) -> list[str]:
    """Return the groups that consume a topic, or have. Raises: NoRoute."""
    masters = await servers.masters_of(topic)
    found = await servers.all(masters, lambda _, address: groups_of_topic(servers, address, topic))
    return sorted({group for groups in found.values() for group in groups})


def number_of(perm: TopicPerm) -> int:
    """Return a permission in the protocol's form. Raises: ConfigError."""
    if perm not in list(PERMS):  # A list, because what is given may be unhashable.
        raise ConfigError(f"perm={perm!r} is unknown; it is {', '.join(map(repr, PERMS))}")
    return PERMS[perm]


def attributes_of(message_type: TopicType | None) -> dict[str, str] | None:
    """Return the attributes that a type needs. Raises: ConfigError."""
    if message_type is None:
        return None
    if message_type not in list(TYPES):  # A list, because what is given may be unhashable.
        raise ConfigError(f"message_type={message_type!r} is unknown; it is {', '.join(map(repr, TYPES))}")
    return {MESSAGE_TYPE: message_type}


def perm_of(number: int) -> TopicPerm:
    """Return a permission in words; bits other than read and write are left out."""
    return next(perm for perm, bits in PERMS.items() if bits == number & Perm.READ_WRITE)


def local_time(timestamp_ms: int) -> datetime | None:
    """Return a time of the protocol as a local time; 0 is None."""
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone() if timestamp_ms > 0 else None


async def _masters(servers: Servers, name: str, cluster: str | None) -> Masters:
    """Return the masters that have a topic, of one cluster or of all. Raises: NoRoute."""
    holders = await servers.masters_of(name)
    if cluster is None:
        return holders
    places = await servers.brokers(cluster)
    chosen = {place.name: place.master for place in places if place.name in holders}
    if not chosen:
        raise NoRoute(name, f"{servers.namesrv} in cluster {cluster}")
    return chosen


async def _system_topics(servers: Servers) -> set[str]:
    """Return the topics of clusters and brokers: their names, and the list of the first broker that answers."""
    table = await system_topics_of_cluster(servers)
    found = {*table.topic_list, *(name + REPLY_SUFFIX for name in table.topic_list)}
    silence: NetworkError | None = None
    places = await servers.brokers()
    for address in [each.addresses[min(each.addresses)] for each in places if each.addresses]:
        try:
            return found.union(await system_topics_of_broker(servers, address))
        except NetworkError as error:
            silence = silence or error
    if silence is not None:
        raise silence
    return found


async def unread(
    servers: Servers, topic: str, masters: Masters, read_queues: int
) -> tuple[dict[str, int], dict[str, SparrowError]]:
    """Count, by group, the messages that it has not consumed in the queues from number `read_queues` on.

    Returns: the counts; the key "" has the messages of queues that no group has consumed. And the errors of brokers
        that could not be asked.
    """
    tables, failures = await servers.ask_masters(masters, lambda _, at: _unread_at(servers, topic, at, read_queues))
    found: dict[str, int] = {}
    for counts in tables.values():
        for group, count in counts.items():
            found[group] = found.get(group, 0) + count
    return {group: count for group, count in sorted(found.items()) if count}, failures


async def _unread_at(servers: Servers, topic: str, address: str, read_queues: int) -> dict[str, int]:
    ranges = await topic_offsets(servers, address, topic)
    left = {queue: each for queue, each in ranges.items() if queue.queue_id >= read_queues}
    counts: dict[str, int] = {}
    consumed = set()
    for group in await groups_of_topic(servers, address, topic) if left else ():
        progress = (await group_progress(servers, address, group, topic)).offset_table
        for queue in left.keys() & progress.keys():
            counts[group] = counts.get(group, 0) + progress[queue].left(left[queue].min_offset)
            consumed.add(queue)
    counts[""] = sum(left[queue].max_offset - left[queue].min_offset for queue in left.keys() - consumed)
    return counts


def order_text(brokers: Iterable[str], queues: int) -> str:
    """Return the order of a topic that has as many queues on each broker."""
    return ";".join(f"{name}:{queues}" for name in sorted(brokers))


def counts_in(topic: str, order: str) -> Mapping[str, int]:
    """Return the number of queues by broker; empty for a text that is no order."""
    return Counter(queue.broker_name for queue in fixed_queues(topic, order))


async def order_of(servers: Servers, topic: str) -> str | None:
    """Return the order of a topic, as the first name server says that answers; None for a plain topic."""
    try:
        order = await value_of(servers, ORDER_TOPICS, topic)
    except RemoteError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    return order if order and fixed_queues(topic, order) else None


async def ordered_brokers(servers: Servers) -> dict[str, list[str]]:
    """Return all brokers that topics are ordered on, each with these topics, as the name servers say that answer."""
    answers, _ = await servers.ask_namesrvs(lambda address: values_of(servers, ORDER_TOPICS, address))
    found: dict[str, list[str]] = {}
    for topic, order in sorted({each for orders in answers.values() for each in orders.items()}):
        for broker in counts_in(topic, order):
            topics = found.setdefault(broker, [])
            if topic not in topics:
                topics.append(topic)
    return found


def check_counts(topic: str, order: str, *queue_counts: int | None) -> None:
    """Check that a topic keeps the queues of its order; None is no wish. Raises: ConfigError."""
    counts = counts_in(topic, order)
    for count in queue_counts:
        if count is not None and set(counts.values()) != {count}:
            other = order_text(counts, count)
            raise ConfigError(
                f"topic {topic} is ordered, and {count} queues on each broker instead of {order} would move its keys "
                "to other queues, before their older messages are consumed. Send to another topic; or stop its "
                f"producers, wait until all is consumed, and run `mqadmin updateTopic` and `mqadmin updateOrderConf "
                f"-m put -t {topic} -v '{other}'`"
            )


async def check_announced(servers: Servers) -> None:
    """Check that all name servers give orders to clients. Raises: ConfigError; the error of one that fails."""
    answers, failures = await servers.ask_namesrvs(lambda address: namesrv_settings(servers, address))
    for error in failures.values():
        raise error
    for address, settings in answers.items():
        if settings.get(_ENABLED, "").lower() != "true":
            raise ConfigError(
                f"name server {address} does not tell clients which topics are ordered, so keys would move; nothing "
                f"was created. Run `mqadmin updateNamesrvConfig -n {address} -k {_ENABLED} -v true`, and put "
                f"{_ENABLED}=true into its settings file"
            )


async def put(servers: Servers, topic: str, order: str) -> None:
    """Set the order of a topic at all name servers. Raises: ChangeFailed."""
    await servers.change_namesrvs(
        f"setting the order of topic {topic}", lambda address: put_value(servers, address, ORDER_TOPICS, topic, order)
    )


async def drop(servers: Servers, topic: str) -> None:
    """Delete the order of a topic at all name servers. Raises: ChangeFailed."""
    await servers.change_namesrvs(
        f"deleting the order of topic {topic}", lambda address: delete_value(servers, address, ORDER_TOPICS, topic)
    )
