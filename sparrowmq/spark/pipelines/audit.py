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
from typing import TYPE_CHECKING, Final, Unpack

from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import ClusterOptions, names_of
from sparrowmq.spark.pipelines.running.folders import demand_absent, local_path, new_folder
from sparrowmq.spark.pipelines.running.report import Report, Say
from sparrowmq.spark.pipelines.running.runner import Runner, Running
from sparrowmq.spark.pipelines.running.session import is_steady, reason, unlogged
from sparrowmq.spark.pipelines.running.span import span_of
from sparrowmq.spark.pipelines.tables.row_shapes import COORDINATES, quoted_column
from sparrowmq.spark.pipelines.tables.table_settings import read_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


KEY: Final = "key"
PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")
KINDS: Final = ("topic", "store", "table", "parquet", "csv", "json")

# Options that reach brokers, as the other side may need them.
_OF_BROKERS: Final = names_of(ClusterOptions)
_ROWS_OF_TOPICS: Final = (*PLACE, "msgId", "keys", "tags", "body", "bornTimestamp", "storeTimestamp")
_QUEUE: Final = PLACE[:-1]


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
        running: as `Running` has them.
    Raises:
        ConfigError: a side cannot be read.
    """
    found = Findings()
    runner = Runner(**running, report=found)
    sides = [Side.parse(each) for each in (left, right) if each is not None]
    given = {**(runner.options or {}), **({"nameServer": name_server} if name_server else {})}
    topic = topic or next((side.where for side in sides if side.kind == "topic"), None)
    if to is not None:
        demand_absent(to)
    session, keys = runner.session, (by, right_by or by)
    with runner.timed():
        rows = [side.rows(session, key, topic, given) for side, key in zip(sides, keys, strict=False)]
        if runner.dry_run:
            return found
        kept = [each.persist() for each in rows]
        try:
            _compare(sides, kept, found, runner.say, None if to is None else str(to))
        finally:
            for each in kept:
                each.unpersist()
    found.errors = found.missing + found.unexpected + found.doubled + found.gaps
    return found


def _compare(sides: list[Side], rows: list[DataFrame], found: Findings, say: Say, to: str | None) -> None:
    for side, each in zip(sides, rows, strict=True):
        count, keyed = each.select(f.count("*"), f.count(KEY)).collect()[0]
        found.add_read(count)
        found.gaps += _gaps(each) if side.has_places else 0
        say(f"{side}: {count:,} rows, {count - keyed:,} without a key")
    rows = [each.where(f"{KEY} is not null") for each in rows]
    counted = [each.groupBy(KEY).agg(f.count("*").alias("n")) for each in rows]
    found.doubled = _sum(counted[-1].where("n > 1").select((f.col("n") - 1).alias("n")))
    if len(rows) == 2:
        found.missing = counted[0].join(counted[1], KEY, "left_anti").count()
        found.unexpected = counted[1].join(counted[0], KEY, "left_anti").count()
    say(f"missing {found.missing:,}, unexpected {found.unexpected:,}, doubled {found.doubled:,}, gaps {found.gaps:,}")
    if to is not None:
        found.written = _write(rows, counted, to)


def _gaps(rows: DataFrame) -> int:
    offset = f.col("queueOffset")
    span = f.max(offset) - f.min(offset) + 1 - f.count_distinct(offset)
    return _sum(rows.groupBy(*_QUEUE).agg(span.alias("n")))


def _sum(numbers: DataFrame) -> int:
    row = numbers.agg(f.sum("n")).first()
    return int(row[0] or 0) if row else 0


def _write(rows: list[DataFrame], counted: list[DataFrame], to: str) -> int:
    """The keys that were found, with their places."""
    parts = [_placed("doubled", rows[-1], counted[-1].where("n > 1"))]
    if len(rows) == 2:
        parts.append(_placed("missing", rows[0], counted[0].join(counted[1], KEY, "left_anti")))
        parts.append(_placed("unexpected", rows[1], counted[1].join(counted[0], KEY, "left_anti")))
    found = parts[0]
    for part in parts[1:]:
        found = found.unionByName(part, allowMissingColumns=True)
    found = found.persist()
    with new_folder(to) as folder:
        found.write.parquet(str(folder))
    return found.count()


def _placed(finding: str, rows: DataFrame, keys: DataFrame) -> DataFrame:
    return rows.join(keys.select(KEY), KEY).select(f.lit(finding).alias("finding"), "*")


@dataclass(frozen=True, slots=True)
class Side:
    """One side, as `kind:where` names it."""

    kind: str
    where: str

    @classmethod
    def parse(cls, text: str) -> Side:
        """Raises: ConfigError."""
        kind, colon, where = text.partition(":")
        if not colon or kind not in KINDS or not where:
            raise ConfigError(f"{text!r} is no side; write {', '.join(f'{kind}:...' for kind in KINDS)}")
        return cls(kind, where)

    def __str__(self) -> str:
        return f"{self.kind}:{self.where}"

    @property
    def has_places(self) -> bool:
        return self.kind in ("topic", "store", "table")

    def rows(self, spark: SparkSession, by: str, topic: str | None, given: Mapping[str, str]) -> DataFrame:
        """Its rows: `key`, and the columns of PLACE if it has places.

        Args:
            by: an SQL expression over its columns. topic: for a store. given: options of the source.
        Raises:
            ConfigError: it cannot be read, or has no such columns, or the expression has another result each time.
        """
        read = self._read(spark, topic, given) if self.has_places else self._files(spark)
        try:
            key = f.expr(by).cast("string").alias(KEY)
            with unlogged():
                found = read.select(key, *PLACE) if self.has_places else read.select(key)
        except AnalysisException as error:
            raise ConfigError(f"{self} has no {by!r}: its columns are {', '.join(read.columns)}") from error
        if not is_steady(found):
            raise ConfigError(f"{by!r} has another result each time, so it is no key of {self}")
        return found

    def _read(self, spark: SparkSession, topic: str | None, given: Mapping[str, str]) -> DataFrame:
        source = spark.read.format("rocketmq")
        columns = {"columns": ",".join(_ROWS_OF_TOPICS)}
        match self.kind:
            case "topic":
                if "nameServer" not in given:
                    raise ConfigError(f"{self} needs name servers: name_server, or -n")
                of_topic = {**given, "topic": self.where}
                return source.options(**span_of(of_topic).of(of_topic) | columns).load()
            case "store":
                if topic is None:
                    raise ConfigError(f"of {self} which topic? Give `topic`, or one on the other side")
                kept = {name: value for name, value in given.items() if name.lower() not in _OF_BROKERS}
                return source.options(**kept, **columns, topic=topic, path=self._place).load()
        rows = read_rows(spark, local_path(self.where))
        if COORDINATES not in rows.columns:
            return rows
        places = {name.lower() for name in rows.select(f"{COORDINATES}.*").columns}
        return rows.select(
            *(quoted_column(name) for name in rows.columns if name.lower() not in places), f"{COORDINATES}.*"
        )

    def _files(self, spark: SparkSession) -> DataFrame:
        reader = spark.read.format(self.kind).option("header", "true")
        try:
            with unlogged():
                return reader.load(self._place)
        except AnalysisException as error:
            raise ConfigError(f"{self} cannot be read: {reason(error)}") from None

    @property
    def _place(self) -> str:
        """The absolute path of the files, for processes in other folders."""
        return self.where if ":/" in self.where else os.path.abspath(self.where)
