"""The pipeline `redrive`: the errors of a table tried again, after its columns have become wider.

    /lake/orders.errors  ->  rows of /lake/orders, for what fits now; the others stay, with the reason of now

No Spark is started. `tables/error_retry.py` says why each message is in one of the tables, also after a kill.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.running.folders import local_path
from sparrowmq.spark.pipelines.running.report import Report, Say, to_stderr
from sparrowmq.spark.pipelines.running.runner import Runner
from sparrowmq.spark.pipelines.tables.error_retry import Retry
from sparrowmq.spark.pipelines.tables.table_settings import begun, held

_SHOWN: Final = 10


def redrive(table: str | Path, *, dry_run: bool = False, say: Say = to_stderr) -> Report:
    """Try the errors of a table again; those that fit the columns become rows, once, and leave the errors.

    In mode `json` the columns become wider first, as `table` does it.

    Args:
        dry_run: say how many would fit, and the reasons of the others; change nothing.
    Returns:
        How many errors were tried (`read`), became rows (`written`) and stay (`errors`).
    Raises:
        ConfigError: there is no table, it has no errors by its mode, or another run is at work.
    """
    root = local_path(table)
    settled = begun(root)
    if settled is None:
        raise ConfigError(f"{root} is no table; the pipeline `table` makes them")
    if settled.address is not None:
        raise ConfigError(f"{root} is a table behind an address or in a catalog, whose errors are not tried again")
    runner = Runner(dry_run=dry_run, say=say)
    report = runner.report
    with runner.timed():
        if dry_run:
            tried = Retry(root, settled, only_looked_at=True).look()
            say(f"{tried.fit:,} errors would become rows, {tried.rest:,} would stay")
        else:
            with held(root, runner):
                tried = Retry(root, settled).run()
            report.written, report.errors = tried.fit, tried.rest
            say(f"{tried.fit:,} errors became rows, {tried.rest:,} stay")
    report.add_read(tried.fit + tried.rest)
    for line in _reasons(tried.reasons):
        say(line)
    return report


def _reasons(reasons: Counter[str]) -> list[str]:
    """The most frequent reasons, as lines."""
    lines = [f"  {count:,}: {reason}" for reason, count in reasons.most_common(_SHOWN)]
    if len(reasons) > _SHOWN:
        lines.append(f"  and {len(reasons) - _SHOWN:,} other reasons")
    return lines
