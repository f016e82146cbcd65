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
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Unpack

from pyspark.sql import functions as f

from sparrowmq.spark.pipelines.running.folders import demand_absent, new_folder
from sparrowmq.spark.pipelines.running.report import Report, Say
from sparrowmq.spark.pipelines.running.runner import Runner, Running
from sparrowmq.spark.pipelines.sides import KEY, PLACE, Side

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
    """Compare two sides, or look at one; `sides.py` has how they are named.

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
