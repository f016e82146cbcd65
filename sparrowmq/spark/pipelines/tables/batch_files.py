"""Writes the rows of one batch as Parquet files that no reader sees yet.

Its tasks write them, wherever they run, into a folder of the table's state; a lake then takes them over. A batch
that is written again, after a crash, gets a folder of its own: on a cluster, workers of the driver that died may still
write into the one before.

Spark's engine writes the files of tables by the day, so bodies of megabytes stay in Java. Python's workers write those
of other tables.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as f

from sparrowmq.core.process import freeze_loaded
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, DAY, Layout, Partitioning
from sparrowmq.spark.pipelines.lake.uncommitted_files import Staged, StagedFile
from sparrowmq.spark.pipelines.tables.partition_files import FOUND, PartitionFiles, as_rows, from_rows
from sparrowmq.spark.source_and_sink import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FOLDER_DAY = "_folder_day"


def stage(rows: DataFrame, folder: Path, prefix: str, layout: Layout) -> Staged:
    """Write rows into a new folder in `folder`, after removing what earlier attempts left there.

    Args:
        prefix: of the files' names in the table; the same for the same batch.
    """
    shutil.rmtree(folder, ignore_errors=True)
    own = folder / uuid.uuid4().hex
    schema, partitioning = arrow_schema(rows.schema), layout.partitioning
    if partitioning.fields == BY_DAY.fields:
        files = _by_engine(rows, own, layout)
    else:
        found = together(rows, partitioning).mapInArrow(_TaskFiles(own, schema, layout), FOUND).collect()
        files = [replace(file, path=Path(file.name)) for file in from_rows(found)]
    return Staged([file.named(f"{prefix}-{number:05}", layout) for number, file in enumerate(files)], schema)


def _by_engine(rows: DataFrame, own: Path, layout: Layout) -> list[StagedFile]:
    """The files of days, in the order of their paths."""
    by = _FOLDER_DAY if layout.keeps else DAY
    placed = rows.withColumn(by, f.col(DAY)) if layout.keeps else rows
    placed.write.partitionBy(by).parquet(str(own))
    return [
        StagedFile(
            path,
            "",
            f"{DAY}={path.parent.name.partition('=')[2]}",
            pq.read_metadata(path).num_rows,
            path.stat().st_size,
        )
        for path in sorted(own.glob(f"{by}=*/*.parquet"))
    ]


@dataclass(frozen=True)
class _TaskFiles:
    """A function for `mapInArrow`: it writes the rows of a task, and returns a row for each of its files."""

    folder: Path
    schema: pa.Schema
    layout: Layout

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_loaded()
        with PartitionFiles(self.folder, self.schema, self.layout) as files:
            for batch in batches:
                files.write(batch.select(self.schema.names).cast(self.schema))
        yield as_rows(replace(file, name=str(file.path)) for file in files.written)


def together(rows: DataFrame, partitioning: Partitioning) -> DataFrame:
    """Rows of which those with the same fields of bodies are in one task, so that a batch has few files."""
    sources = sorted({field.source for field in partitioning.of_bodies} & set(rows.columns))
    return rows.hint("rebalance", *(f.col(f"`{name}`") for name in sources)) if sources else rows
