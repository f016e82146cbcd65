"""Reads the ranges of one task as Arrow batches of rows; `schema.py` lists the columns.

Small answers of brokers are put together before they are decoded, as batches of some thousand rows are the cheapest for
Spark. Brokers compare only hashes of tags, so tags are compared here once more.

A message's compressed body may be damaged, or claim to be too large. The option badRecords decides: `fail`, `null` (in
place of the body), or `dlq` (store the message in dlqTopic as it is, and leave it out). The error or the log names the
place, so that an operator can look at the message (`mqadmin queryMsgByOffset`) and at its sender.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.client.cluster.blocking_network import BlockingNetwork
from sparrowmq.core.process import freeze_loaded_objects, keep_freed_memory
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.subscription import ALL, parse_tags
from sparrowmq.spark.columns import RecordColumns, text
from sparrowmq.spark.options import ClusterOptions, RowOptions, SinkOptions, SourceOptions
from sparrowmq.spark.schema import COLUMNS
from sparrowmq.spark.sink.row_identity import RowIds, Writing
from sparrowmq.spark.sink.row_messages import dead_letter
from sparrowmq.spark.sink.sender import Sender
from sparrowmq.spark.source.partition_ranges import Range, lose
from sparrowmq.spark.source.pulls import PullAnswer, Pulls
from sparrowmq.spark.worker import connect

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 3 << 18  # an answer of our broker is enough as it is: `Pulls` asks for nearly 1 MiB
_BODIES: Final = frozenset({"body", "value"})
# A batch is there some six times before Spark has it, in Python and in Arrow.
INFLATED_BYTES: Final = 16 << 20
_MAX_QUEUE_ID: Final = 1 << 31  # more than the number of a queue
_LOG_APPEND_TIME: Final = 1  # Kafka's number for a timestamp that the broker set


class BadRecord(SparrowError):
    """A message's body cannot be made of what is stored."""


def read(
    network: BlockingNetwork, ranges: Sequence[Range], rows: Rows, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """The rows of `ranges`. Raises: as `Pulls.answers` and `Rows.batch`; RemoteProtocolError, no messages came."""
    keep_freed_memory()
    freeze_loaded_objects()
    tags = expression_tags(options.expression)
    try:
        for answer in merge_answers(Pulls(network, ranges, options).answers()):
            records = RecordColumns(answer.body, decompress=options.decompress, internal=options.include_internal)
            if answer.count is not None and len(records) != answer.count:
                problem = f"{answer.count - len(records)} messages of {answer.range} are gone"
                lose(problem, fail=options.fail_on_data_loss)
            for part in rows.parts(records):
                batch = rows.batch(part, answer.range.queue.broker_name, row_mask(part, answer, tags))
                if batch.num_rows:
                    yield batch
    finally:
        network.release()


def expression_tags(expression: str) -> pa.Array | None:
    """The tags that the option subExpression names; None for all."""
    return None if expression == ALL else pa.array(sorted(parse_tags(expression)), pa.string())


def merge_answers(answers: Iterable[PullAnswer]) -> Iterator[PullAnswer]:
    """Answers of one queue after the other, put together to a size that is worth decoding."""
    parts: list[PullAnswer] = []
    size_bytes = 0
    for answer in answers:
        if parts and (parts[0].range.queue.broker_name != answer.range.queue.broker_name or answer.reaches_beyond):
            yield _merge(parts)
            parts, size_bytes = [], 0
        parts.append(answer)
        size_bytes += len(answer.body)
        if size_bytes >= BATCH_BYTES or answer.reaches_beyond:
            yield _merge(parts)
            parts, size_bytes = [], 0
    if parts:
        yield _merge(parts)


def _merge(parts: Sequence[PullAnswer]) -> PullAnswer:
    if len(parts) == 1:
        return parts[0]
    counts = [part.count for part in parts if part.count is not None]
    count = sum(counts) if len(counts) == len(parts) else None
    return PullAnswer(parts[-1].range, b"".join([part.body for part in parts]), count)


def row_mask(records: RecordColumns, answer: PullAnswer, tags: pa.Array | None) -> pa.Array | None:
    has_tag = None if tags is None else pc.is_in(records.column("tags"), value_set=tags)
    if not answer.reaches_beyond:
        return has_tag
    is_within = pa.array(records.queue_offsets < answer.range.end)
    return is_within if has_tag is None else pc.and_(has_tag, is_within)


class Rows:
    """Makes Arrow batches of rows out of records.

    `schema` is the query's, which `check_columns` has accepted. `ranges` have the numbers of partitions; without one, a
    partition has the number of its queue.
    """

    def __init__(self, schema: pa.Schema, options: RowOptions, ranges: Collection[Range] = ()) -> None:
        self._schema = schema
        self._numbers = {range.queue: range.number for range in ranges if range.number is not None}
        makers = _KAFKA_COLUMN_MAKERS | {"partition": self._partitions} if options.kafka_compat else _COLUMN_MAKERS
        self._makers = [makers[name.lower()] for name in schema.names]
        self._shows_bodies = bool(_BODIES.intersection(map(str.lower, schema.names)))
        self._fails_on_damage = options.fails_at_bad_records
        self._dlq_options: SourceOptions | None = None
        if isinstance(options, SourceOptions) and options.bad_records == "dlq":
            self._dlq_options = options

    def parts(self, records: RecordColumns) -> Iterable[RecordColumns]:
        """The records in parts, of each of which a batch is not too large, however small its bodies are compressed."""
        return records.parts(INFLATED_BYTES) if self._shows_bodies else (records,)

    def batch(self, records: RecordColumns, broker: str | None, mask: pa.Array | None = None) -> pa.RecordBatch:
        """The records of one broker as a batch; all of them, or where the boolean array `mask` is true.

        Raises: BadRecord, a body is damaged, and the options want to know; SendFailed, NoRoute, NetworkError, a damaged
        one could not be stored where the options want it.
        """
        columns = [
            text(column) if field.type == pa.string() and column.type == pa.binary() else column
            for field, column in zip(self._schema, (make(records, broker) for make in self._makers), strict=True)
        ]
        if records.damaged_rows and self._dlq_options is not None and broker is not None:
            mask = move_to_dlq(records, broker, mask, self._dlq_options)
        elif records.damaged_rows:
            report_damaged(records, broker, mask, fail=self._fails_on_damage)
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return rows if mask is None else rows.filter(mask)

    def _partitions(self, records: RecordColumns, broker: str | None) -> pa.Array:
        topics, queue_ids = records.column("topic").dictionary_encode(), records.column("queueId")
        names = topics.dictionary.to_pylist()
        queue_keys = topics.indices.to_numpy().astype(np.int64) * _MAX_QUEUE_ID + queue_ids.to_numpy()
        distinct, inverse = np.unique(queue_keys, return_inverse=True)
        numbers = [
            self._numbers.get(MessageQueue(names[topic], broker or "", queue_id), queue_id)
            for topic, queue_id in (divmod(queue_key, _MAX_QUEUE_ID) for queue_key in distinct.tolist())
        ]
        return pa.array(np.array(numbers, np.int32)[inverse])


ColumnMaker = Callable[[RecordColumns, str | None], pa.Array]


def _column(name: str) -> ColumnMaker:
    return lambda records, _: records.column(name)


def _constant(value: int | None = None) -> ColumnMaker:
    if value is None:
        return lambda records, broker: pa.repeat(pa.scalar(broker, pa.string()), len(records))
    return lambda records, _: pa.repeat(pa.scalar(value, pa.int32()), len(records))


_COLUMN_MAKERS: Final[dict[str, ColumnMaker]] = {
    name.lower(): _constant() if name == "brokerName" else _column(name) for name in COLUMNS
}
_KAFKA_COLUMN_MAKERS: Final[dict[str, ColumnMaker]] = {
    "key": lambda records, _: records.column("keys").cast(pa.binary()),
    "value": _column("body"),
    "topic": _column("topic"),
    "offset": _column("queueOffset"),
    "timestamp": _column("storeTimestamp"),
    "timestamptype": _constant(_LOG_APPEND_TIME),
    "headers": lambda records, _: records.properties.headers(),
}


def report_damaged(records: RecordColumns, broker: str | None, mask: pa.Array | None, *, fail: bool) -> None:
    """Log the place of each damaged body whose row is wanted. Raises: BadRecord, if `fail`."""
    for row in _wanted_damaged_rows(records, mask):
        place, reason = _message_place(records, row, broker), records.damaged_rows[row]
        if fail:
            raise BadRecord(
                f"the body at {place} is damaged: {reason}. To go on with null in its place set badRecords=null"
            ) from reason
        log.warning("the body at %s is damaged, and is null: %s", place, reason)


def move_to_dlq(records: RecordColumns, broker: str, mask: pa.Array | None, options: SourceOptions) -> pa.Array | None:
    """Store each damaged message that is wanted in dlqTopic; returns which rows are left.

    A task that is repeated stores them again, with the same unique ids: they are made of the message's place.

    Raises: SendFailed, NoRoute, NetworkError, it could not be stored.
    """
    rows = _wanted_damaged_rows(records, mask)
    if not rows:
        return mask
    assert options.dlq_topic is not None, "the options demand it"
    cluster_options = {entry.name: getattr(options, entry.name) for entry in fields(ClusterOptions)}
    with connect(options) as network:
        sender = Sender(network, SinkOptions(**cluster_options, topic=options.dlq_topic))
        for row in rows:
            place, reason = _message_place(records, row, broker), records.damaged_rows[row]
            key = RowIds(Writing(place)).take(1, 0)[0].as_py()
            topic = records.column("topic")[row].as_py()
            sender.put(
                options.dlq_topic, dead_letter(place, str(reason), topic, records.stored_bodies[row].as_py(), key)
            )
            log.warning("the body at %s is damaged, and is in %s: %s", place, options.dlq_topic, reason)
        sender.finish()
    return pa.array(
        [row not in records.damaged_rows and (mask is None or mask[row].as_py()) for row in range(len(records))]
    )


def _wanted_damaged_rows(records: RecordColumns, mask: pa.Array | None) -> Sequence[int]:
    return [row for row in records.damaged_rows if mask is None or mask[row].as_py()]


def _message_place(records: RecordColumns, row: int, broker: str | None) -> str:
    topic, queue_id = (records.column(name)[row].as_py() for name in ("topic", "queueId"))
    return f"offset {records.queue_offsets[row]} of {MessageQueue(topic, broker or '?', queue_id)}"
