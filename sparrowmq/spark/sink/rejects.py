"""Rows that cannot be messages, or that a broker will never take: what becomes of them the option onError says.

    fail   ends the query; the error says which row, and why
    skip   logs the first of them, counts the others
    dlq    stores the body in dlqTopic, with the properties below, and goes on

A row of dlqTopic has the id that it would have had, so a repeated task stores the same ones again.
"""

from __future__ import annotations

import logging
from typing import Final

from sparrowmq.errors import InvalidMessage, RemoteError, SendFailed
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.spark.options import SinkOptions
from sparrowmq.spark.sink.row_identity import Writing
from sparrowmq.spark.sink.sender import Sender

log = logging.getLogger(__name__)

REASON: Final = "REJECT_REASON"
PLACE: Final = "REJECT_PLACE"
TOPIC: Final = "REJECT_TOPIC"  # where it was to go
BODY_BYTES: Final = "REJECT_BODY_BYTES"  # of a body that was cut
_LOGGED: Final = 10
_REASON_CHARACTERS: Final = 1000
# A body that was refused for its size is not to be refused again.
_MOST_BODY_BYTES: Final = 64 << 10
_NO_BODY: Final = b"null"  # brokers take no message without a body


class Rejects:
    """The rejected rows of one task."""

    def __init__(self, sender: Sender, options: SinkOptions, writing: Writing) -> None:
        self._sender = sender
        self._options = options
        self._writing = writing
        self.skipped = 0
        self.dead = 0  # stored in dlqTopic, once the sender has finished
        if options.on_error != "fail":
            sender.on_refused = self.refused

    def row(self, number: int, keys: object, body: bytes | str | None, key: str, error: Exception) -> None:
        """Row `number` of the task cannot be a message. Raises: InvalidMessage, with onError=fail."""
        said = f", keys {keys!r}" if keys else ""
        if self._options.on_error == "fail":
            raise InvalidMessage(f"{error} (row {number} of its task{said})") from error
        place = f"row {number} of {self._writing}{said}"
        text = body.encode() if isinstance(body, str) else body
        self._reject(place, str(error), self._options.topic or "", text or _NO_BODY, key)

    def refused(self, part: BatchPart, queue: MessageQueue, error: RemoteError) -> None:
        """A broker will never take a message. Raises: SendFailed, if it is one of dlqTopic itself."""
        if queue.topic == self._options.dlq_topic:
            raise SendFailed(f"the broker refuses messages to {queue}, the option dlqTopic: {error}") from error
        found = properties.parse(bytes(part.properties).decode())
        key, keys = found.get(Property.UNIQ_KEY, ""), found.get(Property.KEYS)
        place = f"{self._writing}, unique key {key}" + (f", keys {keys!r}" if keys else "")
        self._reject(place, str(error), queue.topic, bytes(part.body), key)

    def tell(self) -> None:
        """Log how many there were, if there were any that the log does not have."""
        if self.skipped + self.dead > _LOGGED:
            log.warning("%d rows of %s were rejected", self.skipped + self.dead, self._writing)

    def _reject(self, place: str, reason: str, topic: str, body: bytes, key: str) -> None:
        if self.skipped + self.dead < _LOGGED:
            log.warning("rejected (%s): %s: %s", self._options.on_error, place, reason)
        if self._options.on_error == "skip":
            self.skipped += 1
            return
        self.dead += 1
        assert self._options.dlq_topic is not None, "the options demand it"
        self._sender.put(self._options.dlq_topic, letter(place, reason, topic, body, key))


def letter(place: str, reason: str, topic: str, body: bytes, key: str) -> BatchPart:
    """A message for a dead-letter topic."""
    said = {PLACE: place, REASON: reason[:_REASON_CHARACTERS], TOPIC: topic, Property.UNIQ_KEY: key}
    if len(body) > _MOST_BODY_BYTES:
        said[BODY_BYTES] = str(len(body))
    found = {name: _clean(value) for name, value in said.items() if value}
    return BatchPart(body[:_MOST_BODY_BYTES], properties.render(found).encode())


def _clean(text: str) -> str:
    return text.replace(properties.NAME_END, " ").replace(properties.VALUE_END, " ")
