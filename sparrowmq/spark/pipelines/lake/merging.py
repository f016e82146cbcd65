"""Puts the small files of a partition together, in memory that does not grow with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sparrowmq.core.snapshot import sync
from sparrowmq.spark.pipelines.lake.widening import widened

if TYPE_CHECKING:
    from sparrowmq.spark.pipelines.lake.uncommitted_files import Staged

FILE_BYTES: Final = 256 << 20
_SHARE: Final = 4  # a file of a quarter of the size is large enough to stay
TINY_BYTES: Final = 1 << 20
TINY_FILES: Final = 100
_MOST_MERGES: Final = 8  # of one commit; other partitions wait for the next one
_ROWS: Final = 50_000


class TinyFiles:
    """Counts the files of each partition that make a commit dear; a commit merges them when they are many."""

    def __init__(self) -> None:
        self._counts: Counter[str] | None = None  # what this process has not counted yet is not known

    def add(self, staged: Staged, there: Callable[[], Iterable[str]], merge: Callable[[str], int]) -> None:
        """Count the files of a batch, once they are in the table.

        Args:
            there: the partition of each tiny file of the table.
            merge: merges the tiny files of a partition if they are TINY_FILES or more; returns how many are left.
        """
        if self._counts is None:
            self._counts = Counter(there())
        else:
            self._counts.update(file.partition for file in staged.files if file.size < TINY_BYTES)
        for partition, count in self._counts.most_common(_MOST_MERGES):
            if count >= TINY_FILES:
                self._counts[partition] = merge(partition)


def groups(files: Sequence[Path], most: int = FILE_BYTES) -> Iterator[list[Path]]:
    """Small files that are worth being put together: two at least, about `most` bytes at most."""
    group: list[Path] = []
    size = 0
    for file in files:
        file_size = file.stat().st_size
        if file_size * _SHARE >= most:
            continue
        if size + file_size > most:
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(file)
        size += file_size
    if len(group) > 1:
        yield group


def merge(files: Sequence[Path], to: Path) -> None:
    """Write the rows of Parquet files, in their order, to one; a column that a file lacks is null there."""
    schemas = [pq.read_schema(file).remove_metadata() for file in files]
    schema = pa.unify_schemas(schemas, promote_options="permissive")
    to.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(to, schema, compression="snappy") as writer:
        for file in files:
            with pq.ParquetFile(file) as source:
                for batch in source.iter_batches(_ROWS):
                    writer.write_batch(_in(schema, batch))
    sync(to)


def _in(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        widened(batch.column(field.name), field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
