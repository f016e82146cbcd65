"""Names of topics and groups: the one validator, and the names with a meaning in RocketMQ.

    Orders                    a topic            letters, digits, % | - _ and at most 127 of them
    billing                   a consumer group   the same, at most 120, so that its retry topic is a topic
    %RETRY%billing            the group's retry topic: failed messages wait there for their next try
    %DLQ%billing              the group's dead-letter topic, after the last try
    shop%Orders               topic Orders in namespace shop

Names become folders and keys of stored state, and arrive from others, so each border calls `check_topic` or
`check_group`. Source: TopicValidator, MixAll and NamespaceUtil, Java 4.9.8.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from sparrowmq.errors import InvalidName

MAX_TOPIC_LENGTH: Final = 127  # the record's length field is a signed byte
MAX_GROUP_LENGTH: Final = 120
RETRY: Final = "%RETRY%"
DLQ: Final = "%DLQ%"

DEFAULT_TOPIC: Final = "TBW102"  # the template of topics that are created by a send
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
STAGED_TOPIC: Final = "rmq_sys_STAGED"  # ours: batches before their commit, and commits
STATE_TOPIC: Final = "rmq_sys_sparrow_state"  # ours: changes of topics, groups and offsets
SYSTEM_PREFIX: Final = "rmq_sys_"
ORDER_TOPICS: Final = "ORDER_TOPIC_CONFIG"  # where name servers keep the queues of ordered topics, as values by topic
LOST_BROKERS: Final = "LOST_BROKERS"  # ours: where name servers keep brokers that died, as values by name
CONDITIONS: Final = "SPARROWMQ_CONDITIONS"  # ours: as what a name server answers what is wrong with itself
REPLY_SUFFIX: Final = "_REPLY_TOPIC"  # behind a cluster's name: where a broker keeps replies to requests
SYSTEM_TOPICS: Final = frozenset(
    {
        DEFAULT_TOPIC,
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        BENCHMARK_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
# Only the broker itself writes to these.
CLOSED_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        STAGED_TOPIC,
        STATE_TOPIC,
    }
)

DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"
DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"  # whose offsets say up to where transactions have ended
SYSTEM_GROUPS: Final = frozenset(
    {
        DEFAULT_PRODUCER_GROUP,
        DEFAULT_CONSUMER_GROUP,
        INNER_PRODUCER_GROUP,
        TOOLS_GROUP,
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "SELF_TEST_P_GROUP",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
    }
)

# Producer groups that clients announce by themselves, so that programs of many accounts are in them.
_ALLOWED_PATTERN = re.compile(r"[%|a-zA-Z0-9_-]+")
_RULE_TEXT = "use only letters, digits, '%', '|', '_' and '-'"


@lru_cache(maxsize=65536)
def check_topic(name: str) -> str:
    """Return the name if it is valid for a topic. Cached, because each request needs it. Raises: InvalidName, names the
    rule.
    """
    return _check("topic", name, MAX_TOPIC_LENGTH)


@lru_cache(maxsize=65536)
def check_group(name: str) -> str:
    """Return the name if it is valid for a producer or consumer group. Raises: InvalidName."""
    return _check("group", name, MAX_GROUP_LENGTH)


@lru_cache(maxsize=65536)
def check_new_topic(name: str) -> str:
    """Return the name if users may create a topic with it. Raises: InvalidName."""
    if is_system_topic(check_topic(name)):
        raise InvalidName(f"topic {name} belongs to RocketMQ itself (is conflict with system topic); choose another")
    return name


def check_broker_name(name: str) -> str:
    """Return the name if it is valid for a broker or cluster; as in Java, dots are valid. Raises: InvalidName."""
    if name in (".", ".."):
        raise InvalidName(f"{name!r} is not a broker or cluster name; {_RULE_TEXT}")
    _check("broker or cluster", name.replace(".", "-"), MAX_TOPIC_LENGTH)
    return name


def retry_topic(group: str) -> str:
    return RETRY + group


def dlq_topic(group: str) -> str:
    return DLQ + group


def group_of(topic: str) -> str | None:
    """The group of a retry or dead-letter topic; None for other topics."""
    for prefix in (RETRY, DLQ):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return None


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_closed_to_clients(topic: str) -> bool:
    return topic in CLOSED_TOPICS


def is_internal(topic: str) -> bool:
    """Whether the topic holds messages of others that wait or were set aside. Traces and benchmarks are not such."""
    return topic in CLOSED_TOPICS or topic.startswith(SYSTEM_PREFIX)


def check_namespace(namespace: str) -> str:
    """Return the namespace if it is valid; empty means no namespace. Raises: InvalidName."""
    if namespace and ("%" in namespace or not _ALLOWED_PATTERN.fullmatch(namespace)):
        raise InvalidName(f"namespace {namespace!r} is invalid; use only letters, digits, '|', '_' and '-'")
    return namespace


def with_namespace(namespace: str, name: str) -> str:
    """The full name of a topic or group in a namespace. System names have no namespace."""
    if not namespace:
        return name
    prefix = next((prefix for prefix in (RETRY, DLQ) if name.startswith(prefix)), "")
    plain = name.removeprefix(prefix)
    if is_system_topic(plain) or is_system_group(plain) or plain.startswith(namespace + "%"):
        return name
    return f"{prefix}{namespace}%{plain}"


def without_namespace(namespace: str, name: str) -> str:
    """The name without the namespace, as applications in it use it."""
    prefix = next((prefix for prefix in (RETRY, DLQ) if name.startswith(prefix)), "")
    return prefix + name.removeprefix(prefix).removeprefix(namespace + "%") if namespace else name


def _check(kind: str, name: str, max_length: int) -> str:
    if not name or name.isspace():
        raise InvalidName(f"the {kind} name is blank; give one")
    if len(name) > max_length:
        raise InvalidName(
            f"{kind} name {name[:40]}... has {len(name)} characters, {max_length} are allowed; shorten it"
        )
    if not _ALLOWED_PATTERN.fullmatch(name):
        raise InvalidName(f"{kind} name {name!r} contains illegal characters; {_RULE_TEXT}")
    return name
