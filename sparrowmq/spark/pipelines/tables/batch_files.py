"""Writes the rows of one batch as Parquet files that no reader sees yet.

Its tasks write them, wherever they run, into a folder of the table's state; a lake then takes them over. A batch
that is written again, after a crash, gets a folder of its own: on a cluster, workers of the driver that died may still
write into the one before.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark.sql import functions as f

from sparrowmq.spark.pipelines.lake.uncommitted_files import DAY, Staged, StagedFile
from sparrowmq.spark.source_and_sink import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FOLDER_DAY = "_folder_day"


def stage(rows: DataFrame, folder: Path, prefix: str, *, keeps_day: bool) -> Staged:
    """Write rows into a new folder in `folder`, after removing what earlier attempts left there.

    Args:
        prefix: of the files' names in the table; the same for the same batch.
        keeps_day: whether the files hold the day too, and not only their folder's name.
    """
    shutil.rmtree(folder, ignore_errors=True)
    own = folder / uuid.uuid4().hex
    by = _FOLDER_DAY if keeps_day else DAY
    placed = rows.withColumn(by, f.col(DAY)) if keeps_day else rows
    placed.write.partitionBy(by).parquet(str(own))
    files = [
        _staged_file(path, path.parent.name.partition("=")[2], f"{prefix}-{number:05}.parquet")
        for number, path in enumerate(sorted(own.glob(f"{by}=*/*.parquet")))
    ]
    return Staged(files, arrow_schema(rows.schema))


def _staged_file(path: Path, day: str, name: str) -> StagedFile:
    return StagedFile(path, f"{DAY}={day}/{name}", day, pq.read_metadata(path).num_rows, path.stat().st_size)
