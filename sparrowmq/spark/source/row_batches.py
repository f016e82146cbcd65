"""Makes Arrow batches of rows out of records; `schema.py` lists the columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.columns.records import RecordColumns
from sparrowmq.spark.columns.slices import text
from sparrowmq.spark.options import RowOptions, SourceOptions
from sparrowmq.spark.schema import COLUMNS
from sparrowmq.spark.source.bad_records import bury, tell_damaged
from sparrowmq.spark.source.partition_ranges import Range

_BODIES: Final = frozenset({"body", "value"})
# A batch is there some six times before Spark has it, in Python and in Arrow.
INFLATED_BYTES: Final = 16 << 20
_QUEUES: Final = 1 << 31  # more than the number of a queue
_LOG_APPEND_TIME: Final = 1  # Kafka's number for a timestamp that the broker set


class Rows:
    def __init__(self, schema: pa.Schema, options: RowOptions, ranges: Collection[Range] = ()) -> None:
        """`schema` is the query's, which `check` has accepted, as Spark's `to_arrow_schema` gives it.

        Args:
            ranges: of the task, with the numbers of its partitions. Without a number a partition has that of its queue.
        """
        self._schema = schema
        self._numbers = {each.queue: each.number for each in ranges if each.number is not None}
        makers = _KAFKA_MAKERS | {"partition": self._partitions} if options.kafka_compat else _MAKERS
        self._makers = [makers[name.lower()] for name in schema.names]
        self._shows_bodies = bool(_BODIES.intersection(map(str.lower, schema.names)))
        self._fails = options.fails_at_bad_records
        self._burial: SourceOptions | None = None
        if isinstance(options, SourceOptions) and options.bad_records == "dlq":
            self._burial = options

    def parts(self, records: RecordColumns) -> Iterable[RecordColumns]:
        """The records in parts, of each of which a batch is not too large, however small its bodies are compressed."""
        return records.parts(INFLATED_BYTES) if self._shows_bodies else (records,)

    def batch(self, records: RecordColumns, broker: str | None, wanted: pa.Array | None = None) -> pa.RecordBatch:
        """The records of one broker as a batch; all of them, or where the boolean array `wanted` is true.

        Raises:
            BadRecord: a body is damaged, and the options want to know.
            SendFailed, NoRoute, NetworkError: a damaged one could not be stored where the options want it.
        """
        made = [
            text(column) if field.type == pa.string() and column.type == pa.binary() else column
            for field, column in zip(self._schema, (make(records, broker) for make in self._makers), strict=True)
        ]
        if records.damaged and self._burial is not None and broker is not None:
            wanted = bury(records, broker, wanted, self._burial)
        elif records.damaged:
            tell_damaged(records, broker, wanted, fail=self._fails)
        rows = pa.RecordBatch.from_arrays(made, schema=self._schema)
        return rows if wanted is None else rows.filter(wanted)

    def _partitions(self, records: RecordColumns, broker: str | None) -> pa.Array:
        """The partition of each record; few queues share a batch."""
        topics, queue_ids = records.column("topic").dictionary_encode(), records.column("queueId")
        names = topics.dictionary.to_pylist()
        places = topics.indices.to_numpy().astype(np.int64) * _QUEUES + queue_ids.to_numpy()
        found, kinds = np.unique(places, return_inverse=True)
        numbers = [
            self._numbers.get(MessageQueue(names[topic], broker or "", queue_id), queue_id)
            for topic, queue_id in (divmod(place, _QUEUES) for place in found.tolist())
        ]
        return pa.array(np.array(numbers, np.int32)[kinds])


Maker = Callable[[RecordColumns, str | None], pa.Array]


def _column(name: str) -> Maker:
    return lambda records, _: records.column(name)


def _constant(value: int | None = None) -> Maker:
    """A value that is the same in every row; the broker's name, if none is given."""
    if value is None:
        return lambda records, broker: pa.repeat(pa.scalar(broker, pa.string()), len(records))
    return lambda records, _: pa.repeat(pa.scalar(value, pa.int32()), len(records))


_MAKERS: Final[dict[str, Maker]] = {
    name.lower(): _constant() if name == "brokerName" else _column(name) for name in COLUMNS
}
_KAFKA_MAKERS: Final[dict[str, Maker]] = {
    "key": lambda records, _: records.column("keys").cast(pa.binary()),
    "value": _column("body"),
    "topic": _column("topic"),
    "offset": _column("queueOffset"),
    "timestamp": _column("storeTimestamp"),
    "timestamptype": _constant(_LOG_APPEND_TIME),
    "headers": lambda records, _: records.properties.headers(),
}
