"""The sink: rows to messages.

    body         binary or string   required            (Kafka's name: value)
    topic        string             required, unless the option topic names one for all rows
    tags         string
    keys         string or array<string>                (Kafka's name: key)
    properties   map<string,string> a null value is no property
    shardingKey  string             rows with the same key go to the same queue, in their task's order (`ordering.py`)
    queueId, brokerName  int, string    both or neither: the queue, in order
    delayLevel   int                1 is the first of the broker's messageDelayLevel
    flag         int
    uniqueKey    string             the message's unique id; made by the sink where it is null
    partition    int                Kafka's column: the queue by its place among all of the topic, from 0
    headers      array<struct<key:string,value:binary>>     Kafka's column, instead of properties

Any other column of the source's table may be there and is not used, so that a topic can be copied; what RocketMQ itself
wrote into `properties` is left out then. A task reports its rows only after brokers confirmed all of them. When Spark
repeats a task its rows are sent again: at least once. With deliveryGuarantee=idempotent they have the same unique ids
then (`identity.py`), so that readers can drop them (`repeats.py`); with exactly_once they are staged, and the driver
commits those of the attempts that reported to it (`staged.py`).
"""

from __future__ import annotations

import logging
import os
import random
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_address
from itertools import repeat
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from sparrowmq.client.cluster.addresses import local_ip
from sparrowmq.client.cluster.blocking import BlockingNetwork
from sparrowmq.client.sending.queue_choice import by_key
from sparrowmq.errors import ConfigError, InvalidMessage, InvalidName
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import KEY_SEPARATOR, MessageQueue
from sparrowmq.protocol.messages.message_id import UniqueIds
from sparrowmq.protocol.messages.property_names import RESERVED, Property
from sparrowmq.spark import schema as table
from sparrowmq.spark.identity import RowIds, Writing, of_stream, of_write
from sparrowmq.spark.logs import show
from sparrowmq.spark.network import network_of
from sparrowmq.spark.options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions
from sparrowmq.spark.pace import paced
from sparrowmq.spark.rejects import Rejects
from sparrowmq.spark.sender import Sender
from sparrowmq.spark.staged import Attempt, StagedSender, commit

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
    "flag": _NUMBER,
    "partition": _NUMBER,
    "headers": ("array<struct<key:string,value:binary>>",),
    "uniqueKey": _TEXT,
}
_KAFKA_NAMES: Final = {"value": "body", "key": "keys"}
_BY_LOWER: Final = {name.lower(): name for name in COLUMNS} | _KAFKA_NAMES
_UNUSED: Final = {name.lower() for name in table.COLUMNS} | {name.lower() for name in table.KAFKA_COLUMNS}


def check(columns: Iterable[tuple[str, str]], options: SinkOptions) -> None:
    """Refuse columns, as names and Spark types, that cannot be sent.

    Raises:
        ConfigError: one is missing, unknown, of a wrong type, or twice there.
    """
    found: set[str] = set()
    for name, kind in columns:
        column = _BY_LOWER.get(name.lower())
        if column is None:
            if name.lower() not in _UNUSED:
                close = get_close_matches(name.lower(), _BY_LOWER, n=1)
                hint = f"did you mean {_BY_LOWER[close[0]]}?" if close else f"there are {', '.join(COLUMNS)}"
                raise ConfigError(f"the sink has no use for column {name}; {hint}")
        elif column in found:
            raise ConfigError(f"column {column} is there twice; drop one")
        elif kind not in COLUMNS[column]:
            raise ConfigError(f"column {name} is {kind}; cast it to {' or '.join(COLUMNS[column])}")
        else:
            found.add(column)
    if "body" not in found:
        raise ConfigError("a column body (binary or string) is needed: what the messages say")
    if "topic" not in found and options.topic is None:
        raise ConfigError('say where the rows go: .option("topic", ...), or a column topic')
    if ("queueId" in found) != ("brokerName" in found):
        raise ConfigError("columns queueId and brokerName name a queue together; give both or neither")
    for column, kafkas in (("queueId", "partition"), ("properties", "headers")):
        if column in found and kafkas in found:
            raise ConfigError(f"columns {column} and {kafkas} say the same; drop one")


@dataclass(frozen=True)
class Stored(WriterCommitMessage):
    """What a task reports: how many messages brokers confirmed, and how many rows were none (`rejects.py`)."""

    count: int
    skipped: int = 0
    dead: int = 0
    attempt: Attempt | None = None


class BatchWriter(DataSourceArrowWriter):
    """Appends a table to topics. Spark copies it to its workers, so it holds no connection."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._write_id = options.write_id or uuid.uuid4().hex
        self._run = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        is_named = self._options.write_id is not None or self._options.guarantee == AT_LEAST_ONCE
        writing = of_write(self._write_id, self._run, is_named=is_named)
        return send_all(iterator, network_of(self._options), self._options, writing)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        tell("the write", messages)
        decide(network_of(self._options), self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        show()
        log.warning("the write failed; %d or more of its messages are stored", count_stored(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends each micro-batch to topics."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        return send_all(iterator, network_of(self._options, waits=True), self._options, of_stream())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        tell(f"batch {batchId}", messages)
        decide(network_of(self._options, waits=True), self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        show()
        log.warning("batch %d failed; %d or more of its messages are stored", batchId, count_stored(messages))


def count_stored(messages: Iterable[WriterCommitMessage | None]) -> int:
    """Failed tasks give None; even tasks that reported can be missing from an abort."""
    return sum(message.count for message in messages if isinstance(message, Stored))


def tell(what: str, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Log what became of the rows: with a warning, if some were rejected."""
    reports = [message for message in messages if isinstance(message, Stored)]
    skipped, dead = sum(report.skipped for report in reports), sum(report.dead for report in reports)
    show()
    log.info("%s: stored %d messages", what, count_stored(reports))
    if skipped or dead:
        log.warning(
            "%s: %d messages stored, %d rows skipped, %d in dlqTopic",
            what,
            count_stored(reports),
            skipped,
            dead,
        )


def decide(
    network: BlockingNetwork, options: SinkOptions, messages: Iterable[WriterCommitMessage | None]
) -> None:
    """Commit what tasks staged, if they did. Raises: SendFailed."""
    attempts = [each.attempt for each in messages if isinstance(each, Stored) and each.attempt is not None]
    if commit(network, options, attempts):
        log.warning("%s was committed before; its rows are not stored again", attempts[0].writing)


def send_all(
    batches: Iterator[pa.RecordBatch],
    network: BlockingNetwork,
    options: SinkOptions,
    writing: Writing,
) -> Stored:
    """Send every row and return when all are stored.

    Raises:
        SendFailed, NoRoute: as `Sender`.
        InvalidMessage: a row cannot be a message.
    """
    try:
        staged = StagedSender(network, options, writing) if options.guarantee == EXACTLY_ONCE else None
        sender = staged or Sender(network, options)
        rejects = Rejects(sender, options, writing)
        ids = unique_ids(options) if options.guarantee == AT_LEAST_ONCE else RowIds(writing)
        messages = RowMessages(sender, ids, options, rejects)
        for batch in paced(batches, options.rows_per_s):
            messages.send(batch)
        sender.finish()
        rejects.tell()
        attempt = staged.attempt if staged is not None else None
        return Stored(sender.stored - rejects.dead, rejects.skipped, rejects.dead, attempt)
    finally:
        network.release()


def unique_ids(options: SinkOptions) -> UniqueIds:
    """Ids as producers make them, others each time."""
    ip = ip_address(local_ip(options.name_servers)).packed
    return UniqueIds(ip, os.getpid(), random.getrandbits(32))


class Row(NamedTuple):
    """What the sink uses of a row, in the order of `COLUMNS`."""

    body: bytes | str | None
    topic: str | None
    tags: str | None
    keys: str | bytes | list[str] | None
    properties: list[tuple[str, str]] | None
    sharding_key: str | None
    queue_id: int | None
    broker_name: str | None
    delay_level: int | None
    flag: int | None
    partition: int | None
    headers: list[dict[str, Any]] | None
    unique_key: str | None


class RowMessages:
    """Makes messages of rows and hands them to a sender."""

    def __init__(
        self, sender: Sender, ids: UniqueIds | RowIds, options: SinkOptions, rejects: Rejects
    ) -> None:
        self._sender = sender
        self._ids = ids
        self._rejects = rejects
        self._topic = options.topic
        self._count = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Raises: as `send_all`."""
        now_ms = time.time_ns() // 1_000_000
        for number, row in enumerate(map(Row._make, zip(*_lists(batch), strict=False)), self._count):
            key = self._ids.next(now_ms)  # of each row, so that what is rejected changes no id
            try:
                topic = self._topic or row.topic
                if row.body is None or not topic:
                    raise InvalidMessage(
                        f"a row has no {'body' if topic else 'topic'}; filter such rows out, or fill them"
                    )
                body = row.body if isinstance(row.body, bytes) else row.body.encode()
                part = BatchPart(body, _properties(row, row.unique_key or key), row.flag or 0)
                if row.delay_level:
                    self._sender.put_alone(self._queue(topic, row) or self._sender.any_queue(topic), part)
                elif queue := self._queue(topic, row):
                    self._sender.put_in_order(queue, part)
                else:
                    self._sender.put(topic, part)
            except (InvalidMessage, InvalidName) as error:
                self._rejects.row(number, row.keys, row.body, key, error)
        self._count += batch.num_rows

    def _queue(self, topic: str, row: Row) -> MessageQueue | None:
        """The queue that a row must go to."""
        if row.queue_id is not None:
            queue = MessageQueue(topic, row.broker_name or "", row.queue_id)
            if queue not in self._sender.queues(topic):
                advice = "drop the columns queueId and brokerName to let the sink choose"
                raise InvalidMessage(
                    f"a row names {queue}, which does not exist or takes no messages; {advice}"
                )
            return queue
        if row.partition is not None:
            queues = self._sender.queues(topic)
            if not 0 <= row.partition < len(queues):
                raise InvalidMessage(
                    f"a row names partition {row.partition}, but topic {topic} has {len(queues)} queues, "
                    "from 0; drop the column partition to let the sink choose"
                )
            return queues[row.partition]
        return by_key(row.sharding_key, self._sender.queues(topic)) if row.sharding_key else None


def _properties(row: Row, unique_key: str) -> bytes:
    found = {}
    if row.properties or row.headers:
        given = row.properties if row.properties is not None else _texts(row.headers or [])
        found = {name: value for name, value in given if name not in RESERVED and value is not None}
    if row.keys:
        found[Property.KEYS] = row.keys if isinstance(row.keys, str) else _joined(row.keys)
    if row.tags:
        found[Property.TAGS] = row.tags
    if row.sharding_key:
        found[Property.SHARDING_KEY] = row.sharding_key
    if row.delay_level:
        found[Property.DELAY] = str(row.delay_level)
    found[Property.UNIQ_KEY] = unique_key
    text = properties.render(found)
    if (
        text.count(properties.NAME_END) != len(found)
        or text.count(properties.VALUE_END) != len(found)
        or "" in found
    ):
        properties.check(found)  # says what is wrong
    return text.encode()


def _lists(batch: pa.RecordBatch) -> list[Iterable[Any]]:
    """The sink's columns as Python values, in the order of `COLUMNS`; nulls for those that are not there."""
    given = {
        _BY_LOWER[name.lower()]: values.to_pylist()
        for name, values in zip(batch.schema.names, batch.columns, strict=True)
        if name.lower() in _BY_LOWER
    }
    return [given.get(name, repeat(None)) for name in COLUMNS]


def _texts(headers: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Kafka's headers, whose values are bytes and whose names may repeat, as properties."""
    found: dict[str, str] = {}
    for header in headers:
        name, value = header["key"], header["value"]
        if name in found:
            raise InvalidMessage(
                f"the header {name!r} is there twice; a property has one value, so rename one"
            )
        if value is not None:
            found[name] = _text(f"header {name!r}", value)
    return list(found.items())


def _joined(keys: bytes | list[str]) -> str:
    """Several keys as one string; Kafka's key is bytes."""
    if isinstance(keys, bytes):
        return _text("key", keys)
    given = list(filter(None, keys))
    for key in given:
        if KEY_SEPARATOR in key:
            raise InvalidMessage(
                f"the key {key!r} has a space, which separates keys: it would become several; replace the space"
            )
    return KEY_SEPARATOR.join(given)


def _text(what: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidMessage(
            f"the {what} {value!r} is not UTF-8 text, as RocketMQ's are; encode it, as with hex()"
        ) from None
