"""Attributes of topics and groups: settings of 5.x, by name, which a request adds, changes or removes one by one.

    +message.type=FIFO,-reserve.time       the header field `attributes` of UPDATE_AND_CREATE_TOPIC
    └── name ────┘ └── value

An absent attribute has its default value. Requests of 4.x have no such field, and change no attribute.
Source: AttributeParser, AttributeUtil and TopicAttributes, Java 5.4.0, and its answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message_types import MESSAGE_TYPE, MessageType

QUEUE_TYPE: Final = "queue.type"
CLEANUP_POLICY: Final = "cleanup.policy"
RESERVE_TIME: Final = "reserve.time"
PRIORITY_FACTOR: Final = "priority.factor"

INT64: Final = 2**63 - 1


class Attribute(Protocol):
    """The rules for one attribute. `is_fixed`: it is set when the topic or group is created, or never."""

    @property
    def is_fixed(self) -> bool: ...

    def check(self, name: str, value: str) -> None:
        """Raises: ConfigError, the attribute cannot have the value."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An attribute with one of some values."""

    values: tuple[str, ...]
    is_fixed: bool
    refused: Mapping[str, str]  # values that Apache's broker has and this one does not, with the reason

    def check(self, name: str, value: str) -> None:
        if value in self.refused:
            raise ConfigError(f"{name}={value} is not possible here: {self.refused[value]}")
        if value not in self.values:
            raise ConfigError(
                f"{name} is {value!r}, and this value is not in set: {', '.join(self.values)}; write it as shown"
            )


@dataclass(frozen=True, slots=True)
class Number:
    """An attribute with a whole number of a range."""

    least: int
    most: int
    is_fixed: bool = False

    def check(self, name: str, value: str) -> None:
        if whole_number(value.removeprefix("-"), len(str(INT64))) is None:
            raise ConfigError(f"{name} is {value!r}; it must be a whole number")
        if not self.least <= int(value) <= self.most:
            raise ConfigError(f"{name} is {value}; this value is not in range: it must be {self.least} to {self.most}")


# Unlike Java, which accepts these two values. No part of this broker does what they promise.
_NO_BATCH: Final = "all queues are of type SimpleCQ, also for batches; leave the attribute out"
_NO_COMPACTION: Final = (
    "there are no compaction topics, so the last value of a key would be deleted with its file; "
    "leave the attribute out, or keep the topic at a broker of Apache"
)
TOPIC_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    MESSAGE_TYPE: Choice(tuple(MessageType), False, {}),
    QUEUE_TYPE: Choice(("SimpleCQ",), True, {"BatchCQ": _NO_BATCH}),
    CLEANUP_POLICY: Choice(("DELETE",), True, {"COMPACTION": _NO_COMPACTION}),
    RESERVE_TIME: Number(-1, INT64),
}
GROUP_ATTRIBUTES: Final[Mapping[str, Attribute]] = {PRIORITY_FACTOR: Number(0, 100)}

Changes = dict[str, str | None]


def parse(text: str) -> Changes:
    """Return the value by name of a field `attributes`; None removes the attribute. Raises: ConfigError, names the word
    that breaks the format.
    """
    words = text.split(",")
    while words and not words[-1]:
        words.pop()  # Java ignores empty words at the end.
    changes: Changes = {}
    for word in words:
        name, equals, value = word.partition("=")
        _add_change(changes, name, value if equals else None)
    return changes


def of_signed(signed: Mapping[str, str]) -> Changes:
    """As `parse`, of a body's member, where names have their sign: `{"+priority.factor": "1"}`. Raises: ConfigError."""
    changes: Changes = {}
    for name, value in signed.items():
        _add_change(changes, name, None if name.startswith("-") else value)
    return changes


def text_of(attributes: Mapping[str, str] | None) -> str | None:
    """Return the field that adds these attributes, the reverse of `parse`; None for none."""
    return ",".join(f"+{name}={value}" for name, value in sorted(attributes.items())) if attributes else None


def changed(
    attributes: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Changes, *, is_new: bool
) -> dict[str, str] | None:
    """Return the attributes after the changes, by their rules; None for none, as of a topic of 4.x. Raises:
    ConfigError, one is unknown, or cannot change, be removed, or have its value.
    """
    new_attributes = dict(current or {})
    for name, value in changes.items():
        rule = attributes.get(name)
        if rule is None:
            raise ConfigError(f"unsupported key: {name}; there are {', '.join(sorted(attributes))}")
        if value is None:
            _check_removal(rule, name, new_attributes, is_new)
            del new_attributes[name]
            continue
        # Unlike Java, which refuses a fixed attribute even with the value that it has.
        if rule.is_fixed and not is_new and new_attributes.get(name) != value:
            raise ConfigError(f"attempt to update an unchangeable attribute: {name} is set at creation only")
        rule.check(name, value)
        new_attributes[name] = value
    return new_attributes or None


def _check_removal(rule: Attribute, name: str, current: Mapping[str, str], is_new: bool) -> None:
    if is_new:
        raise ConfigError(f"only add attribute is supported while creating: write +{name}=VALUE")
    if name not in current:
        raise ConfigError(f"attempt to delete a nonexistent key: {name} is not set")
    if rule.is_fixed:
        raise ConfigError(f"attempt to update an unchangeable attribute: {name} is set at creation only")


def _add_change(changes: Changes, signed: str, value: str | None) -> None:
    sign, name = signed[:1], signed[1:]
    if sign != ("-" if value is None else "+") or value == "" or not name or "+" in name or "-" in name:
        word = signed if value is None else f"{signed}={value}"
        raise ConfigError(f"attribute format is wrong: {word!r}; write +NAME=VALUE to set one, -NAME to remove one")
    if name in changes:
        raise ConfigError(f"key duplication: {name} is there twice; write it once")
    changes[name] = value
