"""Output of Java's tool that Python would print otherwise: the order of hash tables, JSON, times, descriptions.

The order of a HashMap is no promise, but scripts have seen it for years. It follows from the keys alone, so it is the
same here. Source: java.util.HashMap of Java 17, fastjson 1.2 (PrettyFormat), and the `toString` of the classes named
below, 4.9.8.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import GroupConfig, TopicConfig
from sparrowmq.protocol.string_hash import string_hash
from sparrowmq.settings.setting_kinds import whole_number

T = TypeVar("T")

_MASK: Final = 0xFFFFFFFF
_LEAST_BUCKETS: Final = 16


def hash_of(text: str) -> int:
    """String.hashCode, as an unsigned number."""
    return string_hash(text) & _MASK


def hash_of_queue(queue: MessageQueue) -> int:
    """MessageQueue.hashCode."""
    code = 31 + hash_of(queue.broker_name)
    code = 31 * code + queue.queue_id
    return (31 * code + hash_of(queue.topic)) & _MASK


def hashed(items: Iterable[T], code_of: Callable[[T], int]) -> list[T]:
    """Return items in the order of a HashMap or HashSet that grew with them."""
    found = list(items)
    buckets = _LEAST_BUCKETS
    while len(found) > buckets * 3 // 4:
        buckets *= 2

    def bucket(item: T) -> int:
        code = code_of(item)
        return (code ^ code >> 16) & (buckets - 1)

    return sorted(found, key=bucket)


def names(items: Iterable[str]) -> list[str]:
    """Return texts in the order of a HashSet."""
    return hashed(items, hash_of)


def queues(items: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return queues in the order of a HashMap."""
    return hashed(items, hash_of_queue)


def table(items: Mapping[str, T]) -> list[tuple[str, T]]:
    """Return a table in the order of a HashMap."""
    return [(key, items[key]) for key in names(items)]


def pretty(value: Any, depth: int = 0) -> str:
    """Return JSON as fastjson writes it for people: tabs, and a map's closing brace on a line of its own.

    Keys of a dict that are integers have no quotes.
    """
    inner, outer = "\n" + "\t" * (depth + 1), "\n" + "\t" * depth
    if isinstance(value, dict):
        if not value:
            return "{}"
        pairs = [
            f"{key if isinstance(key, int) else json.dumps(key, ensure_ascii=False)}:{pretty(each, depth + 1)}"
            for key, each in value.items()
        ]
        bare = isinstance(next(iter(value)), int)
        return "{" + ("" if bare else inner) + ("," if bare else "," + inner).join(pairs) + outer + "}"
    if isinstance(value, list):
        if not any(isinstance(each, dict | list) for each in value):
            return "[" + ",".join(pretty(each) for each in value) + "]"
        return "[" + inner + ("," + inner).join(pretty(each, depth + 1) for each in value) + outer + "]"
    return json.dumps(value, ensure_ascii=False)


def when(timestamp_ms: int) -> str:
    """yyyy-MM-dd HH:mm:ss, local."""
    return f"{datetime.fromtimestamp(timestamp_ms // 1000):%Y-%m-%d %H:%M:%S}"


def when_exactly(timestamp_ms: int) -> str:
    """UtilAll.timeMillisToHumanString2."""
    return f"{when(timestamp_ms)},{timestamp_ms % 1000:03d}"


def when_compactly(timestamp_ms: int) -> str:
    """UtilAll.timeMillisToHumanString."""
    return f"{datetime.fromtimestamp(timestamp_ms // 1000):%Y%m%d%H%M%S}{timestamp_ms % 1000:03d}"


def moment(text: str) -> int:
    """Parse a time in milliseconds: a number, or yyyy-MM-dd#HH:mm:ss:SSS. Raises: ValueError."""
    try:
        return whole_number(text)
    except ValueError:
        day, _, millis = text.rpartition(":")
        return round(datetime.strptime(day, "%Y-%m-%d#%H:%M:%S").timestamp() * 1000) + whole_number(millis)


def truth(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_true(text: str) -> bool:
    """Boolean.parseBoolean."""
    return text.strip().lower() == "true"


def fields(name: str, values: Mapping[str, object]) -> str:
    """Return a description such as `TopicConfig [topicName=T, perm=RW-]`."""
    return f"{name} [{', '.join(f'{key}={truth(value)}' for key, value in values.items())}]"


def perm_text(perm: int) -> str:
    """PermName.perm2String."""
    return ("R" if perm & 4 else "-") + ("W" if perm & 2 else "-") + ("X" if perm & 1 else "-")


def topic_text(topic: TopicConfig) -> str:
    """TopicConfig.toString."""
    return fields(
        "TopicConfig",
        {
            "topicName": topic.topic_name,
            "readQueueNums": topic.read_queue_nums,
            "writeQueueNums": topic.write_queue_nums,
            "perm": perm_text(topic.perm),
            "topicFilterType": topic.topic_filter_type,
            "topicSysFlag": topic.topic_sys_flag,
            "order": topic.order,
        },
    )


def group_table(group: GroupConfig) -> dict[str, object]:
    """Return a group's settings in Java's order."""
    return {
        "groupName": group.group_name,
        "consumeEnable": group.consume_enable,
        "consumeFromMinEnable": group.consume_from_min_enable,
        "consumeBroadcastEnable": group.consume_broadcast_enable,
        "retryQueueNums": group.retry_queue_nums,
        "retryMaxTimes": group.retry_max_times,
        "brokerId": group.broker_id,
        "whichBrokerWhenConsumeSlowly": group.which_broker_when_consume_slowly,
        "notifyConsumerIdsChangedEnable": group.notify_consumer_ids_changed_enable,
    }


def queue_text(queue: MessageQueue) -> str:
    """MessageQueue.toString."""
    return fields(
        "MessageQueue",
        {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id},
    )
