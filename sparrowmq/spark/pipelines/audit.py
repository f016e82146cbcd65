"""The pipeline `audit`: is everything there, and once? Two sides are compared by a key.

    audit("topic:orders", "table:/lake/orders")           loss and doubles on the way from one to the other
    audit("csv:/ledger.csv", "topic:orders", by="keys")   ... from the ledger of who sent them
    audit("topic:orders")                                 gaps and doubles in one place

    missing     keys of the left side that the right side lacks
    unexpected  keys of the right side that the left side lacks
    doubled     rows beyond the first of a key, on the right side (of one side alone: there)
    gaps        offsets between a queue's first and last that have no row, on sides that have places

Rows without a key are left out of the first three. A side is read as it is at the beginning. What was chosen by tag may
have gaps by right.

    topic:orders         a topic, as it is now
    store:/var/lib/mq    its stored log; the topic is that of the other side
    table:/lake/orders   what the pipeline `table` made, in any of its formats
    parquet:, csv:, json:/path       any other files: a ledger
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Unpack

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import ClusterOptions, option_names
from sparrowmq.spark.pipelines.running.folders import check_absent, local_path, new_folder
from sparrowmq.spark.pipelines.running.report import Report, Say
from sparrowmq.spark.pipelines.running.runner import Runner, Running
from sparrowmq.spark.pipelines.running.session import first_line, is_deterministic, without_error_log
from sparrowmq.spark.pipelines.running.span import span_of
from sparrowmq.spark.pipelines.tables.row_shapes import COORDINATES, quoted_column
from sparrowmq.spark.pipelines.tables.table_settings import read_rows

KEY: Final = "key"
PLACE_COLUMNS: Final = ("topic", "brokerName", "queueId", "queueOffset")
INPUT_KINDS: Final = ("topic", "store", "table", "parquet", "csv", "json")

# Options that reach brokers, as the other side may need them.
_BROKER_OPTIONS: Final = option_names(ClusterOptions)
_TOPIC_COLUMNS: Final = (*PLACE_COLUMNS, "msgId", "keys", "tags", "body", "bornTimestamp", "storeTimestamp")
_QUEUE_COLUMNS: Final = PLACE_COLUMNS[:-1]


@dataclass
class Findings(Report):
    """The findings of an audit; `errors` is the sum of all, `read` the rows of both sides."""

    missing: int = 0
    unexpected: int = 0
    doubled: int = 0
    gaps: int = 0


def audit(
    left: str,
    right: str | None = None,
    *,
    by: str = "msgId",
    right_by: str | None = None,
    name_server: str | None = None,
    topic: str | None = None,
    to: str | Path | None = None,
    **running: Unpack[Running],
) -> Findings:
    """Compare two sides, or look at one, each named as `kind:where`.

    Args:
        by: an SQL expression over the columns of a side: what says that two rows are the same. right_by: of the other.
        topic: of a store, if the other side names none.
        to: a folder that is not there yet, for what was found as Parquet files: `finding`, `key`, the place.
    Raises: ConfigError, a side cannot be read.
    """
    findings = Findings()
    runner = Runner(**running, report=findings)
    sides = [AuditInput.parse(side) for side in (left, right) if side is not None]
    options = {**(runner.options or {}), **({"nameServer": name_server} if name_server else {})}
    topic = topic or next((side.where for side in sides if side.kind == "topic"), None)
    if to is not None:
        check_absent(to)
    session, keys = runner.session, (by, right_by or by)
    with runner.timed():
        row_sets = [side.rows(session, key, topic, options) for side, key in zip(sides, keys, strict=False)]
        if runner.dry_run:
            return findings
        cached = [rows.persist() for rows in row_sets]
        try:
            _compare(sides, cached, findings, runner.say, None if to is None else str(to))
        finally:
            for rows in cached:
                rows.unpersist()
    findings.errors = findings.missing + findings.unexpected + findings.doubled + findings.gaps
    return findings


def _compare(sides: list[AuditInput], row_sets: list[DataFrame], findings: Findings, say: Say, to: str | None) -> None:
    for side, rows in zip(sides, row_sets, strict=True):
        count, keyed = rows.select(f.count("*"), f.count(KEY)).collect()[0]
        findings.add_read(count)
        findings.gaps += _gaps(rows) if side.has_places else 0
        say(f"{side}: {count:,} rows, {count - keyed:,} without a key")
    row_sets = [rows.where(f"{KEY} is not null") for rows in row_sets]
    key_counts = [rows.groupBy(KEY).agg(f.count("*").alias("n")) for rows in row_sets]
    findings.doubled = _sum(key_counts[-1].where("n > 1").select((f.col("n") - 1).alias("n")))
    if len(row_sets) == 2:
        findings.missing = key_counts[0].join(key_counts[1], KEY, "left_anti").count()
        findings.unexpected = key_counts[1].join(key_counts[0], KEY, "left_anti").count()
    say(
        f"missing {findings.missing:,}, unexpected {findings.unexpected:,}, doubled {findings.doubled:,}, "
        f"gaps {findings.gaps:,}"
    )
    if to is not None:
        findings.written = _write_findings(row_sets, key_counts, to)


def _gaps(rows: DataFrame) -> int:
    offset = f.col("queueOffset")
    span = f.max(offset) - f.min(offset) + 1 - f.count_distinct(offset)
    return _sum(rows.groupBy(*_QUEUE_COLUMNS).agg(span.alias("n")))


def _sum(numbers: DataFrame) -> int:
    row = numbers.agg(f.sum("n")).first()
    return int(row[0] or 0) if row else 0


def _write_findings(row_sets: list[DataFrame], key_counts: list[DataFrame], to: str) -> int:
    parts = [_with_places("doubled", row_sets[-1], key_counts[-1].where("n > 1"))]
    if len(row_sets) == 2:
        parts.append(_with_places("missing", row_sets[0], key_counts[0].join(key_counts[1], KEY, "left_anti")))
        parts.append(_with_places("unexpected", row_sets[1], key_counts[1].join(key_counts[0], KEY, "left_anti")))
    findings = parts[0]
    for part in parts[1:]:
        findings = findings.unionByName(part, allowMissingColumns=True)
    findings = findings.persist()
    with new_folder(to) as folder:
        findings.write.parquet(str(folder))
    return findings.count()


def _with_places(finding: str, rows: DataFrame, keys: DataFrame) -> DataFrame:
    return rows.join(keys.select(KEY), KEY).select(f.lit(finding).alias("finding"), "*")


@dataclass(frozen=True, slots=True)
class AuditInput:
    """One side, as `kind:where` names it."""

    kind: str
    where: str

    @classmethod
    def parse(cls, value: str) -> AuditInput:
        """Raises: ConfigError."""
        kind, colon, where = value.partition(":")
        if not colon or kind not in INPUT_KINDS or not where:
            raise ConfigError(f"{value!r} is no side; write {', '.join(f'{kind}:...' for kind in INPUT_KINDS)}")
        return cls(kind, where)

    def __str__(self) -> str:
        return f"{self.kind}:{self.where}"

    @property
    def has_places(self) -> bool:
        return self.kind in ("topic", "store", "table")

    def rows(self, spark: SparkSession, by: str, topic: str | None, options: Mapping[str, str]) -> DataFrame:
        """Its rows: `key`, the value of `by`, and PLACE_COLUMNS if it has places. Raises: ConfigError."""
        source_rows = self._read(spark, topic, options) if self.has_places else self._read_files(spark)
        try:
            key = f.expr(by).cast("string").alias(KEY)
            with without_error_log():
                rows = source_rows.select(key, *PLACE_COLUMNS) if self.has_places else source_rows.select(key)
        except AnalysisException as error:
            raise ConfigError(f"{self} has no {by!r}: its columns are {', '.join(source_rows.columns)}") from error
        if not is_deterministic(rows):
            raise ConfigError(f"{by!r} has a different result each time, so it cannot be the key of {self}")
        return rows

    def _read(self, spark: SparkSession, topic: str | None, options: Mapping[str, str]) -> DataFrame:
        source = spark.read.format("rocketmq")
        columns = {"columns": ",".join(_TOPIC_COLUMNS)}
        match self.kind:
            case "topic":
                if "nameServer" not in options:
                    raise ConfigError(f"{self} needs name servers: name_server, or -n")
                topic_options = {**options, "topic": self.where}
                return source.options(**span_of(topic_options).batch_options(topic_options) | columns).load()
            case "store":
                if topic is None:
                    raise ConfigError(f"{self} needs `topic`, or a topic on the other side")
                source_options = {name: value for name, value in options.items() if name.lower() not in _BROKER_OPTIONS}
                return source.options(**source_options, **columns, topic=topic, path=self._place).load()
        rows = read_rows(spark, local_path(self.where))
        if COORDINATES not in rows.columns:
            return rows
        places = {name.lower() for name in rows.select(f"{COORDINATES}.*").columns}
        return rows.select(
            *(quoted_column(name) for name in rows.columns if name.lower() not in places), f"{COORDINATES}.*"
        )

    def _read_files(self, spark: SparkSession) -> DataFrame:
        reader = spark.read.format(self.kind).option("header", "true")
        try:
            with without_error_log():
                return reader.load(self._place)
        except AnalysisException as error:
            raise ConfigError(f"{self} cannot be read: {first_line(error)}") from None

    @property
    def _place(self) -> str:
        return self.where if ":/" in self.where else os.path.abspath(self.where)
