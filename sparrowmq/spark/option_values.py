"""Values of the options of `format("rocketmq")`: text in, value out, or a ValueError with advice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import check_group, check_topic
from sparrowmq.protocol.subscription import check_tags

Place: TypeAlias = Literal["earliest", "latest", "group"] | dict[MessageQueue, int]

EARLIEST: Final = -2  # in offsets JSON, as Kafka has it
LATEST: Final = -1
ANY_BROKER: Final = ""  # of a queue in Kafka's form of offsets, which names no broker

_MOST: Final = 2**63 - 1  # that a request holds
_LATEST_MS: Final = 253_402_300_799_999  # the end of the year 9999: later are microseconds
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_OFFSETS_SHAPE: Final = '{"topic":{"broker":{"0":123,"1":-1}}}, where -2 is the earliest and -1 the latest'
DIVIDER: Final = re.compile(r",(?![^\[{(]*[\]})])")  # a comma, but not one within brackets
_ASSIGN_SHAPE: Final = '{"topic":{"broker":[0,1]}}'


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("it is empty")
    return value.strip()


def tags(value: str) -> str:
    """A tag expression. Raises: InvalidMessage, as `check_tags`."""
    check_tags(text(value))
    return text(value)


def folder(value: str) -> str:
    """A file or folder of this machine, also as file:///path."""
    place = re.sub(r"^file:(//)?(?=/)", "", text(value))
    if re.match(r"[a-zA-Z][\w+.-]*:", place):
        raise ValueError("write a folder of this machine; mount other folders, or copy them here")
    return place


def flag(value: str) -> bool:
    return {"true": True, "false": False}[one_of("true", "false")(value)]


def one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.strip().lower() not in choices:
            raise ValueError(f"write {' or '.join(choices)}")
        return value.strip().lower()

    return parse


def whole(minimum: int, maximum: int = _MOST) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,99}\s*", value) or not minimum <= int(value) <= maximum:
            is_long = len(value) > len(str(2**62))  # others know that there are larger numbers
            limit = f", at most {maximum}" * (maximum < 2**62 or is_long)
            raise ValueError(f"write a whole number of at least {minimum}{limit}")
        return int(value)

    return parse


def names(value: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not found:
        raise ValueError("write names with commas between them")
    return found


def topics(value: str) -> tuple[str, ...]:
    return tuple(map(check_topic, names(value)))


def topic(value: str) -> str:
    return check_topic(text(value))


def group(value: str) -> str:
    return check_group(text(value))


def addresses(value: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in re.split(r"[;,]", value) if part.strip())
    with suppress(ConfigError):
        if found and all(map(split_address, found)):
            return found
    raise ValueError("write host:port, several with semicolons between them")


def pattern(value: str) -> re.Pattern[str]:
    """A regular expression, or several as `a,b`: the name of a topic has no comma."""
    parts = [part.strip() for part in DIVIDER.split(value) if part.strip()]
    if not parts:
        raise ValueError("it is empty")
    try:
        return re.compile(parts[0] if len(parts) == 1 else "|".join(f"(?:{part})" for part in parts))
    except re.error as error:
        raise ValueError(f"it is not a regular expression: {error}") from None


def milliseconds(value: str) -> int:
    """A duration: "1500", "90s", "15m"."""
    match = re.fullmatch(r"\s*([0-9]{1,12})\s*(ms|s|m|h)?\s*", value)
    if not match:
        raise ValueError("write a duration, as 1500ms, 90s, 15m or 1h")
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]


class Instant(int):
    """A point in time in milliseconds, with its text in the option."""

    text: str


def instant(value: str) -> Instant:
    """A point in time: "1700000000000", or ISO-8601, by default in UTC."""
    found = Instant(_time_ms(value))
    found.text = value.strip()
    return found


def _time_ms(value: str) -> int:
    try:
        if re.fullmatch(r"\s*[0-9]+\s*", value):
            return whole(0, _LATEST_MS)(value)
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise ValueError("write milliseconds since 1970, or a time as 2026-01-31T08:00:00Z") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def offsets(*words: str) -> Callable[[str], Place]:
    def parse(value: str) -> Any:
        if value.strip().lower() in words:
            return value.strip().lower()
        if not value.lstrip().startswith("{"):
            raise ValueError(f"write {', '.join(words)} or JSON as {_OFFSETS_SHAPE}")
        return queue_numbers(value, EARLIEST)

    return parse


def queue_numbers(value: str, minimum: int = 0) -> dict[MessageQueue, int]:
    """{"topic":{"broker":{"queue id":number}}}, or Kafka's {"topic":{"partition":number}}"""
    found = {}
    for topic, name, inner in _topics_and_brokers(value, _OFFSETS_SHAPE):
        broker, queues = (name, inner) if isinstance(inner, dict) else (ANY_BROKER, {name: inner})
        for queue_id, number in queues.items():
            parsed_id = whole_number(queue_id)
            if parsed_id is None or type(number) is not int or not minimum <= number <= _MOST:
                raise ValueError(f"queue {queue_id!r} has {number!r}; write JSON as {_OFFSETS_SHAPE}")
            found[MessageQueue(topic, broker, parsed_id)] = number
    return found


def demand_brokers(places: Mapping[MessageQueue, int]) -> None:
    """Raises: ConfigError, offsets or times have Kafka's form."""
    for queue, number in places.items():
        if queue.broker_name == ANY_BROKER:
            form = json.dumps({queue.topic: {"broker": {queue.queue_id: number}}})
            raise ConfigError(
                f"offsets or times of {queue.topic} name no broker; write JSON as {form}, or set kafkaCompat=true if "
                "the topic is on one broker"
            )


def queue_ids(value: str) -> frozenset[MessageQueue]:
    """{"topic":{"broker":[queue ids]}}"""
    found: set[MessageQueue] = set()
    for topic, broker, ids in _topics_and_brokers(value, _ASSIGN_SHAPE):
        if not isinstance(ids, list) or not all(type(number) is int and number >= 0 for number in ids):
            raise ValueError(f"{broker!r} has {ids!r}; write JSON as {_ASSIGN_SHAPE}")
        found.update(MessageQueue(topic, broker, number) for number in ids)
    if not found:
        raise ValueError(f"it names no queue; write JSON as {_ASSIGN_SHAPE}")
    return frozenset(found)


def _topics_and_brokers(value: str, shape: str) -> list[tuple[str, str, object]]:
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error}); write {shape}") from None
    if not isinstance(parsed, dict) or not all(isinstance(brokers, dict) for brokers in parsed.values()):
        raise ValueError(f"write JSON as {shape}")
    return [(topic, broker, inner) for topic, brokers in parsed.items() for broker, inner in brokers.items()]


def only(supported: str, *later: str) -> Callable[[str], str]:
    """A choice of which only one works so far."""
    choose = one_of(supported, *later)

    def parse(value: str) -> str:
        if choose(value) != supported:
            raise ValueError(f"not supported yet; leave it at {supported}")
        return supported

    return parse


def refused(why: str) -> Callable[[str], None]:
    """An option that other connectors have and this one has not."""

    def parse(value: str) -> None:
        raise ValueError(why)

    return parse
