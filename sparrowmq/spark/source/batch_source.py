"""The batch side of the source: a table that is what the topics hold when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sparrowmq.spark.options import SourceOptions
from sparrowmq.spark.row_rate import paced
from sparrowmq.spark.source.partition_ranges import between
from sparrowmq.spark.source.query_offsets import Plan
from sparrowmq.spark.source.range_reader import read
from sparrowmq.spark.source.row_batches import Rows
from sparrowmq.spark.source.tasks import ranges_of, tasks
from sparrowmq.spark.worker_network import network_of

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads topics once. Spark copies it to its workers, so it holds no connection."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        network = network_of(self._options)
        plan = Plan(network, self._options)
        bounds = plan.bounds()
        ranges = between(plan.starts(bounds, otherwise="earliest"), plan.ends(bounds))
        return tasks(network, ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        network = network_of(self._options)
        ranges = ranges_of(network, partition)
        rows = read(network, ranges, Rows(self._schema, self._options, ranges), self._options)
        return paced(rows, self._options.rows_per_s)
