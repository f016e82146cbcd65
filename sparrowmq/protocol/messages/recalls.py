"""Recalls of timer messages: the handle that the result of a send has, and the messages that recalls name.

    handle     base64, URL-safe:   v1 TOPIC BROKER-NAME TIMESTAMP UNIQUE-ID     with one blank between; names have none

The timestamp is the delivery time plus 1 ms. Java rounds it down again, to the slot.
Source: RecallMessageHandle, and SendMessageProcessor.attachRecallHandle, Java 5.4.

    message    REAL_TOPIC orders, UNIQ_KEY AB01, TIMER_OWNER billing
    recall     REAL_TOPIC orders, TIMER_DEL_UNIQKEY orders+AB01, TIMER_OWNER billing

TIMER_OWNER is the account that sent a record while access control was on. A recall counts if it has the owner of the
message. That of an administrator, or of an address that needs no permissions, has no owner, and counts for every
message. Each account that may send to the topic may recall a message without an owner.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final, NamedTuple

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.property_names import Property

_VERSION: Final = "v1"
_FIELDS: Final = 5
_DIGITS: Final = 18  # the longest plausible time in ms


class RecallHandle(NamedTuple):
    """The parts of a handle. `due_ms` is the delivery time of the message."""

    topic: str
    broker_name: str
    due_ms: int
    unique_id: str

    def __str__(self) -> str:
        words = (_VERSION, self.topic, self.broker_name, str(self.due_ms + 1), self.unique_id)
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()

    @classmethod
    def parse(cls, text: str) -> RecallHandle:
        """Parse a handle. Raises: ConfigError, the text is none."""
        try:
            padded = text + "=" * (-len(text) % 4)
            words = base64.b64decode(padded.encode("ascii"), b"-_", validate=True).decode().split(" ")
        except (binascii.Error, UnicodeError):
            words = []
        if len(words) < _FIELDS or words[0] != _VERSION or not all(words[1:_FIELDS]):
            raise ConfigError("recall handle is invalid; give the recall_handle that the send returned")
        _, topic, broker_name, timestamp, unique_id = words[:_FIELDS]
        time_ms = whole_number(timestamp, _DIGITS)
        if time_ms is None:
            raise ConfigError("recall handle is invalid: its time is not a number")
        return cls(topic, broker_name, time_ms - 1, unique_id)


class Recalls:
    """Some recalls, by what they name."""

    def __init__(self) -> None:
        self._owners: dict[str, set[str | None]] = {}

    def add(self, recall: Mapping[str, str]) -> None:
        """Add a recall if it names a message of its own topic.

        A client that may write to one topic must not recall messages of another.
        """
        key = recall.get(Property.TIMER_DEL_UNIQKEY, "")
        if key.startswith(delete_key(recall.get(Property.REAL_TOPIC, ""), "")):
            self._owners.setdefault(key, set()).add(recall.get(Property.TIMER_OWNER))

    def include(self, topic: str, unique_id: str, owner: str | None) -> bool:
        """Whether a message was recalled."""
        owners = self._owners.get(delete_key(topic, unique_id)) if self._owners else None
        return owners is not None and (owner is None or None in owners or owner in owners)


def delete_key(topic: str, unique_id: str) -> str:
    """Return the value of TIMER_DEL_UNIQKEY for a message."""
    return f"{topic}+{unique_id}"
