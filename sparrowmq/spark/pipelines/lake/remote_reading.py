"""Reads a table behind an address into Spark: its workers read the files through pyarrow, as Spark has no jar for S3.

The driver asks the table which files it has, and what columns. A file that lacks a column, as it was written before the
column came, has nulls there. Spark pushes no filters and columns down into these reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import Address, Storage, storage_options
from sparrowmq.spark.pipelines.lake.catalogs import identifier_of, location_of, open_catalog, secrets_in
from sparrowmq.spark.pipelines.lake.lake import Place
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, DAY, Partitioning, plain
from sparrowmq.spark.pipelines.lake.remote_parquet import RemoteFolder
from sparrowmq.spark.pipelines.lake.waiting import Patience

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS: Final = 10_000


@dataclass(frozen=True)
class Content:
    """The files of a table, relative to its address, with the partition of each, and its columns."""

    files: Mapping[str, str]
    schema: pa.Schema


def read_remotely(spark: SparkSession, address: Address, partitioning: Partitioning = BY_DAY) -> DataFrame:
    """The rows of a table. Raises: ConfigError, there is none, or it is empty."""
    found = Patience(address.parts, secrets=secrets_in(address)).over(lambda: content_of(address, partitioning))
    if not found.files:
        raise ConfigError(f"{address} has no rows; give the address of a table, and its own state")
    names = spark.createDataFrame(sorted(found.files.items()), "name string, partition string")
    shares = names.repartition(min(len(found.files), 4 * spark.sparkContext.defaultParallelism))
    kinds = from_arrow_schema(found.schema, prefer_timestamp_ntz=True)
    return shares.mapInArrow(Read(address.storage, found.schema, partitioning), kinds)


def content_of(address: Address, partitioning: Partitioning = BY_DAY) -> Content:
    """The content of a table in any format: each has a folder that the others lack."""
    storage = address.storage
    if storage.list("_delta_log", deep=False):
        return _of_delta(address, partitioning)
    if storage.list("metadata", deep=False):
        return _of_iceberg(address)
    files = sorted(storage.relative(each.path) for each in storage.list() if each.path.endswith(".parquet"))
    schemas = [pq.read_schema(storage.path(name), filesystem=storage.files) for name in files]
    merged = pa.unify_schemas([pa.schema([]), *(schema.remove_metadata() for schema in schemas)])
    missing = [name for name in partitioning.names if name not in merged.names]
    kinds = RemoteFolder(Place(address, address.state, "", only_looked_at=True)).columns() if missing else {}
    for name in missing:
        unknown = pa.date32() if name == DAY else pa.string()  # there is no table yet
        merged = merged.append(pa.field(name, kinds.get(name, unknown)))
    return Content({name: partitioning.path_in(name) for name in files}, merged)


def _of_delta(address: Address, partitioning: Partitioning) -> Content:
    from deltalake import DeltaTable

    options = storage_options(address.url)
    schema = pa.schema(DeltaTable(address.url, storage_options=options).schema().to_arrow())
    return Content(delta_files(address.url, partitioning, options), schema)


def delta_files(url: str, partitioning: Partitioning, options: dict[str, str] | None = None) -> dict[str, str]:
    """The files of a Delta table, relative to it, and the path of the partition of each."""
    from deltalake import DeltaTable

    from sparrowmq.spark.pipelines.lake.delta_features import demand_plain_files

    table = DeltaTable(url, storage_options=options)
    demand_plain_files(url, table)
    return {
        unquote(each["path"]): partitioning.path_of(
            {
                name: None if (value := each[f"partition.{name}"]) is None else plain(value)
                for name in partitioning.names
            }
        )
        for each in pa.table(table.get_add_actions(flatten=True)).to_pylist()
    }


def _of_iceberg(address: Address) -> Content:
    from sparrowmq.spark.pipelines.lake.iceberg_upkeep import demand_no_deletes  # needs pyiceberg

    table = open_catalog(address, address.state).load_table(identifier_of(address))
    place = f"{location_of(address)}/"
    tasks = list(table.scan().plan_files())
    demand_no_deletes(address, tasks)
    files = [task.file.file_path.removeprefix(place) for task in tasks]
    return Content(dict.fromkeys(files, ""), table.schema().as_arrow())


@dataclass(frozen=True)
class Read:
    """A function for `mapInArrow`: the rows of the files that it gets the names of."""

    storage: Storage
    schema: pa.Schema
    partitioning: Partitioning = BY_DAY

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name, partition in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield from self._rows(name, partition)

    def _rows(self, name: str, partition: str) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.storage.path(name), filesystem=self.storage.files) as file:
            for rows in file.iter_batches(_ROWS):
                columns = [self._column(rows, field, partition) for field in self.schema]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, rows: pa.RecordBatch, field: pa.Field, partition: str) -> pa.Array:
        if field.name in rows.schema.names:
            return rows.column(field.name).cast(field.type)
        if field.name not in self.partitioning.names:
            return pa.nulls(rows.num_rows, field.type)
        text = self.partitioning.values(partition)[field.name]
        return pa.repeat(pa.scalar(text, pa.string()).cast(field.type), rows.num_rows)
