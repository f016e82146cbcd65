"""Copies the rows of a table to topics in tasks of Spark: each queue's rows in one task, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from sparrowmq.core.process import freeze_loaded
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.copying.copy_pipeline import Original
from sparrowmq.spark.pipelines.copying.message_copies import Copied, Copier, Copying, now_ms
from sparrowmq.spark.worker_network import network_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUEUE: Final = ("topic", "brokerName", "queueId")
COLUMNS: Final = (*_QUEUE, "queueOffset", "bornTimestamp", "flag", "sysFlag", "properties", "body")
_COUNTS: Final = "sent bigint, there bigint, passed bigint"
_MOST_TASKS: Final = 64


def copy_rows(rows: DataFrame, copying: Copying) -> Copied:
    """Copy rows that have the columns COLUMNS; returns when all are stored.

    Raises: PythonException, a task failed for good.
    """
    tasks = max(1, min(_MOST_TASKS, len(copying.targets)))
    ordered = rows.select(*COLUMNS).repartition(tasks, *_QUEUE).sortWithinPartitions(*_QUEUE, "queueOffset")
    counts = ordered.mapInArrow(partial(_copy, copying), _COUNTS).groupBy().sum().collect()[0]
    return Copied(*(count or 0 for count in counts))


def _copy(copying: Copying, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    freeze_loaded()
    network = network_of(copying.options, waits=True)
    copier = Copier(network, copying)
    try:
        copier.copy(row for batch in batches for row in originals(batch))
    finally:
        network.release()
    copied = copier.copied
    yield pa.RecordBatch.from_pydict({"sent": [copied.sent], "there": [copied.there], "passed": [copied.passed]})


def originals(batch: pa.RecordBatch) -> Iterator[Original]:
    born = batch.column("bornTimestamp").cast(pa.int64()).to_pylist()
    names = ("topic", "brokerName", "queueId", "queueOffset", "flag", "sysFlag", "properties", "body")
    columns = (batch.column(name).to_pylist() for name in names)
    for born_us, topic, broker, queue_id, offset, flag, sys_flag, properties, body in zip(born, *columns, strict=True):
        yield Original(
            MessageQueue(topic, broker, queue_id),
            offset,
            now_ms() if born_us is None else born_us // 1000,
            flag or 0,
            sys_flag or 0,
            dict(properties or ()),
            body or b"",
        )
