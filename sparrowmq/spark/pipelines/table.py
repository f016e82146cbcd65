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
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Observation
from pyspark.sql import functions as f

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.fields import fields_of
from sparrowmq.spark.pipelines.lake.lake import FORMATS, Lake, Place, open_lake
from sparrowmq.spark.pipelines.report import Report, Say, watch
from sparrowmq.spark.pipelines.shapes import MODES, Objects, Raw, Shape, declared_fields
from sparrowmq.spark.pipelines.staging import stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.caseSensitive": "true",
}
_ROWS_PER_BATCH: Final = "500000"
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

    def shape(self) -> Shape:
        return Raw() if self.mode == "raw" else Objects(self.fields)


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
    Raises:
        ConfigError: the arguments do not fit, or are others than those that the table was begun with.
        StreamingQueryException: the query failed; run it again to go on.
    """
    root = Path(os.path.abspath(to))
    settled = _settle(root, Settled(topic, *_checked(format, mode, schema), _declared(mode, schema)))
    writer, checkpoint = TableWriter(root, settled, say or _to_stderr), _state(root) / "checkpoint"
    writer.check(checkpoint)
    spark = _own_session(spark)
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": _ROWS_PER_BATCH}
    messages = spark.readStream.format("rocketmq").options(
        **given | _source(topic, name_server, settled, options)
    )
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": every}
    stream = messages.load().writeStream.foreachBatch(writer.write).trigger(**trigger)
    watch(stream.option("checkpointLocation", str(checkpoint)).start(), writer.report)
    return writer.report


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
    begun = _begun(Path(os.path.abspath(to)), settled)
    settled = begun or settled
    spark = _own_session(spark)
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

    def __init__(self, root: Path, settled: Settled, say: Say) -> None:
        self._root = root
        self._settled = settled
        self._state = _state(root)
        self._say = say
        self.report = Report()
        errors = root.with_name(f"{root.name}.errors")
        self._rows = open_lake(settled.format, Place(root, self._state, settled.writer))
        self._errors = open_lake(settled.format, Place(errors, self._state / "errors", settled.writer))

    def check(self, checkpoint: Path) -> None:
        """Refuse to go on without the checkpoint of what the table has. Raises: ConfigError."""
        if self._rows.last_batch() >= 0 and not (checkpoint / "metadata").exists():
            raise ConfigError(
                f"{self._root} has rows, but {checkpoint} is gone, so nobody knows which messages they are; "
                f"restore it, or move the table and {self._state} away to begin anew"
            )

    def write(self, messages: DataFrame, batch: int) -> None:
        """Add a batch to the tables, unless they have it."""
        begin, report = time.monotonic(), self.report
        before = report.written, report.errors
        if self._settled.mode == "raw":
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
            rows, _ = self._settled.shape().split(messages.observe(count, f.count(f.lit(1)).alias("rows")))
            self.report.written += self._add(self._rows, rows, batch, "rows")
            self.report.read += count.get["rows"]

    def _write_objects(self, messages: DataFrame, batch: int) -> None:
        """Messages are looked at three times: for their fields, for rows and for errors."""
        try:
            self.report.read += messages.count()
            fields = _grown(self._settled, messages)
            if fields != self._settled.fields:
                self._settled.fields = fields
                _keep(self._state, self._settled)
            good, bad = self._settled.shape().split(messages)
            self.report.written += self._add(self._rows, good, batch, "rows")
            if bad is not None:
                self.report.errors += self._add(self._errors, bad, batch, "errors")
        finally:
            messages.unpersist()

    def _add(self, lake: Lake, rows: DataFrame, batch: int, folder: str) -> int:
        if batch <= lake.last_batch():
            return 0
        prefix = f"{self._settled.writer}-{batch:09}"
        staged = stage(rows, self._state / "staged" / folder, prefix, keeps_day=lake.keeps_day)
        if staged.files:
            lake.commit(batch, staged)
        return staged.rows


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


def _settle(root: Path, settled: Settled) -> Settled:
    """What was settled at the first start; this is the first start if nothing was. Raises: ConfigError."""
    begun = _begun(root, settled)
    if begun is None:
        _keep(_state(root), settled)
        return settled
    return begun


def _begun(root: Path, settled: Settled) -> Settled | None:
    """What an earlier start settled. Raises: ConfigError, if that was something else."""
    path = _state(root) / "table.json"
    if not path.exists():
        return None
    begun = Settled(**json.loads(path.read_text()))
    for name in ("topic", "format", "mode", "schema"):
        was, now = getattr(begun, name), getattr(settled, name)
        if was != now:
            raise ConfigError(
                f"the table at {root} was begun with {name} {was!r}, not {now!r}; name another folder"
            )
    return begun


def _keep(state: Path, settled: Settled) -> None:
    state.mkdir(parents=True, exist_ok=True)
    new = state / "table.json.tmp"
    new.write_text(json.dumps(asdict(settled), indent=2))
    new.rename(state / "table.json")


def _grown(settled: Settled, messages: DataFrame) -> dict[str, str]:
    """The fields with those that are new in these messages; a field keeps its type."""
    return settled.fields if settled.mode != "json" else fields_of(messages) | settled.fields


def _own_session(spark: SparkSession | None) -> SparkSession:
    """A session whose settings are the pipeline's own."""
    if spark is None:
        from sparrowmq.spark.register import session

        spark = session()
    own = spark.newSession()
    for name, value in _SETTINGS.items():
        own.conf.set(name, value)
    return own


def _source(
    topic: str, name_server: str, settled: Settled, options: Mapping[str, str] | None
) -> dict[str, str]:
    columns = ",".join(settled.shape().columns)
    return {**(options or {}), "nameServer": name_server, "topic": topic, "columns": columns}


def _state(root: Path) -> Path:
    return root.with_name(f"{root.name}.state")


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
