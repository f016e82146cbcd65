"""The parts of a batch: workers read a part of its messages, and write their rows as files.

    Part -> Spark's worker: pull, rows and errors, Parquet files -> Written -> the driver commits

A failed part returns its error instead of raising it, so a failure of one topic does not affect the others. Bodies with
fields that have no column yet are errors of a part, with the kinds of the fields; so are bodies with an unknown schema,
with their heads. The driver then adds the columns, and runs the parts again.

Rows are made as Arrow batches, without Spark's engine. They have the columns and types of the pipeline `table`, so
either can continue a table of the other.

    raw        _mq, _day, keys, tags, properties, body
    others     _mq, _day, and the columns of the bodies
    errors     _mq, _day, reason, body

All parts of a round are one job: a job costs Spark some 0.1 s. If the job fails as a whole, for example because a
worker was killed for its memory, each topic gets a job of its own, so only the topic that caused the failure fails.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType, DataType, DateType, StringType, StructField, StructType

from sparrowmq.client.cluster.routes import Addresses
from sparrowmq.errors import SparrowError
from sparrowmq.spark.lakehouse.keyed_batch import DELETED, Tombstones
from sparrowmq.spark.options import SourceOptions, null_bad_records, parse
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, DAY, Layout, Partitioning
from sparrowmq.spark.pipelines.lake.staged_files import PartitionFiles, StagedFile
from sparrowmq.spark.pipelines.tables.batch_files import UploadTarget
from sparrowmq.spark.pipelines.tables.encoded_bodies import (
    BodyHead,
    EncodedReader,
    Encoding,
    count_heads,
    frequent_heads,
)
from sparrowmq.spark.pipelines.tables.json_bodies import (
    BODY,
    BodyFields,
    BodyReader,
    Reader,
    fields_in,
    merge_body_fields,
)
from sparrowmq.spark.pipelines.tables.partition_columns import PartitionCheck
from sparrowmq.spark.pipelines.tables.row_shapes import (
    COORDINATES,
    OWN_COLUMNS,
    REASON,
    Objects,
    RawMessages,
    reader_columns,
)
from sparrowmq.spark.source.partition_ranges import Range, pack
from sparrowmq.spark.source.row_reader import Rows, read
from sparrowmq.spark.source_and_sink import RocketMQSource, arrow_schema
from sparrowmq.spark.worker import network_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COORDINATE_COLUMNS: Final = tuple(name for name in Objects.columns if name != BODY)
_STORE_TIME: Final = "storeTimestamp"
_TASKS_PER_CORE: Final = 2
_PART_COST_ROWS: Final = 500  # the cost of a part without rows, in rows


class RowsAndErrors(NamedTuple):
    """The rows of some messages, and those that became errors."""

    rows: pa.RecordBatch
    errors: pa.RecordBatch


@dataclass
class ArrowRows:
    """Makes the rows of one table from messages.

    `kinds` are the columns of bodies, by name; `depth` is that of objects and lists within columns. `encoding` has the
    known schemas of Avro and Protobuf bodies. `key` and `deletes`: as in `TableSettings`.
    """

    mode: str
    kinds: Mapping[str, DataType] = field(default_factory=dict)
    depth: int = 0
    encoding: Encoding | None = None
    key: str | None = None
    deletes: str | None = None
    partitioning: Partitioning = BY_DAY

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read from the source."""
        if self.key is not None:
            return (*_COORDINATE_COLUMNS, "keys", "properties", BODY)
        return RawMessages.columns if self.mode == "raw" else Objects.columns

    @cached_property
    def source_schema(self) -> pa.Schema:
        return arrow_schema(StructType(self._fields))

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the table."""
        if self.mode == "raw":
            return arrow_schema(StructType([*self._own_fields, *self._fields[len(_COORDINATE_COLUMNS) :]]))
        return arrow_schema(
            StructType([*self._own_fields, *(StructField(name, kind) for name, kind in self.kinds.items())])
        )

    @cached_property
    def staged_schema(self) -> pa.Schema:
        """The schema of the rows that workers write; rows of a key say whether they delete it."""
        return self.schema if self.key is None else self.schema.append(pa.field(DELETED, pa.bool_()))

    @cached_property
    def error_schema(self) -> pa.Schema:
        """The schema of the table of errors."""
        return arrow_schema(
            StructType([*self._own_fields, StructField(REASON, StringType()), StructField(BODY, BinaryType())])
        )

    def split(self, messages: pa.RecordBatch) -> RowsAndErrors:
        """Return the rows of messages, in their order; raw messages never become errors."""
        coordinate_values = [messages.column(name) for name in _COORDINATE_COLUMNS]
        coordinates = pa.StructArray.from_arrays(coordinate_values, fields=list(self.schema.field(COORDINATES).type))
        own_values = [coordinates, pc.cast(messages.column(_STORE_TIME), pa.date32())]
        if self.mode == "raw":
            rows = [*own_values, *(messages.column(name) for name in RawMessages.columns[len(_COORDINATE_COLUMNS) :])]
            return RowsAndErrors(pa.RecordBatch.from_arrays(rows, schema=self.schema), self._no_errors)
        reason, *values = self._read_bodies(messages)
        if self.key is not None:
            reason, values = Tombstones(self.key, self.deletes, self.kinds).mark_rows(messages, reason, values)
        is_good = pc.is_null(reason)
        rows = pa.RecordBatch.from_arrays([*own_values, *values], schema=self.staged_schema)
        if not len(is_good) or pc.all(is_good).as_py():
            return RowsAndErrors(rows, self._no_errors)
        errors = pa.RecordBatch.from_arrays([*own_values, reason, messages.column(BODY)], schema=self.error_schema)
        return RowsAndErrors(rows.filter(is_good), errors.filter(pc.invert(is_good)))

    def _read_bodies(self, messages: pa.RecordBatch) -> list[pa.Array]:
        bodies = pa.RecordBatch.from_arrays([messages.column(BODY)], names=[BODY])
        batches = list(self._reader([bodies]))  # several, if the bodies have very many values
        return [
            pa.concat_arrays([batch.column(index) for batch in batches]) for index in range(1, batches[0].num_columns)
        ]

    @cached_property
    def _reader(self) -> Reader:
        added = list(arrow_schema(reader_columns(self.kinds.values())))
        own_names, is_closed = (*OWN_COLUMNS, *self.partitioning.derived_names), self.mode == "schema"
        read: Reader = (
            EncodedReader(self.encoding, self.kinds, added, own_names)
            if self.encoding is not None
            else BodyReader(self.kinds, added, own_names, is_closed=is_closed, depth=self.depth, key=self.key)
        )
        return PartitionCheck(read, self.partitioning, list(self.kinds))

    @cached_property
    def _fields(self) -> list[StructField]:
        options = {"nameServer": "127.0.0.1:9", "topic": "t", "columns": ",".join(self.columns)}
        return list(RocketMQSource(options).schema().fields)

    @property
    def _own_fields(self) -> list[StructField]:
        coordinates_type = StructType(self._fields[: len(_COORDINATE_COLUMNS)])
        return [StructField(COORDINATES, coordinates_type, nullable=False), StructField(DAY, DateType())]

    @cached_property
    def _no_errors(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([], schema=self.error_schema)


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Some ranges of one topic, for a worker.

    With `brokers`, their addresses, a worker needs no name server. `layout` is of the files in `folder`. `targets` are
    those of the table and its table of errors, if files are to be written behind an address.
    """

    topic: str
    source_options: Mapping[str, str] = field(repr=False)
    ranges: tuple[Range, ...]
    brokers: Mapping[str, Addresses]
    shape: ArrowRows
    folder: str
    layout: Layout
    targets: tuple[UploadTarget, UploadTarget] | None = None

    @property
    def rows(self) -> int:
        return sum(map(len, self.ranges))

    def with_columns(self, kinds: Mapping[str, DataType], encoding: Encoding | None) -> BatchPart:
        return replace(self, shape=replace(self.shape, kinds=kinds, encoding=encoding))


@dataclass(slots=True)
class PartResult:
    """The result of a part.

    `read` and `damaged` count messages, and those of them whose body was damaged; `size` is the bytes of the bodies,
    and `oldest_ms` when the first of them was stored. `body_fields` are those of the bodies that became errors. `heads`
    are of Avro and Protobuf bodies: the id of a schema, which message of it, and a count. After an `error`, nothing
    else counts.
    """

    topic: str
    rows: Sequence[StagedFile] = ()
    errors: Sequence[StagedFile] = ()
    read: int = 0
    damaged: int = 0
    size: int = 0
    oldest_ms: int | None = None
    body_fields: BodyFields = field(default_factory=dict)
    heads: Sequence[tuple[int, Sequence[int], int]] = ()
    error: str = ""


def run_parts(parts: Iterable[BatchPart]) -> Iterator[PartResult]:
    """Run parts one after the other; an error ends only its own part."""
    for part in parts:
        try:
            yield run_part(part)
        except (SparrowError, OSError, pa.ArrowException, MemoryError) as error:
            yield PartResult(part.topic, error=error_text(error))


def error_text(error: BaseException) -> str:
    """Return an error as `failures.failure` reads it: its name and its text."""
    kind = type(error)
    return f"{kind.__module__}.{kind.__qualname__}: {error}"


def run_part(part: BatchPart) -> PartResult:
    """Run one part. Raises: as `row_reader.read`; OSError, a file cannot be written."""
    shape = part.shape
    options = parse(
        SourceOptions,
        {**null_bad_records(part.source_options), "topic": part.topic, "columns": ",".join(shape.columns)},
    )
    network = network_of(options)
    network.learn(part.brokers)
    result = PartResult(part.topic)
    folder = Path(part.folder)
    rows = PartitionFiles(folder / "rows", shape.staged_schema, part.layout)
    errors = PartitionFiles(folder / "errors", shape.error_schema, Layout(BY_DAY, part.layout.keeps_columns))
    heads: Counter[BodyHead] = Counter()
    with rows, errors:
        for messages in read(network, part.ranges, Rows(shape.source_schema, options), options):
            split = shape.split(messages)
            _count_messages(result, messages)
            if shape.encoding is not None:
                count_heads(shape.encoding, messages.column(BODY).to_pylist(), heads)
            if split.rows.num_rows:
                rows.write(split.rows)
            if split.errors.num_rows:
                errors.write(split.errors)
                if shape.mode == "json":
                    bodies = split.errors.column(BODY).to_pylist()
                    result.body_fields = merge_body_fields(
                        [result.body_fields, fields_in(bodies, shape.depth, shape.key)]
                    )
    result.heads = frequent_heads(heads)
    result.rows, result.errors = rows.files, errors.files
    if part.targets is not None:
        result.rows, result.errors = _upload(part.targets, rows.files, errors.files)
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _upload(
    targets: tuple[UploadTarget, UploadTarget], rows: Sequence[StagedFile], errors: Sequence[StagedFile]
) -> tuple[list[StagedFile], list[StagedFile]]:
    rows_target, errors_target = targets
    uploaded = rows_target.upload_files(rows)
    try:
        return uploaded, errors_target.upload_files(errors)
    except BaseException:
        rows_target.remove(uploaded)
        raise


def _count_messages(result: PartResult, messages: pa.RecordBatch) -> None:
    bodies = messages.column(BODY)
    result.read += messages.num_rows
    result.damaged += bodies.null_count
    result.size += bodies.nbytes
    oldest = pc.min(pc.cast(messages.column("storeTimestamp"), pa.int64())).as_py()
    if oldest is not None:
        oldest_ms = oldest // 1000
        result.oldest_ms = oldest_ms if result.oldest_ms is None else min(result.oldest_ms, oldest_ms)


class SparkWorkers:
    """The workers of a session."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self.tasks = _TASKS_PER_CORE * self._context.defaultParallelism

    def __call__(self, parts: Sequence[BatchPart]) -> list[PartResult]:
        """Run parts. Raises: PySparkException, Py4JError, Spark itself has ended."""
        try:
            return self._run(parts)
        except (PySparkException, Py4JError):
            if self._context._jsc is None or self._context._jsc.sc().isStopped():
                raise
        results = list[PartResult]()
        for topic_parts in group_by_topic(parts):
            try:
                results += self._run(topic_parts)
            except (PySparkException, Py4JError) as error:
                results.append(PartResult(topic_parts[0].topic, error=str(error)))
        return results

    def _run(self, parts: Sequence[BatchPart]) -> list[PartResult]:
        tasks = pack(parts, self.tasks, lambda part: part.rows + _PART_COST_ROWS)
        if not tasks:
            return []
        return list(self._context.parallelize(tasks, len(tasks)).flatMap(run_parts).collect())


def group_by_topic(parts: Sequence[BatchPart]) -> Iterator[list[BatchPart]]:
    """The parts of each topic."""
    parts_by_topic: dict[str, list[BatchPart]] = {}
    for part in parts:
        parts_by_topic.setdefault(part.topic, []).append(part)
    yield from parts_by_topic.values()
