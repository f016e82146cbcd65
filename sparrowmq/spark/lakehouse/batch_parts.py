"""The work of a batch that workers do: read a part of its messages, and write their rows as files.

    Part -> Spark's worker: pull, rows and errors, Parquet files -> Written -> the driver commits

A part says why it failed instead of raising, so that a failure of one topic is none of the others. Bodies with fields
that are no column yet are errors of a part, with what the fields are like; so are bodies whose schema is not known yet,
with their heads. The driver then adds the columns, and has the parts done again.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType

from sparrowmq.client.cluster.routes import Addresses
from sparrowmq.errors import SparrowError
from sparrowmq.spark.lakehouse.arrow_rows import ArrowRows
from sparrowmq.spark.options import SourceOptions, parse, past_damage
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Layout
from sparrowmq.spark.pipelines.lake.uncommitted_files import StagedFile
from sparrowmq.spark.pipelines.tables.body_reader import BODY
from sparrowmq.spark.pipelines.tables.encoded_bodies import Encoding, Head, count_heads, most_heads
from sparrowmq.spark.pipelines.tables.json_kinds import Found, found_in, merged
from sparrowmq.spark.pipelines.tables.partition_files import PartitionFiles
from sparrowmq.spark.pipelines.tables.remote_files import Target
from sparrowmq.spark.source.partition_ranges import Range
from sparrowmq.spark.source.range_reader import read
from sparrowmq.spark.source.row_batches import Rows
from sparrowmq.spark.worker_network import network_of


@dataclass(frozen=True, slots=True)
class Part:
    """Some ranges of one topic.

    Attributes:
        given: options of the source. brokers: their addresses, so that a worker needs no name server.
        shape: of the rows. folder: for the files of the table. layout: of these.
        targets: of the table and its table of errors, if files are to be written behind an address.
    """

    topic: str
    given: Mapping[str, str] = field(repr=False)
    ranges: tuple[Range, ...]
    brokers: Mapping[str, Addresses]
    shape: ArrowRows
    folder: str
    layout: Layout
    targets: tuple[Target, Target] | None = None

    @property
    def rows(self) -> int:
        return sum(map(len, self.ranges))

    def with_kinds(self, kinds: Mapping[str, DataType], encoding: Encoding | None) -> Part:
        """The same part with other columns and schemas."""
        return replace(self, shape=replace(self.shape, kinds=kinds, encoding=encoding))


@dataclass(slots=True)
class Written:
    """The result of a part.

    Attributes:
        read, damaged: messages, and those of them whose body was damaged. size: bytes of the bodies.
        oldest_ms: when the first of them was stored.
        found: the fields of the bodies that became errors.
        heads: of Avro and Protobuf bodies, each as the id of its schema, which message of it, and a count.
        error: why it failed, with the error's name; then nothing else counts.
    """

    topic: str
    rows: Sequence[StagedFile] = ()
    errors: Sequence[StagedFile] = ()
    read: int = 0
    damaged: int = 0
    size: int = 0
    oldest_ms: int | None = None
    found: Found = field(default_factory=dict)
    heads: Sequence[tuple[int, Sequence[int], int]] = ()
    error: str = ""


def write_all(parts: Iterable[Part]) -> Iterator[Written]:
    """Do parts one after the other; what `error_text` knows ends only its own part."""
    for part in parts:
        try:
            yield write_part(part)
        except (SparrowError, OSError, pa.ArrowException, MemoryError) as error:
            yield Written(part.topic, error=error_text(error))


def error_text(error: BaseException) -> str:
    """An error as `failures.failure` reads it: its name, and its sentence."""
    kind = type(error)
    return f"{kind.__module__}.{kind.__qualname__}: {error}"


def write_part(part: Part) -> Written:
    """Do one part. Raises: as `range_reader.read`; OSError, a file cannot be written."""
    shape = part.shape
    options = parse(SourceOptions, {**past_damage(part.given), "topic": part.topic, "columns": ",".join(shape.columns)})
    network = network_of(options)
    network.learn(part.brokers)
    written = Written(part.topic)
    folder = Path(part.folder)
    rows = PartitionFiles(folder / "rows", shape.staged_schema, part.layout)
    errors = PartitionFiles(folder / "errors", shape.error_schema, Layout(BY_DAY, part.layout.keeps))
    heads: Counter[Head] = Counter()
    with rows, errors:
        for messages in read(network, part.ranges, Rows(shape.source_schema, options), options):
            split = shape.split(messages)
            _count(written, messages)
            if shape.encoding is not None:
                count_heads(shape.encoding, messages.column(BODY).to_pylist(), heads)
            if split.rows.num_rows:
                rows.write(split.rows)
            if split.errors.num_rows:
                errors.write(split.errors)
                if shape.mode == "json":
                    bodies = split.errors.column(BODY).to_pylist()
                    written.found = merged([written.found, found_in(bodies, shape.depth, shape.key)])
    written.heads = most_heads(heads)
    written.rows, written.errors = rows.written, errors.written
    if part.targets is not None:
        written.rows, written.errors = _uploaded(part.targets, rows.written, errors.written)
        shutil.rmtree(folder, ignore_errors=True)
    return written


def _uploaded(
    targets: tuple[Target, Target], rows: Sequence[StagedFile], errors: Sequence[StagedFile]
) -> tuple[list[StagedFile], list[StagedFile]]:
    """Write the files behind an address: all of them, or none."""
    to, to_errors = targets
    there = to.uploaded(rows)
    try:
        return there, to_errors.uploaded(errors)
    except BaseException:
        to.remove(there)
        raise


def _count(written: Written, messages: pa.RecordBatch) -> None:
    bodies = messages.column(BODY)
    written.read += messages.num_rows
    written.damaged += bodies.null_count
    written.size += bodies.nbytes
    oldest = pc.min(pc.cast(messages.column("storeTimestamp"), pa.int64())).as_py()
    if oldest is not None:
        oldest_ms = oldest // 1000
        written.oldest_ms = oldest_ms if written.oldest_ms is None else min(written.oldest_ms, oldest_ms)
