"""The order of topics: for each ordered topic the name servers keep the queues among which keys choose.

    ORDER_TOPIC_CONFIG, orders    broker-a:4;broker-b:4    as many queues of each broker, whether it is there or not

Each name server has its own copy, and gives it to clients in routes if its `orderMessageEnable` is true. A change of an
order moves keys to other queues, so nothing here changes one. `mqadmin updateOrderConf` does.
Source: DefaultMQAdminExtImpl.createOrUpdateOrderConf, Java 4.9.8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from sparrowmq.client.admin.operations.namesrv_operations import (
    delete_value,
    namesrv_settings,
    put_value,
    value_of,
    values_of,
)
from sparrowmq.client.admin.servers import Servers
from sparrowmq.client.cluster.route import fixed_queues
from sparrowmq.errors import ConfigError, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.names import ORDER_TOPICS

_ENABLED: Final = "orderMessageEnable"


def text_of(brokers: Iterable[str], queues: int) -> str:
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


async def brokers_of_all(servers: Servers) -> dict[str, list[str]]:
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
            other = text_of(counts, count)
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
        f"setting the order of topic {topic}",
        lambda address: put_value(servers, address, ORDER_TOPICS, topic, order),
    )


async def drop(servers: Servers, topic: str) -> None:
    """Delete the order of a topic at all name servers. Raises: ChangeFailed."""
    await servers.change_namesrvs(
        f"deleting the order of topic {topic}",
        lambda address: delete_value(servers, address, ORDER_TOPICS, topic),
    )
