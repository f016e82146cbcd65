"""The topics that a pipeline writes to, which are made if needed, and their queues."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.catalogue import topic_config
from sparrowmq.admin.servers import masters_in
from sparrowmq.admin.topics import TopicType
from sparrowmq.client.cluster.blocking_network import BlockingNetwork
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.client.cluster.routes import fixed_queues
from sparrowmq.errors import ConfigError, NetworkError, NoRoute, SendFailed
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.messages.message_types import type_of_topic
from sparrowmq.spark.options import ClusterOptions, SinkOptions, SourceOptions, check_sending, parse
from sparrowmq.spark.source.query_offsets import OffsetClient
from sparrowmq.spark.worker import connect, tls_context

_DEFAULT_TYPES: Final = ("NORMAL", "UNSPECIFIED")
_OPTIONS_NOT_FOR_COPIES: Final = frozenset(
    {"topic", "deliveryguarantee", "onerror", "dlqtopic", "maxinflight", "writeid"}
)


def readable_queues(options: SourceOptions) -> list[MessageQueue]:
    """The queues of the topics that the options choose. Raises: NoRoute, NetworkError."""
    with connect(options) as network:
        return OffsetClient(network, options).queues(())[0]


def writable_queues(options: SinkOptions, topics: Iterable[str]) -> list[MessageQueue]:
    """The queues of topics that take messages. Raises: NoRoute, SendFailed, NetworkError."""
    with connect(options) as network:
        return [queue for topic in topics for queue in _writable(network, topic)]


class Nature(NamedTuple):
    """The type of messages of a topic, and whether keys keep their queue, both as `Admin.create_topic` has them."""

    message_type: TopicType | None = None
    ordered: bool = False


def create_topics(
    options: SinkOptions,
    topics: Mapping[str, int],
    cluster: str | None,
    nature: Callable[[str], Nature] = lambda _: Nature(),
) -> list[str]:
    """Make the topics that are not there, with so many queues on each broker. Raises: ConfigError; NetworkError."""
    with connect(options) as network:
        absent = [topic for topic in sorted(topics) if not _exists(network, topic)]
        for topic in absent:
            asyncio.run(_create(options, topic, topics[topic], cluster, nature(topic)))
            network.retrying(partial(_check_known, network, topic))
    return absent


def queues_per_broker(queues: Iterable[MessageQueue]) -> dict[str, int]:
    """By topic: the largest number of queues on one broker."""
    counts = Counter((queue.topic, queue.broker_name) for queue in queues)
    widths: dict[str, int] = {}
    for (topic, _), count in counts.items():
        widths[topic] = max(widths.get(topic, 0), count)
    return widths


def _writable(network: BlockingNetwork, topic: str) -> tuple[MessageQueue, ...]:
    queues = network.retrying(partial(network.route, topic)).keyed
    if not queues:
        raise SendFailed(f"no queue of topic {topic} takes messages; check its permission with updateTopicPerm")
    return queues


def _exists(network: BlockingNetwork, topic: str) -> bool:
    try:
        network.retrying(partial(network.route, topic))
    except NoRoute:
        return False
    return True


def _check_known(network: BlockingNetwork, topic: str) -> None:
    try:
        network.route(topic)
    except NoRoute as error:
        raise NetworkError(f"topic {topic} was made, and no name server knows it yet") from error


def nature_of(options: SourceOptions, topic: str) -> Nature:
    """Return the nature of an existing topic. Raises: NoRoute, NetworkError."""
    return asyncio.run(_nature(options, topic))


async def _nature(options: ClusterOptions, topic: str) -> Nature:
    async with admin_of(options) as admin:
        route = await admin.servers.route(topic)
        ordered = bool(fixed_queues(topic, route.order_topic_conf or ""))
        configs, _ = await admin.servers.ask_masters(
            masters_in(route), lambda _, address: topic_config(admin.servers, address, topic)
        )
    kinds: set[TopicType] = {type_of_topic(config.attributes).value for config in configs.values()}
    return Nature(min(kinds.difference(_DEFAULT_TYPES), default=None), ordered)


async def _create(options: ClusterOptions, topic: str, queues: int, cluster: str | None, nature: Nature) -> None:
    async with admin_of(options) as admin:
        create = partial(
            admin.create_topic, topic, queues=queues, cluster=cluster, exist_ok=True, message_type=nature.message_type
        )
        try:
            await create(ordered=nature.ordered)
        except ConfigError:  # the name servers there give no orders to clients
            if not nature.ordered:
                raise
            await create()


def sink_options(options: Mapping[str, str] | None, name_server: str) -> SinkOptions:
    """Options of a sink for any topic. Raises: ConfigError, one is wrong, or has no meaning for copies."""
    for name in options or {}:
        if name.lower() in _OPTIONS_NOT_FOR_COPIES:
            raise ConfigError(f"option {name} has no meaning for copies, which come once, one after the other")
    check_sending(options or {})
    return parse(SinkOptions, {**(options or {}), "nameServer": name_server})


def admin_of(options: ClusterOptions) -> Admin:
    """An admin client with the account and the TLS of source and sink. Raises: ConfigError, a TLS file is unusable."""
    credentials = None
    if options.access_key and options.secret_key:
        credentials = Credentials(options.access_key, options.secret_key, options.security_token)
    return Admin(list(options.name_servers), credentials=credentials, tls=tls_context(options) or False)
