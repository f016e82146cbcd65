"""Puts the small files of a day together, in memory that does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

SMALL_BYTES: Final = 64 << 20
LARGE_BYTES: Final = 256 << 20
_ROWS: Final = 50_000


def groups(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Small files that are worth being put together: two at least, about LARGE_BYTES at most."""
    group: list[Path] = []
    size = 0
    for file in files:
        file_size = file.stat().st_size
        if file_size >= SMALL_BYTES:
            continue
        if size + file_size > LARGE_BYTES:
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(file)
        size += file_size
    if len(group) > 1:
        yield group


def merge(files: Sequence[Path], to: Path) -> None:
    """Write the rows of Parquet files, in their order, to one; a column that a file lacks is null there."""
    schema = pa.unify_schemas([pq.read_schema(file).remove_metadata() for file in files])
    to.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(to, schema, compression="snappy") as writer:
        for file in files:
            with pq.ParquetFile(file) as source:
                for batch in source.iter_batches(_ROWS):
                    writer.write_batch(_in(schema, batch))


def _in(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
