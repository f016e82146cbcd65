"""The recall handle of a timer message: the result of a send has it, and a recall needs it.

    base64, URL-safe:   v1 TOPIC BROKER-NAME TIMESTAMP UNIQUE-ID      with one blank between; names have none

The timestamp is the delivery time plus 1 ms. Java rounds it down again, to the slot.
Source: RecallMessageHandle, and SendMessageProcessor.attachRecallHandle, Java 5.4.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ConfigError

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
