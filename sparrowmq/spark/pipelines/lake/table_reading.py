"""Reads a table back into Spark, whichever its format, and without a jar for it: the table says which files it has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.catalogs import identifier_of, open_catalog
from sparrowmq.spark.pipelines.lake.remote_reading import read_remotely
from sparrowmq.spark.pipelines.lake.uncommitted_files import DAY
from sparrowmq.spark.pipelines.running.folders import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: SparkSession, path: Path | Address) -> DataFrame:
    """The rows of a table that the pipeline `table` made. Raises: ConfigError, there is none, or it is empty."""
    if isinstance(path, Address):
        return read_remotely(spark, path)
    path = local_path(path)
    state = path.with_name(f"{path.name}.state")
    if (path / "_delta_log").is_dir():
        return _of_files(spark, path, _delta_files(path))
    if (path / "metadata").is_dir():
        return _of_files(spark, path, _iceberg_files(path, state), has_day=True)
    files = [str(file) for file in sorted(path.glob(f"{DAY}=*/*.parquet"))]
    return _of_files(spark, path, files or [str(file) for file in sorted(path.glob("*.parquet"))])


def _of_files(spark: SparkSession, path: Path, files: list[str], *, has_day: bool = False) -> DataFrame:
    if not files:
        raise ConfigError(f"{path} has no rows; name the folder of a table")
    reader = spark.read.option("mergeSchema", "true")
    return (reader if has_day else reader.option("basePath", str(path))).parquet(*files)


def _delta_files(path: Path) -> list[str]:
    from deltalake import DeltaTable

    found = pa.table(DeltaTable(str(path)).get_add_actions()).column("path").to_pylist()
    return sorted(str(path / unquote(name)) for name in found)


def _iceberg_files(path: Path, state: Path) -> list[str]:
    table = open_catalog(path, state).load_table(identifier_of(path))
    return sorted(task.file.file_path for task in table.scan().plan_files())
