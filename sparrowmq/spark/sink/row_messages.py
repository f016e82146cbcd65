"""Messages of rows: what the sink makes of a table's columns, and hands to a sender.

    rows ── envelopes of all of them, by columns (`envelopes.py`) ── shared out over topics and queues ──> put_all
     └── one needs a closer look: one after the other ──> put, put_in_order, put_alone; or rejected (`Rejects`)

Both make the same messages. `writer.py` describes the columns.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.client.sending.queue_choice import by_key
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import InvalidMessage, InvalidName, RemoteError, SendFailed
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import KEY_SEPARATOR, MessageQueue
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.spark.options import SinkOptions
from sparrowmq.spark.sink.envelopes import Envelopes, envelopes, is_used, reserved_names
from sparrowmq.spark.sink.row_identity import FreshIds, RowIds, Writing
from sparrowmq.spark.sink.sender import Sender

log = logging.getLogger(__name__)

_TEXT: Final = ("string",)
_NUMBER: Final = ("int", "bigint", "smallint", "tinyint")
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": (*_TEXT, "array<string>", "binary"),
    "properties": ("map<string,string>",),
    "shardingKey": _TEXT,
    "queueId": _NUMBER,
    "brokerName": _TEXT,
    "delayLevel": _NUMBER,
    "deliverTimestamp": ("timestamp",),
    "priority": _NUMBER,
    "flag": _NUMBER,
    "partition": _NUMBER,
    "headers": ("array<struct<key:string,value:binary>>",),
    "uniqueKey": _TEXT,
}
_KAFKA_NAMES: Final = {"value": "body", "key": "keys"}
_TARGET_COLUMNS: Final = ("topic", "queueId", "brokerName", "partition", "shardingKey")  # of the columns
_MAX_FLAG: Final = 1 << 31  # of either sign
_SLICE_ROWS: Final = 8192
_SLICE_BYTES: Final = 4 << 20
COLUMN_BY_LOWER_NAME: Final = {name.lower(): name for name in COLUMNS} | _KAFKA_NAMES
REJECT_REASON: Final = "REJECT_REASON"
REJECT_PLACE: Final = "REJECT_PLACE"
REJECT_TOPIC: Final = "REJECT_TOPIC"  # where it was to go
REJECT_BODY_BYTES: Final = "REJECT_BODY_BYTES"  # of a body that was cut
_MAX_LOGGED_REJECTS: Final = 10
_REASON_CHARACTERS: Final = 1000
# A body that was refused for its size is not to be refused again.
_MAX_REJECT_BODY_BYTES: Final = 64 << 10
_NO_BODY: Final = b"null"  # brokers take no message without a body

_Target = tuple[str, MessageQueue | None]  # a topic, and its queue if the row names one
_Numbers = npt.NDArray[np.int64]


class RowMessages:
    """Makes messages of rows and hands them to a sender: by columns, and by rows where one needs a closer look."""

    def __init__(self, sender: Sender, ids: FreshIds | RowIds, options: SinkOptions, rejects: Rejects) -> None:
        self._sender = sender
        self._ids = ids
        self._rejects = rejects
        self._topic = options.topic
        self._partitions: dict[str, list[MessageQueue]] = {}
        self._count = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Raises: as `send_all`."""
        for part in _slice_rows(batch):
            now_ms = time.time_ns() // 1_000_000
            columns = _message_columns(part, now_ms)
            ids = self._ids.take(part.num_rows, now_ms)  # of all rows, so that what is rejected changes no id
            if not self._send_columns(columns, ids):
                self._send_rows(columns, ids)
            self._count += part.num_rows

    def _send_columns(self, columns: dict[str, pa.Array], ids: pa.Array) -> bool:
        """Whether all rows could be sent so; if not, none of them was."""
        try:
            messages = envelopes(columns, ids)
            shares = self._rows_by_target(columns) if messages is not None else []
        except (InvalidMessage, InvalidName):
            return False
        if messages is None:
            return False
        for (topic, queue), rows in shares:
            share = Envelopes(messages if rows is None else messages.take(rows))
            if queue is None:
                self._sender.put_all(topic, share)
            else:
                self._sender.put_all_in_order(queue, share)
        return True

    def _rows_by_target(self, columns: dict[str, pa.Array]) -> list[tuple[_Target, pa.Array | None]]:
        """Return the rows for each target; None is all rows. Raises: InvalidMessage, InvalidName, as `Sender`."""
        kinds, first_rows = _group_rows([columns[name] for name in _TARGET_COLUMNS if is_used(columns, name)])
        numbers: dict[_Target, int] = {}  # of the targets, in which few kinds of rows may meet
        targets = [
            numbers.setdefault(self._row_target(_first_row(columns, row)), len(numbers)) for row in first_rows.tolist()
        ]
        if len(numbers) == 1:
            return [(next(iter(numbers)), None)]
        row_targets = np.array(targets)[kinds]
        order = np.argsort(row_targets, kind="stable")
        bounds = np.searchsorted(row_targets[order], np.arange(len(numbers) + 1))
        return [(target, pa.array(order[bounds[number] : bounds[number + 1]])) for target, number in numbers.items()]

    def _row_target(self, row: Row) -> _Target:
        topic = self._row_topic(row)
        return topic, self._row_queue(topic, row)

    def _send_rows(self, columns: dict[str, pa.Array], ids: pa.Array) -> None:
        lists = [columns[name].to_pylist() if name in columns else repeat(None) for name in COLUMNS]
        rows = map(Row._make, zip(*lists, strict=False))
        reserved_keys = reserved_names(columns)
        for number, (row, key) in enumerate(zip(rows, ids.to_pylist(), strict=True), self._count):
            try:
                self._send_row(row, key, reserved_keys)
            except (InvalidMessage, InvalidName) as error:
                self._rejects.row(number, row.keys, row.body, key, error)

    def _send_row(self, row: Row, key: str, reserved_keys: Collection[str]) -> None:
        topic = self._row_topic(row)
        if row.body is None:
            raise InvalidMessage("a row has no body; filter such rows out, or fill them")
        body = row.body if isinstance(row.body, bytes) else row.body.encode()
        part = BatchPart(body, _render_properties(row, row.unique_key or key, reserved_keys), _row_flag(row))
        if _delay_level(row) or row.deliver_at_ms or row.priority is not None:
            queue = self._row_queue(topic, row) or self._sender.any_queue(topic)
            if row.deliver_at_ms:
                self._sender.check_any_time(queue)
            self._sender.put_alone(queue, part)
        elif queue_of_row := self._row_queue(topic, row):
            self._sender.put_in_order(queue_of_row, part)
        else:
            self._sender.put(topic, part)

    def _row_topic(self, row: Row) -> str:
        if topic := self._topic or row.topic:
            return topic
        raise InvalidMessage("a row has no topic; filter such rows out, or fill them")

    def _row_queue(self, topic: str, row: Row) -> MessageQueue | None:
        if row.queue_id is not None:
            queue = MessageQueue(topic, row.broker_name or "", row.queue_id)
            if queue not in self._sender.queues(topic):
                advice = "drop the columns queueId and brokerName to let the sink choose"
                raise InvalidMessage(f"a row names {queue}, which does not exist or takes no messages; {advice}")
            return queue
        if row.partition is not None:
            queues = self._partitions_of(topic)
            if not 0 <= row.partition < len(queues):
                raise InvalidMessage(
                    f"a row names partition {row.partition}, but topic {topic} has {counted(len(queues), 'queue')}, "
                    "from 0; drop the column partition to let the sink choose"
                )
            return queues[row.partition]
        return by_key(row.sharding_key, self._sender.queues(topic)) if row.sharding_key else None

    def _partitions_of(self, topic: str) -> list[MessageQueue]:
        """The queues by the numbers that a new reader gives them as partitions; the same for the whole task."""
        if topic not in self._partitions:
            self._partitions[topic] = sorted(self._sender.queues(topic))
        return self._partitions[topic]


class Row(NamedTuple):
    """The values of a row that the sink uses, in the order of `COLUMNS`."""

    body: bytes | str | None
    topic: str | None
    tags: str | None
    keys: str | bytes | list[str] | None
    properties: list[tuple[str, str]] | None
    sharding_key: str | None
    queue_id: int | None
    broker_name: str | None
    delay_level: int | None
    deliver_at_ms: int | None
    priority: int | None
    flag: int | None
    partition: int | None
    headers: list[dict[str, Any]] | None
    unique_key: str | None


def _delay_level(row: Row) -> int:
    level = row.delay_level or 0
    if not 0 <= level < _MAX_FLAG:
        raise InvalidMessage(f"a row has the delayLevel {level}; levels begin with 1, and 0 or null is no delay")
    if level and row.deliver_at_ms:
        raise InvalidMessage("a row has a delayLevel and a deliverTimestamp; make one of them null")
    return level


def _row_flag(row: Row) -> int:
    flag = row.flag or 0
    if not -_MAX_FLAG <= flag < _MAX_FLAG:
        raise InvalidMessage(
            f"a row has the flag {flag}, and a message holds 32 bits of it: {-_MAX_FLAG} to {_MAX_FLAG - 1}; "
            "put it among the properties"
        )
    return flag


def _render_properties(row: Row, unique_key: str, left_out: Collection[str]) -> bytes:
    """Its properties; of its own those named in `left_out` are left out."""
    own_properties = {}
    if row.properties or row.headers:
        pairs = row.properties if row.properties is not None else _texts(row.headers or [])
        own_properties = {name: value for name, value in pairs if name not in left_out and value is not None}
        if empty := [name for name, value in own_properties.items() if not value]:
            raise InvalidMessage(f"property {empty[0]!r} is empty, and consumers drop empty properties; make it null")
    if row.keys:
        own_properties[Property.KEYS] = row.keys if isinstance(row.keys, str) else _joined(row.keys)
    if row.tags:
        own_properties[Property.TAGS] = row.tags
    if row.sharding_key:
        own_properties[Property.SHARDING_KEY] = row.sharding_key
    if row.delay_level:
        own_properties[Property.DELAY] = str(row.delay_level)
    if row.deliver_at_ms:
        own_properties[Property.TIMER_DELIVER_MS] = str(row.deliver_at_ms)
    if row.priority is not None:
        if not 0 <= row.priority < _MAX_FLAG:
            raise InvalidMessage(f"a row has the priority {row.priority}; write 0 to {_MAX_FLAG - 1}, or null")
        own_properties[Property.PRIORITY] = str(row.priority)
    own_properties[Property.UNIQ_KEY] = unique_key
    text = properties.render(own_properties)
    if (
        text.count(properties.NAME_END) != len(own_properties)
        or text.count(properties.VALUE_END) != len(own_properties)
        or "" in own_properties
    ):
        properties.check(own_properties)  # says what is wrong
    return text.encode()


def _slice_rows(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in pieces that a processor's cache holds; the messages of one are made at once."""
    rows = max(1, min(_SLICE_ROWS, batch.num_rows * _SLICE_BYTES // max(1, batch.nbytes)))
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)


def _message_columns(batch: pa.RecordBatch, now_ms: int) -> dict[str, pa.Array]:
    """The sink's columns, by their names in `COLUMNS`; times of delivery in ms, and null once they are over."""
    columns = {
        COLUMN_BY_LOWER_NAME[name.lower()]: values
        for name, values in zip(batch.schema.names, batch.columns, strict=True)
        if name.lower() in COLUMN_BY_LOWER_NAME
    }
    if times := columns.get("deliverTimestamp"):
        due_ms = times.cast(pa.timestamp("ms", times.type.tz), safe=False).cast(pa.int64())
        columns["deliverTimestamp"] = pc.if_else(pc.greater(due_ms, now_ms), due_ms, None)
    return columns


def _first_row(columns: Mapping[str, pa.Array], number: int) -> Row:
    return Row(
        *[columns[name][number].as_py() if name in _TARGET_COLUMNS and name in columns else None for name in COLUMNS]
    )


def _group_rows(columns: Sequence[pa.Array]) -> tuple[_Numbers, _Numbers]:
    """Rows that are equal in all columns are of one kind: each row's kind, and the first row of each."""
    kinds: _Numbers = np.zeros(1, np.int64)
    for values in columns:
        encoded = values.dictionary_encode()
        codes = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        kinds = np.unique(kinds * (len(encoded.dictionary) + 1) + codes, return_inverse=True)[1]
    return kinds, np.unique(kinds, return_index=True)[1]


def _texts(headers: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Kafka's headers, whose values are bytes and whose names may repeat, as properties."""
    properties_by_name: dict[str, str] = {}
    for header in headers:
        name, value = header["key"], header["value"]
        if name in properties_by_name:
            raise InvalidMessage(f"the header {name!r} is there twice; a property has one value, so rename one")
        if value is not None:
            properties_by_name[name] = _text(f"header {name!r}", value)
    return list(properties_by_name.items())


def _joined(keys: bytes | list[str]) -> str:
    """Several keys as one string; Kafka's key is bytes."""
    if isinstance(keys, bytes):
        return _text("key", keys)
    key_list = list(filter(None, keys))
    for key in key_list:
        if KEY_SEPARATOR in key:
            raise InvalidMessage(
                f"the key {key!r} has a space, which separates keys: it would become several; replace the space"
            )
    return KEY_SEPARATOR.join(key_list)


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidMessage(
            f"the {name} {value!r} is not UTF-8 text, as RocketMQ's are; encode it, as with hex()"
        ) from None


class Rejects:
    """The rows of one task that cannot be messages, or that a broker will never take. The option onError decides:

        fail   ends the query; the error says which row, and why
        skip   logs the first of them, counts the others
        dlq    stores the body in dlqTopic, with REJECT_ properties, and goes on

    A row of dlqTopic has the id that it would have had, so a repeated task stores the same ones again.
    """

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
        key_note = f", keys {keys!r}" if keys else ""
        if self._options.on_error == "fail":
            raise InvalidMessage(f"{error} (row {number} of its task{key_note})") from error
        place = f"row {number} of {self._writing}{key_note}"
        text = body.encode() if isinstance(body, str) else body
        self._reject(place, str(error), self._options.topic or "", text or _NO_BODY, key)

    def refused(self, part: BatchPart, queue: MessageQueue, error: RemoteError) -> None:
        """A broker will never take a message. Raises: SendFailed, if it is one of dlqTopic itself."""
        if queue.topic == self._options.dlq_topic:
            raise SendFailed(f"the broker refuses messages to {queue}, the option dlqTopic: {error}") from error
        parsed = properties.parse(bytes(part.properties).decode())
        key, keys = parsed.get(Property.UNIQ_KEY, ""), parsed.get(Property.KEYS)
        place = f"{self._writing}, unique key {key}" + (f", keys {keys!r}" if keys else "")
        self._reject(place, str(error), queue.topic, bytes(part.body), key)

    def log_total(self) -> None:
        """Log how many there were, if there were any that the log does not have."""
        if self.skipped + self.dead > _MAX_LOGGED_REJECTS:
            log.warning("%d rows of %s were rejected", self.skipped + self.dead, self._writing)

    def _reject(self, place: str, reason: str, topic: str, body: bytes, key: str) -> None:
        if self.skipped + self.dead < _MAX_LOGGED_REJECTS:
            log.warning("rejected (%s): %s: %s", self._options.on_error, place, reason)
        if self._options.on_error == "skip":
            self.skipped += 1
            return
        self.dead += 1
        assert self._options.dlq_topic is not None, "the options demand it"
        self._sender.put(self._options.dlq_topic, dead_letter(place, reason, topic, body, key))


def dead_letter(place: str, reason: str, topic: str, body: bytes, key: str) -> BatchPart:
    """A message for a dead-letter topic."""
    reject_properties = {
        REJECT_PLACE: place,
        REJECT_REASON: reason[:_REASON_CHARACTERS],
        REJECT_TOPIC: topic,
        Property.UNIQ_KEY: key,
    }
    if len(body) > _MAX_REJECT_BODY_BYTES:
        reject_properties[REJECT_BODY_BYTES] = str(len(body))
    cleaned = {name: _clean(value) for name, value in reject_properties.items() if value}
    return BatchPart(body[:_MAX_REJECT_BODY_BYTES], properties.render(cleaned).encode())


def _clean(text: str) -> str:
    return text.replace(properties.NAME_END, " ").replace(properties.VALUE_END, " ")
