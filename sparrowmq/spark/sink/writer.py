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
wrote into `properties` is left out then. A task reports its rows only after brokers confirmed all of them; when Spark
repeats it, its rows are sent again. With deliveryGuarantee=idempotent they have the same unique ids (`row_identity.py`)
so that readers can drop them (`repeats.py`); with exactly_once they are staged until the commit (`exactly_once.py`).
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
from sparrowmq.spark.sink.exactly_once import Attempt, StagedSender, commit, offsets_digest
from sparrowmq.spark.sink.row_identity import FreshIds, RowIds, Writing, stream_task, write_task
from sparrowmq.spark.sink.row_messages import COLUMN_BY_LOWER_NAME, COLUMNS, Rejects, RowMessages
from sparrowmq.spark.sink.sender import Sender
from sparrowmq.spark.worker import limit_rate, network_of, show_warnings

log = logging.getLogger(__name__)

_UNUSED_COLUMNS: Final = {name.lower() for name in table.COLUMNS} | {name.lower() for name in table.KAFKA_COLUMNS}


def check_columns(columns: Iterable[tuple[str, str]], options: SinkOptions) -> None:
    """Raises: ConfigError, a column (its name and Spark type) is missing, unknown, of a wrong type, or twice there."""
    used_columns: set[str] = set()
    for name, kind in columns:
        column = COLUMN_BY_LOWER_NAME.get(name.lower())
        if column is None:
            if name.lower() not in _UNUSED_COLUMNS:
                close = get_close_matches(name.lower(), COLUMN_BY_LOWER_NAME, n=1)
                hint = f"did you mean {COLUMN_BY_LOWER_NAME[close[0]]}?" if close else f"there are {', '.join(COLUMNS)}"
                raise ConfigError(f"the sink has no use for column {name}; {hint}")
        elif column in used_columns:
            raise ConfigError(f"column {column} is there twice; drop one")
        elif kind not in COLUMNS[column]:
            raise ConfigError(f"column {name} is {kind}; cast it to {' or '.join(COLUMNS[column])}")
        else:
            used_columns.add(column)
    if "body" not in used_columns:
        raise ConfigError("a column body (binary or string) is needed: the bodies of the messages")
    if "topic" not in used_columns and options.topic is None:
        raise ConfigError('say where the rows go: .option("topic", ...), or a column topic')
    if ("queueId" in used_columns) != ("brokerName" in used_columns):
        raise ConfigError("columns queueId and brokerName name a queue together; give both or neither")
    for column, kafka_column in (("queueId", "partition"), ("properties", "headers")):
        if column in used_columns and kafka_column in used_columns:
            raise ConfigError(f"columns {column} and {kafka_column} say the same; drop one")


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
        self._run_id = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        is_named = self._options.write_id is not None or self._options.guarantee == AT_LEAST_ONCE
        writing = write_task(self._write_id, self._run_id, is_named=is_named)
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
        return send_all(iterator, network_of(self._options, waits=True), self._options, stream_task())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log_result(f"batch {batchId}", messages)
        digest = offsets_digest(self._checkpoint, batchId) if self._options.guarantee == EXACTLY_ONCE else None
        commit_staged(network_of(self._options, waits=True), self._options, messages, digest)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log_failure(f"batch {batchId}", self._options, messages)


def log_failure(write_name: str, options: SinkOptions, reports: Iterable[WriterCommitMessage | None]) -> None:
    """Log what a write that failed has left in its topics."""
    show_warnings()
    if options.guarantee == EXACTLY_ONCE:
        log.warning("%s failed; its messages appear only if the broker has the commit", write_name)
    else:
        log.warning("%s failed; %d or more of its messages are stored", write_name, count_stored(reports))


def count_stored(reports: Iterable[WriterCommitMessage | None]) -> int:
    """Failed tasks give None; even tasks that reported can be missing from an abort."""
    return sum(report.count for report in reports if isinstance(report, Stored))


def log_result(write_name: str, reports: Iterable[WriterCommitMessage | None]) -> None:
    """Log what became of the rows: with a warning, if some were rejected."""
    task_reports = [report for report in reports if isinstance(report, Stored)]
    skipped, dead = sum(report.skipped for report in task_reports), sum(report.dead for report in task_reports)
    stored = count_stored(task_reports)
    show_warnings()
    log.info("%s: stored %d messages", write_name, stored)
    if skipped or dead:
        log.warning("%s: %d messages stored, %d rows skipped, %d in dlqTopic", write_name, stored, skipped, dead)


def commit_staged(
    network: BlockingNetwork,
    options: SinkOptions,
    reports: Iterable[WriterCommitMessage | None],
    digest: str | None = None,
) -> None:
    """Commit what tasks staged, if they did; `digest` is that of a stream's batch. Raises: SendFailed."""
    attempts = [report.attempt for report in reports if isinstance(report, Stored) and report.attempt is not None]
    if commit(network, options, attempts, digest):
        log.warning("%s was committed before; its rows are not stored again", attempts[0].writing)


def send_all(
    batches: Iterator[pa.RecordBatch], network: BlockingNetwork, options: SinkOptions, writing: Writing
) -> Stored:
    """Send every row and return when all are stored. Raises: as `Sender`; InvalidMessage, a row cannot be a message."""
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
        for batch in limit_rate(batches, options.rows_per_s):
            messages.send(batch)
        sender.finish()
        rejects.log_total()
        attempt = staged.attempt if staged is not None else None
        return Stored(sender.stored - rejects.dead, rejects.skipped, rejects.dead, attempt)
    finally:
        network.release()
