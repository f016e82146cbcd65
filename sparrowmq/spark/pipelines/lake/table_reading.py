"""Reads a table back into Spark, whichever its format, and without a jar for it: the table says which files it has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, StringType, StructField, StructType

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.catalogs import identifier_of, open_catalog
from sparrowmq.spark.pipelines.lake.delta_log import LOG, demand_whole
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Partitioning
from sparrowmq.spark.pipelines.lake.remote_reading import delta_files, read_remotely
from sparrowmq.spark.pipelines.running.folders import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


def read_table(
    spark: SparkSession,
    path: Path | Address,
    partitioning: Partitioning = BY_DAY,
    kinds: Mapping[str, DataType] | None = None,
) -> DataFrame:
    """The rows of a table that the pipeline `table` made.

    Args:
        kinds: the types of columns that only the paths of files have: readers guess them, and take 007 for 7.
    Raises:
        ConfigError: there is none, or it is empty. BadStore: a fault of the disk hides rows from readers.
    """
    if isinstance(path, Address):
        return read_remotely(spark, path, partitioning)
    path = local_path(path)
    if (path / LOG).is_dir():
        return _of_delta(spark, path, partitioning, kinds or {})
    if (path / "metadata").is_dir():
        return _of_iceberg(spark, path)
    files = [str(file) for file in sorted(path.glob(partitioning.pattern))]
    return _of_folders(spark, path, files or [str(file) for file in sorted(path.glob("*.parquet"))], kinds or {})


def _reader(spark: SparkSession) -> DataFrameReader:
    return spark.read.option("mergeSchema", "true")


def _demand_some(path: Path, files: list[str]) -> list[str]:
    if not files:
        raise ConfigError(f"{path} has no rows; name the folder of a table")
    return files


def _of_folders(spark: SparkSession, path: Path, files: list[str], kinds: Mapping[str, DataType]) -> DataFrame:
    """The rows of files of which the folders are the values of partitions."""
    found = _reader(spark).option("basePath", str(path)).parquet(*_demand_some(path, files))
    known = StructType([StructField(each.name, kinds.get(each.name, each.dataType)) for each in found.schema])
    if [each.dataType for each in known] == [each.dataType for each in found.schema]:
        return found
    return _reader(spark).schema(known).option("basePath", str(path)).parquet(*files)


def _of_delta(spark: SparkSession, path: Path, partitioning: Partitioning, kinds: Mapping[str, DataType]) -> DataFrame:
    """The rows of a Delta table. Its log has the values of partitions, and folders have them as far as names can."""
    demand_whole(path)
    found = {str(path / name): partition for name, partition in delta_files(str(path), partitioning).items()}
    files = _demand_some(path, sorted(found))
    if all(partitioning.path_in(file) == partition for file, partition in found.items()):
        return _of_folders(spark, path, files, kinds)
    names, values = partitioning.names, [partitioning.values(found[file]) for file in files]
    each = [(PurePath(file).name, *(some[name] for name in names)) for file, some in zip(files, values, strict=True)]
    own = StructType([StructField(name, StringType()) for name in ("name", *names)])
    known = spark.createDataFrame(each, own)
    rows = _reader(spark).parquet(*files)
    joined = rows.join(f.broadcast(known), f.col("_metadata.file_name") == known["name"])
    columns = [known[name].cast(kinds.get(name, StringType())).alias(name) for name in names]
    quoted = (name.replace("`", "``") for name in rows.columns)
    return joined.select(*(rows[f"`{name}`"] for name in quoted), *columns)


def _of_iceberg(spark: SparkSession, path: Path) -> DataFrame:
    """The rows of an Iceberg table in the types of its columns: a file may have integers in a smaller one."""
    # These need pyiceberg.
    from sparrowmq.spark.pipelines.lake.iceberg import damage_named
    from sparrowmq.spark.pipelines.lake.iceberg_upkeep import demand_no_deletes

    table = open_catalog(path, path.with_name(f"{path.name}.state")).load_table(identifier_of(path))
    with damage_named(table):
        tasks = list(table.scan().plan_files())
    demand_no_deletes(path, tasks)
    found = sorted(task.file.file_path for task in tasks)
    files = _demand_some(path, found)
    kinds = from_arrow_schema(table.schema().as_arrow(), prefer_timestamp_ntz=True)
    return spark.read.schema(kinds).parquet(*files)
