"""Topics: create, change, delete and show them.

Queues become fewer without hiding messages that a topic's groups have not consumed:

    write queues 8 -> 2    at once: no new message goes to the other queues
    read queues  8 -> 2    only once the groups have consumed what is in them; consumers would not see it any more

For each ordered topic the name servers keep the queues among which keys choose:

    ORDER_TOPIC_CONFIG, orders    broker-a:4;broker-b:4    as many queues of each broker, whether it is there or not

Each name server has its own copy, and gives it to clients in routes if its `orderMessageEnable` is true. A change of an
order moves keys to other queues, so nothing here changes one. `mqadmin updateOrderConf` does. Source:
UpdateTopicSubCommand, DeleteTopicSubCommand, TopicStatusSubCommand and createOrUpdateOrderConf, Java 4.9.8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, get_args

from sparrowmq.admin import catalogue
from sparrowmq.admin.servers import Masters, Servers, masters_in
from sparrowmq.client.arguments import check_count, check_kind
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
from sparrowmq.protocol.requests.bodies import MOST_QUEUES, TopicConfig
from sparrowmq.protocol.requests.offset_bodies import TopicOffset

TopicPerm = Literal["rw", "r", "w", "none"]
TopicType = Literal["UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED"]
TYPES: Final[tuple[TopicType, ...]] = get_args(TopicType)
PERMS: Final[dict[TopicPerm, int]] = {"rw": Perm.READ_WRITE, "r": Perm.READ, "w": Perm.WRITE, "none": 0}
_ENABLED_SETTING: Final = "orderMessageEnable"


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
    """The messages in a queue: their offsets are in [min_offset, max_offset). A queue without messages has no time."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_stored: datetime | None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now. `order` is None, or as in "broker-a:4;broker-b:4" the queues among which keys choose."""

    name: str
    shares: tuple[TopicShare, ...]
    queues: tuple[QueueRange, ...]
    order: str | None = None

    @property
    def count(self) -> int:
        return sum(queue_range.max_offset - queue_range.min_offset for queue_range in self.queues)


async def create_topic(
    servers: Servers,
    name: str,
    *,
    queues: int = 8,
    perm: TopicPerm = "rw",
    cluster: str | None = None,
    exist_ok: bool = False,
    ordered: bool = False,
    message_type: TopicType | None = None,
) -> list[str]:
    """Create a topic at every master; returns their names.

    Args:
        queues: the number of queues on each broker.
        perm: what clients may do with it: "rw", "r", "w" or "none".
        exist_ok: replace the settings of an existing topic. An ordered topic stays ordered.
        ordered: keys keep their queue while a broker is away: a send with `fifo=` waits or fails. The queues are
            those of the brokers that are there now, and cannot be changed. All name servers are written, so name
            them all.
        message_type: the only type of messages that producers of 5.x may send, "NORMAL" by default; "MIXED" is all.
            Producers of the remoting protocol send any type.
    Raises: AlreadyThere, a master has it, and `exist_ok` is not given; InvalidName; ChangeFailed; ConfigError, the
    topic is ordered with another number of queues, or is to be ordered, and a name server does not give orders to
    clients, or `queues` is not from 1 to 65535.
    """
    check_count("queues", queues, at_most=MOST_QUEUES)
    check_kind("ordered", ordered, bool, "True or False")
    check_kind("exist_ok", exist_ok, bool, "True or False")
    full_name, attributes = servers.network.full_topic(name), attributes_of(message_type)
    config = TopicConfig(full_name, queues, queues, number_of(perm), attributes=attributes)
    name = check_new_topic(full_name)
    masters = await servers.masters(cluster)
    if not exist_ok:
        with suppress(NoRoute):
            if holders := sorted(masters.keys() & await servers.masters_of(name)):
                raise AlreadyThere(
                    f"topic {name} is there already, at {', '.join(holders)}; change it, or take another name"
                )
    order = await order_of(servers, name)
    is_plain = order is None and not ordered
    chosen_masters = masters if is_plain else await _make_ordered(servers, config, masters, order)
    return await servers.change(
        f"setting topic {name}",
        chosen_masters,
        lambda _, address: catalogue.put_topic(servers, address, config, config.attributes),
    )


async def _make_ordered(servers: Servers, config: TopicConfig, masters: Masters, order: str | None) -> Masters:
    """Make a topic ordered at all name servers, before any broker has it; return the masters that get it."""
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


async def change_topic(
    servers: Servers,
    name: str,
    *,
    queues: int | None = None,
    read_queues: int | None = None,
    write_queues: int | None = None,
    perm: TopicPerm | None = None,
    message_type: TopicType | None = None,
    hide_unread: bool = False,
    cluster: str | None = None,
) -> list[str]:
    """Change a topic at every master that has it; without a value a setting stays. Returns their names.

    If queues that are to go have messages that a group has not consumed, only the write queues are lowered. With
    `hide_unread` the read queues are lowered all the same, and consumers do not see these messages any more.
    `queues` sets both counts.
    Raises: StillUnread, the read queues stay, try again when the messages are consumed; NoRoute, it does not exist;
    ChangeFailed; ConfigError, it is ordered, and another number of queues would move its keys.
    """
    for name_of_count, count in (("queues", queues), ("read_queues", read_queues), ("write_queues", write_queues)):
        if count is not None:
            check_count(name_of_count, count, at_least=0, at_most=MOST_QUEUES)
    check_kind("hide_unread", hide_unread, bool, "True or False")
    name, attributes = check_new_topic(servers.network.full_topic(name)), attributes_of(message_type)
    read_queues = queues if read_queues is None else read_queues
    write_queues = queues if write_queues is None else write_queues
    masters = await _masters_of(servers, name, cluster)
    perm_bits = None if perm is None else number_of(perm)
    order = await order_of(servers, name)
    if order is not None:
        check_counts(name, order, read_queues, write_queues)
    unread_counts: dict[str, int] = {}
    failures: dict[str, SparrowError] = {}
    if read_queues is not None and not hide_unread:
        unread_counts, failures = await unread(servers, name, masters, read_queues)

    async def change_at(broker: str, address: str) -> None:
        if broker in failures:
            raise failures[broker]
        config = (await catalogue.topic_table(servers, address)).get(name)
        if config is None:
            raise NoRoute(name, address)
        if read_queues is not None and (not unread_counts or read_queues > config.read_queue_nums):
            config.read_queue_nums = read_queues
        config.write_queue_nums = config.write_queue_nums if write_queues is None else write_queues
        config.perm = config.perm if perm_bits is None else perm_bits
        await catalogue.put_topic(servers, address, config, attributes)

    changed_brokers = await servers.change(f"changing topic {name}", masters, change_at)
    if unread_counts and read_queues is not None:
        raise StillUnread(servers.network.plain_name(name), read_queues, unread_counts)
    return changed_brokers


async def delete_topic(servers: Servers, name: str, *, cluster: str | None = None) -> list[str]:
    """Delete a topic with its messages and its route; returns the masters' names. Raises: NoRoute, ChangeFailed."""
    name = check_new_topic(servers.network.full_topic(name))
    masters = await _masters_of(servers, name, cluster)
    order = await order_of(servers, name)
    if order is not None and cluster is not None:
        other_brokers = {place.name for place in await servers.brokers() if place.cluster != cluster}
        if other_brokers := other_brokers & counts_in(name, order).keys():
            raise ConfigError(
                f"topic {name} is ordered on {order}, and {', '.join(sorted(other_brokers))} is in another cluster; "
                "delete it everywhere, without a cluster"
            )
    deleted_brokers = await remove(servers, name, masters, cluster)
    if order is not None:
        await drop(servers, name)  # or a later topic of this name would be ordered
    return deleted_brokers


async def remove(servers: Servers, name: str, masters: Masters, cluster: str | None) -> list[str]:
    """Delete a topic at some masters, and its route; an absent topic is no error. Raises: ChangeFailed."""
    deleted_brokers = await servers.change(
        f"deleting topic {name}", masters, lambda _, address: catalogue.delete_topic(servers, address, name)
    )
    _, failures = await servers.ask_namesrvs(lambda address: catalogue.delete_route(servers, address, name, cluster))
    if failures:
        raise ChangeFailed(f"deleting topic {name}", deleted_brokers, failures)
    return deleted_brokers


async def names(servers: Servers, cluster: str | None = None, *, hidden: bool = False) -> list[str]:
    """Return the names of all topics, or of a cluster's; `hidden` adds retry topics, dead letters and others."""
    if cluster is not None:
        await servers.brokers(cluster)
    full_names = set(await catalogue.topic_names(servers, cluster))
    if hidden and not servers.network.namespace:
        return sorted(full_names)
    system_topics = await _system_topics(servers)
    other_names = {name for name in full_names - system_topics if not is_system_topic(name)}
    names_inside = servers.network.names_inside(other_names)
    if hidden:
        return sorted(names_inside | (full_names - other_names))
    return sorted(name for name in names_inside if group_of(name) is None)


async def show(servers: Servers, name: str) -> Topic:
    """Return a topic with its settings at each broker, and the offsets of its queues. Raises: NoRoute."""
    name = servers.network.full_topic(name)
    route = await servers.route(name)
    masters = masters_in(route)
    configs, _ = await servers.ask_masters(masters, lambda _, address: catalogue.topic_config(servers, address, name))
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
            servers.network.plain_queue(queue),
            queue_range.min_offset,
            queue_range.max_offset,
            local_time(queue_range.last_update_timestamp),
        )
        for queue, queue_range in sorted(offsets.items())
    ]
    order = route.order_topic_conf if fixed_queues(name, route.order_topic_conf or "") else None
    return Topic(servers.network.plain_name(name), tuple(shares), tuple(queues), order)


async def ranges(servers: Servers, topic: str, masters: Masters) -> dict[MessageQueue, TopicOffset]:
    """Return the offsets of each queue of a topic. Raises: the error of a master that does not answer."""
    tables = await servers.all(masters, lambda _, address: catalogue.topic_offsets(servers, address, topic))
    return {queue: queue_range for table in tables.values() for queue, queue_range in table.items()}


async def consumers_of(servers: Servers, topic: str) -> list[str]:
    """Return the groups that consume a topic, or have. Raises: NoRoute."""
    masters = await servers.masters_of(topic)
    groups_by_broker = await servers.all(masters, lambda _, address: catalogue.groups_of_topic(servers, address, topic))
    return sorted({group for groups in groups_by_broker.values() for group in groups})


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


async def _masters_of(servers: Servers, name: str, cluster: str | None) -> Masters:
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
    table = await catalogue.system_topics_of_cluster(servers)
    system_topics = {*table.topic_list, *(name + REPLY_SUFFIX for name in table.topic_list)}
    network_error: NetworkError | None = None
    places = await servers.brokers()
    for address in [place.addresses[min(place.addresses)] for place in places if place.addresses]:
        try:
            return system_topics.union(await catalogue.system_topics_of_broker(servers, address))
        except NetworkError as error:
            network_error = network_error or error
    if network_error is not None:
        raise network_error
    return system_topics


async def unread(
    servers: Servers, topic: str, masters: Masters, read_queues: int
) -> tuple[dict[str, int], dict[str, SparrowError]]:
    """Count, by group, the messages that it has not consumed in the queues from number `read_queues` on; the key "" has
    the messages of queues that no group has consumed. Return also the errors of brokers that could not be asked.
    """
    tables, failures = await servers.ask_masters(
        masters, lambda _, address: _unread_at(servers, topic, address, read_queues)
    )
    counts_by_group: dict[str, int] = {}
    for counts in tables.values():
        for group, count in counts.items():
            counts_by_group[group] = counts_by_group.get(group, 0) + count
    return {group: count for group, count in sorted(counts_by_group.items()) if count}, failures


async def _unread_at(servers: Servers, topic: str, address: str, read_queues: int) -> dict[str, int]:
    ranges = await catalogue.topic_offsets(servers, address, topic)
    removed_ranges = {queue: queue_range for queue, queue_range in ranges.items() if queue.queue_id >= read_queues}
    counts: dict[str, int] = {}
    consumed_queues = set()
    for group in await catalogue.groups_of_topic(servers, address, topic) if removed_ranges else ():
        progress = (await catalogue.group_progress(servers, address, group, topic)).offset_table
        for queue in removed_ranges.keys() & progress.keys():
            counts[group] = counts.get(group, 0) + progress[queue].left(removed_ranges[queue].min_offset)
            consumed_queues.add(queue)
    counts[""] = sum(
        removed_ranges[queue].max_offset - removed_ranges[queue].min_offset
        for queue in removed_ranges.keys() - consumed_queues
    )
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
        order = await catalogue.value_of(servers, ORDER_TOPICS, topic)
    except RemoteError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    return order if order and fixed_queues(topic, order) else None


async def ordered_brokers(servers: Servers) -> dict[str, list[str]]:
    """Return all brokers that topics are ordered on, each with these topics, as the name servers say that answer."""
    answers, _ = await servers.ask_namesrvs(lambda address: catalogue.values_of(servers, ORDER_TOPICS, address))
    topics_by_broker: dict[str, list[str]] = {}
    for topic, order in sorted({topic_and_order for orders in answers.values() for topic_and_order in orders.items()}):
        for broker in counts_in(topic, order):
            topics = topics_by_broker.setdefault(broker, [])
            if topic not in topics:
                topics.append(topic)
    return topics_by_broker


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
    answers, failures = await servers.ask_namesrvs(lambda address: catalogue.namesrv_settings(servers, address))
    for error in failures.values():
        raise error
    for address, settings in answers.items():
        if settings.get(_ENABLED_SETTING, "").lower() != "true":
            raise ConfigError(
                f"name server {address} does not tell clients which topics are ordered, so keys would move; nothing "
                f"was created. Run `mqadmin updateNamesrvConfig -n {address} -k {_ENABLED_SETTING} -v true`, and put "
                f"{_ENABLED_SETTING}=true into its settings file"
            )


async def put(servers: Servers, topic: str, order: str) -> None:
    """Set the order of a topic at all name servers. Raises: ChangeFailed."""
    await servers.change_namesrvs(
        f"setting the order of topic {topic}",
        lambda address: catalogue.put_value(servers, address, ORDER_TOPICS, topic, order),
    )


async def drop(servers: Servers, topic: str) -> None:
    """Delete the order of a topic at all name servers. Raises: ChangeFailed."""
    await servers.change_namesrvs(
        f"deleting the order of topic {topic}",
        lambda address: catalogue.delete_value(servers, address, ORDER_TOPICS, topic),
    )
