"""The identity of a row: the query or write, its batch, the task's partition, and the row's place in it.

Spark repeats tasks, and after a crash whole batches. A repeated task has the same query, batch, partitions and order of
rows, as long as the query is deterministic. So its ids are the same, too, and readers can drop doubles.

The id has the form of Java's (`protocol/messages/message_id.py`), so that every tool takes it:

    | hash 4 | row, high 2 | hash 4 | 0, where others have the time, 4 | row, low 2 |       32 hex digits

The 64 bits of hash separate tasks: among a million tasks the odds that any two agree are 1 in 37 million.
`mqadmin queryMsgByUniqueKey` looks for it from the beginning of the month on.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message_id import UniqueIds

# Local properties that Spark's MicroBatchExecution and StreamExecution set, 4.1 to 4.3.
_QUERY_PROPERTY: Final = "sql.streaming.queryId"
_BATCH_PROPERTY: Final = "streaming.sql.batchId"
_RUN_PROPERTY: Final = "spark.jobGroup.id"
_ID_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class Writing:
    """The task that writes: a query, whose `run` changes at each restart, or one write of a table."""

    writer: str
    batch: int = 0
    partition: int = 0
    run: str = ""

    def __str__(self) -> str:
        return f"partition {self.partition} of batch {self.batch} of {self.writer}"


def stream_task() -> Writing:
    """The writing of the task of a stream that runs here."""
    task = _current_task()
    return Writing(task.query or "", task.batch, task.partition, task.run)


def write_task(write_id: str, run: str, *, is_named: bool) -> Writing:
    """The task of a batch write, also in `foreachBatch`. Raises: ConfigError, repeats would get other names."""
    task = _current_task()
    if task.query and not is_named:
        raise ConfigError(
            "a write in foreachBatch needs a name to be known again when the batch is repeated: "
            'write .option("writeId", "..."), another one for each write of the function'
        )
    writer = f"{task.query}/{write_id}" if task.query else write_id
    return Writing(writer, task.batch, task.partition, task.run if task.query else run)


class RowIds:
    """Unique ids of one task's rows, in their order; the same when the task is repeated."""

    def __init__(self, writing: Writing) -> None:
        seed = f"{writing.writer}\0{writing.batch}\0{writing.partition}"
        digits = blake2b(seed.encode(), digest_size=8).hexdigest().upper()
        self._first = np.frombuffer(digits[:8].encode(), np.uint8)
        self._second = np.frombuffer(f"{digits[8:]}00000000".encode(), np.uint8)
        self._row = 0

    def take(self, count: int, _now_ms: int) -> pa.Array:
        rows = np.arange(self._row, self._row + count)
        self._row += count
        ids = np.empty((count, _ID_DIGITS), np.uint8)
        ids[:, :8], ids[:, 8:12] = self._first, hexadecimal(rows >> 16)
        ids[:, 12:28], ids[:, 28:] = self._second, hexadecimal(rows)
        return _to_texts(pa.py_buffer(ids), count)


class FreshIds:
    """Unique ids as producers make them, others each time."""

    def __init__(self, ids: UniqueIds) -> None:
        self._ids = ids

    def take(self, count: int, now_ms: int) -> pa.Array:
        return _to_texts(pa.py_buffer(self._ids.take(count, now_ms)), count)


def _to_texts(ids: pa.Buffer, count: int) -> pa.Array:
    size = ids.size // max(count, 1)
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(size)
    return pa.StringArray.from_buffers(count, pa.py_buffer(bounds), ids)


def hexadecimal(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """The lowest 16 bits of each as four digits."""
    nibbles = numbers[:, None] >> np.array([12, 8, 4, 0]) & 0xF
    digits: npt.NDArray[np.uint8] = np.frombuffer(b"0123456789ABCDEF", np.uint8)[nibbles]
    return digits


@dataclass(frozen=True, slots=True)
class _Task:
    query: str | None
    batch: int
    partition: int
    run: str


def _current_task() -> _Task:
    context = TaskContext.get()
    if context is None:
        return _Task(None, 0, 0, "")
    query, batch = context.getLocalProperty(_QUERY_PROPERTY), context.getLocalProperty(_BATCH_PROPERTY)
    return _Task(query, int(batch or 0), context.partitionId(), context.getLocalProperty(_RUN_PROPERTY) or "")
