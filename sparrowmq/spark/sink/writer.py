"""The sink: rows to messages.

    body         binary or string   required            (Kafka's name: value)
    topic        string             required, unless the option topic names one for all rows
    tags         string
    keys         string or array<string>                (Kafka's name: key)
    properties   map<string,string> a null value is no property, an empty one is refused
    shardingKey  string             rows with the same key go to the same queue, in their task's order (`ordering.py`)
    queueId, brokerName  int, string    both or neither: the queue, in order
    delayLevel   int                1 is the first of the broker's messageDelayLevel
    deliverTimestamp  timestamp     the time of delivery; one that is over is no delay
    priority     int                of RocketMQ 5.4
    flag         int
    uniqueKey    string             the message's unique id; made by the sink where it is null
    partition    int                Kafka's column: the queue by its place among all of the topic, from 0
    headers      array<struct<key:string,value:binary>>     Kafka's column, instead of properties

Any other column of the source's table may be there and is not used, so that a topic can be copied. What RocketMQ itself
wrote into `properties` is left out then; its KEYS and TAGS count where the table has no column for them. A task reports
its rows only after brokers confirmed all of them. When Spark repeats a task its rows are sent again: at least once.
With deliveryGuarantee=idempotent they have the same unique ids then (`row_identity.py`), so that readers can drop them
(`repeats.py`); with exactly_once they are staged, and the driver commits those of the attempts that reported to it
(`exactly_once.py`).
"""

from __future__ import annotations

import logging
import os
import random
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from sparrowmq.client.cluster.blocking_network import BlockingNetwork
from sparrowmq.client.cluster.name_servers import local_ip
from sparrowmq.core.process import freeze_loaded_objects
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message_id import UniqueIds
from sparrowmq.spark import schema as table
from sparrowmq.spark.options import AT_LEAST_ONCE, EXACTLY_ONCE, SinkOptions
from sparrowmq.spark.sink.exactly_once import Attempt, StagedSender, commit, plan_of
from sparrowmq.spark.sink.row_identity import FreshIds, RowIds, Writing, of_stream, of_write
from sparrowmq.spark.sink.row_messages import BY_LOWER, COLUMNS, Rejects, RowMessages
from sparrowmq.spark.sink.sender import Sender
from sparrowmq.spark.worker import network_of, paced, show_warnings

log = logging.getLogger(__name__)

_UNUSED: Final = {name.lower() for name in table.COLUMNS} | {name.lower() for name in table.KAFKA_COLUMNS}


def check(columns: Iterable[tuple[str, str]], options: SinkOptions) -> None:
    """Refuse columns, as names and Spark types, that cannot be sent.

    Raises: ConfigError, one is missing, unknown, of a wrong type, or twice there.
    """
    columns_found: set[str] = set()
    for name, kind in columns:
        column = BY_LOWER.get(name.lower())
        if column is None:
            if name.lower() not in _UNUSED:
                close = get_close_matches(name.lower(), BY_LOWER, n=1)
                hint = f"did you mean {BY_LOWER[close[0]]}?" if close else f"there are {', '.join(COLUMNS)}"
                raise ConfigError(f"the sink has no use for column {name}; {hint}")
        elif column in columns_found:
            raise ConfigError(f"column {column} is there twice; drop one")
        elif kind not in COLUMNS[column]:
            raise ConfigError(f"column {name} is {kind}; cast it to {' or '.join(COLUMNS[column])}")
        else:
            columns_found.add(column)
    if "body" not in columns_found:
        raise ConfigError("a column body (binary or string) is needed: the bodies of the messages")
    if "topic" not in columns_found and options.topic is None:
        raise ConfigError('say where the rows go: .option("topic", ...), or a column topic')
    if ("queueId" in columns_found) != ("brokerName" in columns_found):
        raise ConfigError("columns queueId and brokerName name a queue together; give both or neither")
    for column, kafkas in (("queueId", "partition"), ("properties", "headers")):
        if column in columns_found and kafkas in columns_found:
            raise ConfigError(f"columns {column} and {kafkas} say the same; drop one")


@dataclass(frozen=True)
class Stored(WriterCommitMessage):
    """The report of a task: messages that brokers confirmed, and rows that became none (`Rejects`)."""

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
        log_result("the write", messages)
        commit_staged(network_of(self._options), self._options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        log_failure("the write", self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, checkpoint: str | None = None) -> None:
        self._options = options
        self._checkpoint = checkpoint

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        return send_all(iterator, network_of(self._options, waits=True), self._options, of_stream())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log_result(f"batch {batchId}", messages)
        plan = plan_of(self._checkpoint, batchId) if self._options.guarantee == EXACTLY_ONCE else None
        commit_staged(network_of(self._options, waits=True), self._options, messages, plan)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log_failure(f"batch {batchId}", self._options, messages)


def log_failure(write_name: str, options: SinkOptions, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Log what a write that failed has left in its topics."""
    show_warnings()
    if options.guarantee == EXACTLY_ONCE:
        log.warning("%s failed; its messages appear only if the broker has the commit", write_name)
    else:
        log.warning("%s failed; %d or more of its messages are stored", write_name, count_stored(messages))


def count_stored(messages: Iterable[WriterCommitMessage | None]) -> int:
    """Failed tasks give None; even tasks that reported can be missing from an abort."""
    return sum(message.count for message in messages if isinstance(message, Stored))


def log_result(write_name: str, messages: Iterable[WriterCommitMessage | None]) -> None:
    """Log what became of the rows: with a warning, if some were rejected."""
    reports = [message for message in messages if isinstance(message, Stored)]
    skipped, dead = sum(report.skipped for report in reports), sum(report.dead for report in reports)
    show_warnings()
    log.info("%s: stored %d messages", write_name, count_stored(reports))
    if skipped or dead:
        log.warning(
            "%s: %d messages stored, %d rows skipped, %d in dlqTopic", write_name, count_stored(reports), skipped, dead
        )


def commit_staged(
    network: BlockingNetwork,
    options: SinkOptions,
    messages: Iterable[WriterCommitMessage | None],
    plan: str | None = None,
) -> None:
    """Commit what tasks staged, if they did. Raises: SendFailed."""
    attempts = [each.attempt for each in messages if isinstance(each, Stored) and each.attempt is not None]
    if commit(network, options, attempts, plan):
        log.warning("%s was committed before; its rows are not stored again", attempts[0].writing)


def send_all(
    batches: Iterator[pa.RecordBatch], network: BlockingNetwork, options: SinkOptions, writing: Writing
) -> Stored:
    """Send every row and return when all are stored.

    Raises:
        SendFailed, NoRoute: as `Sender`.
        InvalidMessage: a row cannot be a message.
    """
    freeze_loaded_objects()
    try:
        staged = StagedSender(network, options, writing) if options.guarantee == EXACTLY_ONCE else None
        sender = staged or Sender(network, options)
        rejects = Rejects(sender, options, writing)
        ids: FreshIds | RowIds = RowIds(writing)
        if options.guarantee == AT_LEAST_ONCE:
            ip = ip_address(local_ip(options.name_servers)).packed
            ids = FreshIds(UniqueIds(ip, os.getpid(), random.getrandbits(32)))  # as producers make them
        messages = RowMessages(sender, ids, options, rejects)
        for batch in paced(batches, options.rows_per_s):
            messages.send(batch)
        sender.finish()
        rejects.log_total()
        attempt = staged.attempt if staged is not None else None
        return Stored(sender.stored - rejects.dead, rejects.skipped, rejects.dead, attempt)
    finally:
        network.release()
