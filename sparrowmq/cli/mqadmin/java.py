"""Output of Java's tool that Python would print otherwise: the order of hash tables, JSON, times, descriptions,
failures, and files.

The order of a HashMap is no promise, but scripts have seen it for years. It follows from the keys alone, so it is the
same here. A failure is printed on stderr with the classes and texts of Java's exceptions, without the frames:

    org.apache.rocketmq.tools.command.SubCommandException: TopicRouteSubCommand command failed
    Caused by: org.apache.rocketmq.client.exception.MQClientException: CODE: 17  DESC: No topic route info in ...
    See http://rocketmq.apache.org/docs/faq/ for further details.

Source: java.util.HashMap of Java 17, fastjson 1.2 (PrettyFormat); MQClientException, MQBrokerException, FAQUrl,
MQClientAPIImpl, and the `toString` of the classes named below, 4.9.8.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from sparrowmq.errors import (
    BrokerUnreachable,
    ConnectionClosed,
    NameServerUnreachable,
    RemoteError,
    RequestTimeout,
    SparrowError,
)
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests import admin_headers as admin
from sparrowmq.protocol.requests import headers as client
from sparrowmq.protocol.requests import user_headers as user
from sparrowmq.protocol.requests.bodies import GroupConfig, TopicConfig
from sparrowmq.protocol.wire.header import Request
from sparrowmq.settings.setting_kinds import whole_number

T = TypeVar("T")

_MASK: Final = 0xFFFFFFFF
_MIN_BUCKET_COUNT: Final = 16
_CLIENT: Final = "org.apache.rocketmq.client.exception"
_REMOTING: Final = "org.apache.rocketmq.remoting.exception"
_FAQ: Final = "http://rocketmq.apache.org/docs/faq/"
FAQ_HINT: Final = f"\nSee {_FAQ} for further details."
_OPEN_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK


def hash_of(text: str) -> int:
    """String.hashCode, as an unsigned number."""
    return string_hash(text) & _MASK


def hash_of_queue(queue: MessageQueue) -> int:
    """MessageQueue.hashCode."""
    code = 31 + hash_of(queue.broker_name)
    code = 31 * code + queue.queue_id
    return (31 * code + hash_of(queue.topic)) & _MASK


def in_hash_order(items: Iterable[T], code_of: Callable[[T], int]) -> list[T]:
    """Return items in the order of a HashMap or HashSet that grew with them."""
    ordered = list(items)
    bucket_count = _MIN_BUCKET_COUNT
    while len(ordered) > bucket_count * 3 // 4:
        bucket_count *= 2

    def bucket(item: T) -> int:
        code = code_of(item)
        return (code ^ code >> 16) & (bucket_count - 1)

    return sorted(ordered, key=bucket)


def in_set_order(items: Iterable[str]) -> list[str]:
    """Return texts in the order of a HashSet."""
    return in_hash_order(items, hash_of)


def queues_in_map_order(items: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Return queues in the order of a HashMap."""
    return in_hash_order(items, hash_of_queue)


def in_map_order(items: Mapping[str, T]) -> list[tuple[str, T]]:
    """Return a table in the order of a HashMap."""
    return [(key, items[key]) for key in in_set_order(items)]


def pretty_json(value: Any, depth: int = 0) -> str:
    """Return JSON as fastjson writes it for people: tabs, and a map's closing brace on a line of its own.

    Keys of a dict that are integers have no quotes.
    """
    inner, outer = "\n" + "\t" * (depth + 1), "\n" + "\t" * depth
    if isinstance(value, dict):
        if not value:
            return "{}"
        pairs = [
            f"{key if isinstance(key, int) else json.dumps(key, ensure_ascii=False)}:{pretty_json(item, depth + 1)}"
            for key, item in value.items()
        ]
        has_numbers = isinstance(next(iter(value)), int)
        return "{" + ("" if has_numbers else inner) + ("," if has_numbers else "," + inner).join(pairs) + outer + "}"
    if isinstance(value, list):
        if not any(isinstance(item, dict | list) for item in value):
            return "[" + ",".join(pretty_json(item) for item in value) + "]"
        return "[" + inner + ("," + inner).join(pretty_json(item, depth + 1) for item in value) + outer + "]"
    return json.dumps(value, ensure_ascii=False)


def time_text(timestamp_ms: int) -> str:
    """yyyy-MM-dd HH:mm:ss, local."""
    return f"{datetime.fromtimestamp(timestamp_ms // 1000):%Y-%m-%d %H:%M:%S}"


def time_text_ms(timestamp_ms: int) -> str:
    """UtilAll.timeMillisToHumanString2."""
    return f"{time_text(timestamp_ms)},{timestamp_ms % 1000:03d}"


def compact_time_text(timestamp_ms: int) -> str:
    """UtilAll.timeMillisToHumanString."""
    return f"{datetime.fromtimestamp(timestamp_ms // 1000):%Y%m%d%H%M%S}{timestamp_ms % 1000:03d}"


def parse_time(text: str) -> int:
    """Parse a time in milliseconds: a number, or yyyy-MM-dd#HH:mm:ss:SSS. Raises: ValueError."""
    try:
        return whole_number(text)
    except ValueError:
        day, _, millis = text.rpartition(":")
        return round(datetime.strptime(day, "%Y-%m-%d#%H:%M:%S").timestamp() * 1000) + whole_number(millis)


def value_text(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_true(text: str) -> bool:
    """Boolean.parseBoolean."""
    return text.strip().lower() == "true"


def to_string(name: str, values: Mapping[str, object]) -> str:
    """Return a description such as `TopicConfig [topicName=T, perm=RW-]`."""
    return f"{name} [{', '.join(f'{key}={value_text(value)}' for key, value in values.items())}]"


def perm_text(perm: int) -> str:
    """PermName.perm2String."""
    return ("R" if perm & 4 else "-") + ("W" if perm & 2 else "-") + ("X" if perm & 1 else "-")


def topic_text(topic: TopicConfig) -> str:
    """TopicConfig.toString."""
    return to_string(
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
    return to_string("MessageQueue", {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id})


# What a broker refuses of these is an MQBrokerException, which names the broker; of all others an MQClientException.
BROKER_REQUESTS: Final = frozenset(
    {
        admin.GetBrokerClusterAcl,
        admin.GetConsumeStats,
        admin.GetConsumerConnectionList,
        admin.QueryTopicConsumeByWho,
        admin.GetBrokerRuntime,
        admin.GetBrokerConfig,
        admin.UpdateBrokerConfig,
        admin.GetProducerConnectionList,
        admin.GetAllProducers,
        admin.GetTopicStats,
        admin.GetAllSubscriptionGroup,
        admin.GetAllTopicConfig,
        client.ViewMessage,
        client.GetMaxOffset,
        client.GetMinOffset,
        client.SearchOffset,
        client.UpdateConsumerOffset,
        client.PullMessage,
        client.SendMessage,
        client.SendMessageV2,
        user.CreateUser,
        user.UpdateUser,
        user.DeleteUser,
        user.GetUser,
        user.ListUsers,
        user.CreateAcl,
        user.UpdateAcl,
        user.DeleteAcl,
        user.GetAcl,
        user.ListAcls,
    }
)


class Failure(Exception):
    """An exception of Java, of the class `kind`."""

    def __init__(self, kind: str, text: str | None = None, code: int = -1, remark: str = "") -> None:
        super().__init__(kind if text is None else f"{kind}: {text}")
        self.kind = kind
        self.code = code  # of the response; -1 if there is none
        self.remark = remark  # the text without the code and hints

    @property
    def is_of_broker(self) -> bool:
        """Whether a broker refused, and not a name server or the client."""
        return self.kind.endswith("MQBrokerException")


def client_failure(text: str, code: int | None = None) -> Failure:
    """MQClientException, with a response code or without."""
    message = text if code is None else f"CODE: {code}  DESC: {text}"
    return Failure(f"{_CLIENT}.MQClientException", _with_hint(message), -1 if code is None else code, text)


def broker_failure(error: RemoteError, address: str) -> Failure:
    """MQBrokerException."""
    remark = error.remark or "null"
    message = f"CODE: {int(error.code)}  DESC: {remark} BROKER: {address}"
    return Failure(f"{_CLIENT}.MQBrokerException", _with_hint(message), int(error.code), remark)


def no_route_failure(topic: str) -> Failure:
    return client_failure(f"No topic route info in name server for the topic: {topic}{FAQ_HINT}", 17)


def failure_from(error: SparrowError, request: Request[Any] | None = None, address: str = "") -> Failure:
    """Return the exception that Java throws for an error of ours."""
    if isinstance(error, RemoteError):
        if type(request) in BROKER_REQUESTS:
            return broker_failure(error, address)
        return client_failure(error.remark or "null", int(error.code))
    if isinstance(error, RequestTimeout):
        text = f"wait response on the channel <{error.address}> timeout, {round(error.timeout_s * 1000)}(ms)"
        return Failure(f"{_REMOTING}.RemotingTimeoutException", text)
    if isinstance(error, ConnectionClosed):
        return Failure(f"{_REMOTING}.RemotingSendRequestException", f"send request to <{error.address}> failed")
    if isinstance(error, NameServerUnreachable):
        return Failure(f"{_REMOTING}.RemotingConnectException", f"connect to [{error.addresses}] failed")
    if isinstance(error, BrokerUnreachable):
        return Failure(f"{_REMOTING}.RemotingConnectException", f"connect to {error.address} failed")
    return client_failure(str(error))


def number_failure(text: str) -> Failure:
    return Failure("java.lang.NumberFormatException", f'For input string: "{text}"')


def null_failure(reason: str) -> Failure:
    """The NullPointerException that Java throws; unlike Java with the reason."""
    return Failure("java.lang.NullPointerException", reason)


def _with_hint(text: str) -> str:
    if "\nSee " in text:
        return text
    return f"{text}\nFor more information, please visit the url, {_FAQ}"


def write(path: Path, content: bytes) -> Path:
    """Write a file, and make the folders above it. Returns the path. Raises: Failure.

    Unlike Java: a link or a pipe in the place of the file is refused. In /tmp another user could let a link lead to any
    file of the operator, and a pipe would keep the command waiting.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, _OPEN_FLAGS, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise Failure("java.io.FileNotFoundException", f"{path} ({error.strerror})") from None
    return path
