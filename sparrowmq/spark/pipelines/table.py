"""The pipeline `table`: a topic as a Parquet, Delta or Iceberg table that grows with it.

    topic -> batch of messages -> rows, and errors -> staged files -> the table, its table of errors

    /lake/orders             the table
    /lake/orders.errors      bodies that did not become rows: where they lie, why, the bytes
    /lake/orders.state       checkpoint, what was settled at the first start, files that are being written

Spark repeats a batch with the same messages after a crash, and both tables know their last batch: so each message
becomes one row, or one error, whatever fails in between.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation
from pyspark.sql import functions as f

from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.batch_files import stage
from sparrowmq.spark.pipelines.json_fields import fields_of
from sparrowmq.spark.pipelines.lake.lake import FORMATS, Lake, Place, open_lake
from sparrowmq.spark.pipelines.locked import locked
from sparrowmq.spark.pipelines.own_session import own_session
from sparrowmq.spark.pipelines.report import Report, Say, to_stderr
from sparrowmq.spark.pipelines.shapes import MODES, Objects, Raw, Shape, Whole, declared_fields
from sparrowmq.spark.pipelines.span import span_of, told
from sparrowmq.spark.pipelines.stream_runs import Stream, is_planned, with_defaults

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ROWS_PER_BATCH: Final = 500_000
_PREVIEW_ROWS: Final = 1000


@dataclass
class Settled:
    """What the first start settles for a table."""

    topic: str
    format: str
    mode: str
    schema: str | None
    fields: dict[str, str] = field(default_factory=dict)
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    begin: dict[str, Any] | None = None  # where it begins in each queue; None if brokers were never asked

    def shape(self) -> Shape:
        match self.mode:
            case "raw":
                return Raw()
            case "whole":
                return Whole()
        return Objects(self.fields)


def table(
    topic: str,
    to: str | Path,
    *,
    name_server: str,
    format: str = "parquet",
    mode: str = "raw",
    schema: str | None = None,
    once: bool = False,
    every: str = "10 seconds",
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    say: Say | None = None,
    metrics: str | None = None,
) -> Report:
    """Append what a topic has, and gets, to a table; returns when all is read (`once`), or when it is stopped.

    Args:
        to: the table's folder, on a disk that all workers see.
        format: "parquet", "delta" or "iceberg".
        mode: "raw": each message as it is; "json": a column for each field of JSON bodies; "schema": those of `schema`.
        schema: columns as DDL, `id bigint, name string`; for mode schema.
        every: how often it looks for new messages.
        options: of the source, such as `tags` or `maxOffsetsPerTrigger` (500,000 if not given).
        say: gets a line for each batch; stderr if not given.
        metrics: where Prometheus can read how it is doing, `host:port`.
    Raises:
        ConfigError: the arguments do not fit, or are others than those that the table was begun with.
        StreamingQueryException: the query failed; run it again to go on.
    """
    root = Path(os.path.abspath(to))
    settled = Settled(topic, *_checked(format, mode, schema), _declared(mode, schema))
    settled = begun_at(root, settled) or settled
    source = _source(topic, name_server, settled, options)
    writer = TableWriter(root, settled, say or to_stderr)
    with locked(state_of(root)), writer.report.told_at(metrics, f"table {topic}"):
        _stream(writer, source, own_session(spark)).run(writer.report, once=once, every=every)
    return writer.report


def _stream(writer: TableWriter, source: Mapping[str, str], spark: SparkSession) -> Stream:
    root, settled = writer.root, writer.settled
    checkpoint = state_of(root) / "checkpoint"
    writer.check(checkpoint)
    given = with_defaults(source, _ROWS_PER_BATCH)
    if not is_planned(checkpoint):
        given = _begin(settled, given)
    # Not before brokers have answered: a topic's name with a slip in it would keep the folder.
    keep(state_of(root), settled)
    return Stream(spark, given, writer.write, str(checkpoint))


def preview(
    topic: str,
    to: str | Path,
    *,
    name_server: str,
    format: str = "parquet",
    mode: str = "raw",
    schema: str | None = None,
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> str:
    """What `table` would do, in words; nothing is written. Takes the arguments of `table`, and raises likewise."""
    settled = Settled(topic, *_checked(format, mode, schema), _declared(mode, schema))
    begun = begun_at(Path(os.path.abspath(to)), settled)
    settled = begun or settled
    spark = own_session(spark)
    source = _source(topic, name_server, settled, options)
    messages = spark.read.format("rocketmq").options(**source).load().limit(_PREVIEW_ROWS).cache()
    settled.fields = _grown(settled, messages)
    good, bad = settled.shape().split(messages)
    errors = bad.count() if bad is not None else 0
    columns = "\n".join(f"  {column.name}: {column.dataType.simpleString()}" for column in good.schema.fields)
    return (
        f"{'goes on with' if begun else 'begins'} a {format} table at {to}, mode {mode}; columns:\n{columns}\n"
        f"of {messages.count():,} messages looked at, {errors:,} would become errors; nothing was written"
    )


class TableWriter:
    """Takes batches from Spark, and gives them to the tables."""

    def __init__(self, root: Path, settled: Settled, say: Say, lane: str = "") -> None:
        """`lane` tells apart writers that number their batches by themselves."""
        self.root = root
        self.settled = settled
        self._state = state_of(root)
        self._say = say
        self.report = Report()
        errors = root.with_name(f"{root.name}.errors")
        self._writer, self._lane = settled.writer + lane, lane
        self._rows = open_lake(settled.format, Place(root, self._state, self._writer, lane))
        self._errors = open_lake(settled.format, Place(errors, self._state / "errors", self._writer, lane))

    @property
    def last_batch(self) -> int:
        """The number of the last batch of which one of the tables has rows; -1 before the first."""
        return max(self._rows.last_batch(), self._errors.last_batch())

    def check(self, checkpoint: Path) -> None:
        """Refuse to go on without the checkpoint of what the table has. Raises: ConfigError."""
        if self._rows.last_batch() >= 0 and not (checkpoint / "metadata").exists():
            raise ConfigError(
                f"{self.root} has rows, but {checkpoint} is gone, so it is not known which messages they are; "
                f"restore it, or move the table and {self._state} away to begin again"
            )

    def write(self, messages: DataFrame, batch: int) -> None:
        """Add a batch to the tables, unless they have it."""
        begin, report = time.monotonic(), self.report
        before = report.written, report.errors
        if isinstance(self.settled.shape(), Raw | Whole):
            self._write_raw(messages, batch)
        else:
            self._write_objects(messages.persist(), batch)
        report.batches += 1
        written, errors = report.written - before[0], report.errors - before[1]
        self._say(f"batch {batch}: {written:,} rows, {errors:,} errors, {time.monotonic() - begin:.1f} s")

    def _write_raw(self, messages: DataFrame, batch: int) -> None:
        """Messages are read once, and counted on their way."""
        if batch > self._rows.last_batch():
            count = Observation()
            rows, _ = self.settled.shape().split(messages.observe(count, *_counts()))
            self.report.written += self._add(self._rows, rows, batch, "rows")
            self.report.add_batch(batch, count.get["rows"], count.get["bad"])

    def _write_objects(self, messages: DataFrame, batch: int) -> None:
        """Messages are looked at three times: for their fields, for rows and for errors."""
        try:
            count, bad = messages.agg(*_counts()).collect()[0]
            self.report.add_batch(batch, count, bad)
            if not count:
                return
            fields = _grown(self.settled, messages)
            if fields != self.settled.fields:
                self.settled.fields = fields
                keep(self._state, self.settled)
            good, bad = self.settled.shape().split(messages)
            self.report.written += self._add(self._rows, good, batch, "rows")
            if bad is not None:
                self.report.errors += self._add(self._errors, bad, batch, "errors")
        finally:
            messages.unpersist()

    def _add(self, lake: Lake, rows: DataFrame, batch: int, folder: str) -> int:
        if batch <= lake.last_batch():
            return 0
        prefix = f"{self._writer}-{batch:09}"
        staged = stage(rows, self._state / f"staged{self._lane}" / folder, prefix, keeps_day=lake.keeps_day)
        if staged.files:
            lake.commit(batch, staged)
        return staged.rows


def _counts() -> tuple[Column, Column]:
    """Messages, and those of them whose body was damaged (badRecords=null); a body that is empty is not null."""
    return f.count(f.lit(1)).alias("rows"), f.count_if(f.col("body").isNull()).alias("bad")


def _checked(format: str, mode: str, schema: str | None) -> tuple[str, str, str | None]:
    if format not in FORMATS:
        raise ConfigError(f"format {format!r} is not known; write {', '.join(FORMATS)}")
    if mode not in MODES:
        raise ConfigError(f"mode {mode!r} is not known; write {', '.join(MODES)}")
    if (mode == "schema") != (schema is not None):
        raise ConfigError("a schema, as `id bigint, name string`, goes with mode schema, and only with that")
    return format, mode, schema


def _declared(mode: str, schema: str | None) -> dict[str, str]:
    return declared_fields(schema) if mode == "schema" and schema is not None else {}


def settle(root: Path, settled: Settled) -> Settled:
    """What was settled at the first start; this is the first start if nothing was. Raises: ConfigError."""
    begun = begun_at(root, settled)
    if begun is None:
        keep(state_of(root), settled)
        return settled
    return begun


def _begin(settled: Settled, given: dict[str, str]) -> dict[str, str]:
    """The options with the place where the table begins, which is settled: what lies before may be added from logs."""
    span = span_of(given)
    settled.begin = told(span.start)
    places = span.of(given)
    del places["endingOffsets"]
    return places


def begun_at(root: Path, settled: Settled) -> Settled | None:
    """What an earlier start settled. Raises: ConfigError, if that was something else."""
    found = begun(root)
    if found is None:
        return None
    for name in ("topic", "format", "mode", "schema"):
        was, now = getattr(found, name), getattr(settled, name)
        if was != now:
            raise ConfigError(
                f"the table at {root} was begun with {name} {was!r}, not {now!r}; name another folder"
            )
    return found


def begun(root: Path) -> Settled | None:
    """What the table at `root` is; None if there is none."""
    path = state_of(root) / "table.json"
    return Settled(**json.loads(path.read_text())) if path.exists() else None


def keep(state: Path, settled: Settled) -> None:
    state.mkdir(parents=True, exist_ok=True)
    new = state / "table.json.tmp"
    new.write_text(json.dumps(asdict(settled), indent=2))
    new.rename(state / "table.json")


def _grown(settled: Settled, messages: DataFrame) -> dict[str, str]:
    """The fields with those that are new in these messages; a field keeps its type."""
    return settled.fields if settled.mode != "json" else fields_of(messages) | settled.fields


def _source(
    topic: str, name_server: str, settled: Settled, options: Mapping[str, str] | None
) -> dict[str, str]:
    columns = ",".join(settled.shape().columns)
    given = {**(options or {}), "nameServer": name_server, "topic": topic, "columns": columns}
    parse(SourceOptions, given).check_stream()
    return given


def state_of(root: Path) -> Path:
    return root.with_name(f"{root.name}.state")
