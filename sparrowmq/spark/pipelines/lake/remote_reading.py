"""Reads a table behind an address into Spark: its workers read the files through pyarrow, as Spark has no jar for S3.

The driver asks the table which files it has, and what columns. A file that lacks a column, as it was written before the
column came, has nulls there. Spark pushes no filters and columns down into these reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import Address, Storage, storage_options
from sparrowmq.spark.pipelines.lake.catalogs import identifier_of, location_of, open_catalog, secrets_in
from sparrowmq.spark.pipelines.lake.uncommitted_files import DAY
from sparrowmq.spark.pipelines.lake.waiting import Patience

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS: Final = 10_000


@dataclass(frozen=True)
class Content:
    """The files of a table, relative to its address, and its columns."""

    files: Sequence[str]
    schema: pa.Schema


def read_remotely(spark: SparkSession, address: Address) -> DataFrame:
    """The rows of a table. Raises: ConfigError, there is none, or it is empty."""
    found = Patience(str(address), secrets=secrets_in(address)).over(lambda: content_of(address))
    if not found.files:
        raise ConfigError(f"{address} has no rows; give the address of a table, and its own state")
    names = spark.createDataFrame([(name,) for name in found.files], "name string")
    shares = names.repartition(min(len(found.files), 4 * spark.sparkContext.defaultParallelism))
    kinds = from_arrow_schema(found.schema, prefer_timestamp_ntz=True)
    return shares.mapInArrow(Read(address.storage, found.schema), kinds)


def content_of(address: Address) -> Content:
    """The content of a table in any format: each has a folder that the others lack."""
    storage = address.storage
    if storage.list("_delta_log", deep=False):
        return _of_delta(address)
    if storage.list("metadata", deep=False):
        return _of_iceberg(address)
    files = sorted(storage.relative(each.path) for each in storage.list() if each.path.endswith(".parquet"))
    schemas = [pq.read_schema(storage.path(name), filesystem=storage.files) for name in files]
    merged = pa.unify_schemas([pa.schema([]), *(schema.remove_metadata() for schema in schemas)])
    return Content(files, merged if DAY in merged.names else merged.append(pa.field(DAY, pa.date32())))


def _of_delta(address: Address) -> Content:
    from deltalake import DeltaTable

    table = DeltaTable(address.url, storage_options=storage_options(address.url))
    paths = pa.table(table.get_add_actions()).column("path").to_pylist()
    return Content(sorted(map(unquote, paths)), pa.schema(table.schema().to_arrow()))


def _of_iceberg(address: Address) -> Content:
    table = open_catalog(address, address.state).load_table(identifier_of(address))
    place = f"{location_of(address)}/"
    files = sorted(task.file.file_path.removeprefix(place) for task in table.scan().plan_files())
    return Content(files, table.schema().as_arrow())


@dataclass(frozen=True)
class Read:
    """A function for `mapInArrow`: the rows of the files that it gets the names of."""

    storage: Storage
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name in batch.column("name").to_pylist():
                yield from self._rows(name)

    def _rows(self, name: str) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.storage.path(name), filesystem=self.storage.files) as file:
            for rows in file.iter_batches(_ROWS):
                columns = [self._column(rows, field, name) for field in self.schema]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, rows: pa.RecordBatch, field: pa.Field, name: str) -> pa.Array:
        if field.name in rows.schema.names:
            return rows.column(field.name).cast(field.type)
        if field.name != DAY:
            return pa.nulls(rows.num_rows, field.type)
        day = next(part.partition("=")[2] for part in name.split("/") if part.startswith(f"{DAY}="))
        return pa.array([date.fromisoformat(day)] * rows.num_rows, pa.date32()).cast(field.type)
