"""The batch side of the source: a table that is what the topics hold when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sparrowmq.spark.network import network_of
from sparrowmq.spark.options import SourceOptions
from sparrowmq.spark.planning import Plan
from sparrowmq.spark.ranges import between, share
from sparrowmq.spark.reader import read
from sparrowmq.spark.schema import Rows

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Reads topics once. Spark copies it to its workers, so it holds no connection."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        plan = Plan(network_of(self._options), self._options)
        bounds = plan.bounds()
        ranges = between(plan.starts(bounds, otherwise="earliest"), plan.ends(bounds))
        tasks = share(ranges, self._options.min_partitions, self._options.max_partitions)
        return [InputPartition(ranges) for ranges in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark gives a query without partitions one whose value is None.
        rows = Rows(self._schema, self._options)
        return read(network_of(self._options), partition.value or (), rows, self._options)
