"""Reads a table into Spark, in any format and without a jar for it: the table says which files it has.

Spark has no jar for S3, so its workers read the files of a table behind an address through pyarrow. The driver asks the
table for its files and columns. A file that was written before a column existed has nulls there. Spark pushes no
filters and columns down into these reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, StringType, StructField, StructType

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import Address, Storage, storage_options
from sparrowmq.spark.pipelines.lake.catalogs import catalog_secrets, iceberg_location, open_catalog, table_identifier
from sparrowmq.spark.pipelines.lake.lake import TableLocation
from sparrowmq.spark.pipelines.lake.parquet import RemoteParquetFolder
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, DAY, Partitioning
from sparrowmq.spark.pipelines.lake.retry_policy import RetryPolicy
from sparrowmq.spark.pipelines.running.folders import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_ROWS_PER_BATCH: Final = 10_000


def read_table(
    spark: SparkSession,
    path: Path | Address,
    partitioning: Partitioning = BY_DAY,
    kinds: Mapping[str, DataType] | None = None,
) -> DataFrame:
    """The rows of a table that the pipeline `table` made.

    `kinds` are the types of columns that only the paths of files have: readers guess them, and take 007 for 7.
    Raises: ConfigError, there is none, or it is empty; BadStore, a fault of the disk hides rows from readers.
    """
    if isinstance(path, Address):
        return read_remote_table(spark, path, partitioning)
    path = local_path(path)
    if (path / "_delta_log").is_dir():
        return _read_delta(spark, path, partitioning, kinds or {})
    if (path / "metadata").is_dir():
        return _read_iceberg(spark, path)
    files = [str(file) for file in sorted(path.glob(partitioning.pattern))]
    return _read_folders(spark, path, files or [str(file) for file in sorted(path.glob("*.parquet"))], kinds or {})


def _reader(spark: SparkSession) -> DataFrameReader:
    return spark.read.option("mergeSchema", "true")


def _check_not_empty(path: Path, files: list[str]) -> list[str]:
    if not files:
        raise ConfigError(f"{path} has no rows; name the folder of a table")
    return files


def _read_folders(spark: SparkSession, path: Path, files: list[str], kinds: Mapping[str, DataType]) -> DataFrame:
    rows = _reader(spark).option("basePath", str(path)).parquet(*_check_not_empty(path, files))
    schema = StructType([StructField(field.name, kinds.get(field.name, field.dataType)) for field in rows.schema])
    if schema.simpleString() == rows.schema.simpleString():
        return rows
    return _reader(spark).schema(schema).option("basePath", str(path)).parquet(*files)


def _read_delta(
    spark: SparkSession, path: Path, partitioning: Partitioning, kinds: Mapping[str, DataType]
) -> DataFrame:
    """Read a Delta table. Its log has the partition values; folders have only those that names can express."""
    from sparrowmq.spark.pipelines.lake.delta import check_log, delta_files  # needs deltalake

    check_log(path)
    partitions = {str(path / name): partition for name, partition in delta_files(str(path), partitioning).items()}
    files = _check_not_empty(path, sorted(partitions))
    if all(partitioning.partition_of_file(file) == partition for file, partition in partitions.items()):
        return _read_folders(spark, path, files, kinds)
    names, values = partitioning.names, [partitioning.values(partitions[file]) for file in files]
    file_values = [
        (PurePath(file).name, *(partition_values[name] for name in names))
        for file, partition_values in zip(files, values, strict=True)
    ]
    file_schema = StructType([StructField(name, StringType()) for name in ("name", *names)])
    values_by_file = spark.createDataFrame(file_values, file_schema)
    rows = _reader(spark).parquet(*files)
    joined = rows.join(f.broadcast(values_by_file), f.col("_metadata.file_name") == values_by_file["name"])
    columns = [values_by_file[name].cast(kinds.get(name, StringType())).alias(name) for name in names]
    quoted = (name.replace("`", "``") for name in rows.columns)
    return joined.select(*(rows[f"`{name}`"] for name in quoted), *columns)


def _read_iceberg(spark: SparkSession, path: Path) -> DataFrame:
    """Read an Iceberg table in the types of its columns: a file may have smaller integers."""
    # These need pyiceberg.
    from sparrowmq.spark.pipelines.lake.iceberg import name_damage
    from sparrowmq.spark.pipelines.lake.iceberg_metadata import check_no_deletes

    table = open_catalog(path, path.with_name(f"{path.name}.state")).load_table(table_identifier(path))
    with name_damage(table):
        tasks = list(table.scan().plan_files())
    check_no_deletes(path, tasks)
    files = _check_not_empty(path, sorted(task.file.file_path for task in tasks))
    kinds = from_arrow_schema(table.schema().as_arrow(), prefer_timestamp_ntz=True)
    return spark.read.schema(kinds).parquet(*files)


@dataclass(frozen=True)
class TableFiles:
    """The files of a table, relative to its address, with their partitions, and the columns."""

    files: Mapping[str, str]
    schema: pa.Schema


def read_remote_table(spark: SparkSession, address: Address, partitioning: Partitioning = BY_DAY) -> DataFrame:
    """Read a table behind an address. Raises: ConfigError, there is none, or it is empty."""
    table_files = RetryPolicy(address.description, secrets=catalog_secrets(address)).call(
        lambda: list_files(address, partitioning)
    )
    if not table_files.files:
        raise ConfigError(f"{address} has no rows; give the address of a table, and its own state")
    names = spark.createDataFrame(sorted(table_files.files.items()), "name string, partition string")
    tasks = names.repartition(min(len(table_files.files), 4 * spark.sparkContext.defaultParallelism))
    kinds = from_arrow_schema(table_files.schema, prefer_timestamp_ntz=True)
    return tasks.mapInArrow(ReadFiles(address.storage, table_files.schema, partitioning), kinds)


def list_files(address: Address, partitioning: Partitioning = BY_DAY) -> TableFiles:
    """List the files of a table in any format; each format has a folder that the others lack."""
    storage = address.storage
    if storage.list("_delta_log", deep=False):
        return _remote_delta(address, partitioning)
    if storage.list("metadata", deep=False):
        return _remote_iceberg(address)
    files = sorted(storage.relative(info.path) for info in storage.list() if info.path.endswith(".parquet"))
    schemas = [pq.read_schema(storage.path(name), filesystem=storage.files) for name in files]
    schema = pa.unify_schemas([pa.schema([]), *(schema.remove_metadata() for schema in schemas)])
    missing = [name for name in partitioning.names if name not in schema.names]
    kinds = (
        RemoteParquetFolder(TableLocation(address, address.state, "", is_read_only=True)).columns() if missing else {}
    )
    for name in missing:
        default = pa.date32() if name == DAY else pa.string()  # there is no table yet
        schema = schema.append(pa.field(name, kinds.get(name, default)))
    return TableFiles({name: partitioning.partition_of_file(name) for name in files}, schema)


def _remote_delta(address: Address, partitioning: Partitioning) -> TableFiles:
    from deltalake import DeltaTable

    from sparrowmq.spark.pipelines.lake.delta import delta_files

    options = storage_options(address.url)
    schema = pa.schema(DeltaTable(address.url, storage_options=options).schema().to_arrow())
    return TableFiles(delta_files(address.url, partitioning, options), schema)


def _remote_iceberg(address: Address) -> TableFiles:
    from sparrowmq.spark.pipelines.lake.iceberg_metadata import check_no_deletes  # needs pyiceberg

    table = open_catalog(address, address.state).load_table(table_identifier(address))
    prefix = f"{iceberg_location(address)}/"
    tasks = list(table.scan().plan_files())
    check_no_deletes(address, tasks)
    files = [task.file.file_path.removeprefix(prefix) for task in tasks]
    return TableFiles(dict.fromkeys(files, ""), table.schema().as_arrow())


@dataclass(frozen=True)
class ReadFiles:
    """A function for `mapInArrow`: it reads the files with the names in its input."""

    storage: Storage
    schema: pa.Schema
    partitioning: Partitioning = BY_DAY

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for name, partition in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield from self._rows(name, partition)

    def _rows(self, name: str, partition: str) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.storage.path(name), filesystem=self.storage.files) as file:
            for rows in file.iter_batches(_ROWS_PER_BATCH):
                columns = [self._column(rows, field, partition) for field in self.schema]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, rows: pa.RecordBatch, field: pa.Field, partition: str) -> pa.Array:
        if field.name in rows.schema.names:
            return rows.column(field.name).cast(field.type)
        if field.name not in self.partitioning.names:
            return pa.nulls(rows.num_rows, field.type)
        text = self.partitioning.values(partition)[field.name]
        return pa.repeat(pa.scalar(text, pa.string()).cast(field.type), rows.num_rows)
