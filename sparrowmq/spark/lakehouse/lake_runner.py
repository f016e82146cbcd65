"""Runs a lake until a signal comes, or until all is done: the session, the loop, the pages, the report."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sparrowmq.spark.exposed import exposed
from sparrowmq.spark.lakehouse.lake_settings import LakeSettings, TableSettings
from sparrowmq.spark.lakehouse.lake_status import declare, pages
from sparrowmq.spark.lakehouse.rounds import Rounds
from sparrowmq.spark.lakehouse.spark_workers import SparkWorkers
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.running.absent_brokers import sentence
from sparrowmq.spark.pipelines.running.own_session import ON_THIS_MACHINE, own_session
from sparrowmq.spark.pipelines.running.report import Report, Say, to_stderr
from sparrowmq.spark.pipelines.running.restarting import has_ended
from sparrowmq.spark.pipelines.running.span import offsets_by_topic
from sparrowmq.spark.pipelines.running.stopping import noted
from sparrowmq.spark.pipelines.tables.row_shapes import declared_fields
from sparrowmq.spark.register import is_submitted, session
from sparrowmq.spark.worker_network import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S: Final = 0.2  # how soon a signal is noticed
_NO_PAGES: Final = {"spark.ui.enabled": "false"}  # Spark's own keep something of each job
MOST_FAILURES: Final = 5  # in a row, with `once`
_SIGNAL_S: Final = 1.0  # for the signal that Java got before
_JAVA_ENDED: Final = "the Java process of Spark has ended, and the lake with it; start the lake again to go on"


def lake(
    settings: LakeSettings, *, once: bool = False, spark: SparkSession | None = None, say: Say = to_stderr
) -> Report:
    """Keep the topics of a file as tables; returns when a signal comes, or when all tables have all (`once`).

    Args:
        once: the report has an error if tables were not brought up to date. It also has one if Java ended.
    Raises:
        ConfigError: a schema is none, the address of the metrics cannot be had, or there is no Java.
    """
    own = own_session(spark or _session(settings))
    declared = partial(declared_fields, spark=own)
    for _, section in settings.sections:
        if section.schema is not None:
            declared(section.schema)
    report = Report()
    with ExitStack() as stack, noted() as is_stopped:
        network = stack.enter_context(connect(source_options(settings)))
        rounds = Rounds(settings, network, SparkWorkers(own), declared, say)
        stack.callback(rounds.close)
        address = stack.enter_context(
            exposed(
                settings.metrics,
                partial(declare, rounds=rounds),
                pages(rounds),
                insecure=settings.insecure,
            )
        )
        if address is not None:
            say(f"status page at http://{address}/")
        begin = time.monotonic()
        why = until_ended(rounds, is_stopped, partial(has_ended, own), once=once)
        report.seconds = time.monotonic() - begin
        report.stopped = once and is_stopped()
        add_up(report, rounds, once=once)
        report.error = why or report.error
        if report.away:
            say(sentence(report.away))
    return report


def until_ended(
    rounds: Rounds,
    is_stopped: Callable[[], bool],
    has_ended: Callable[[], bool],
    *,
    once: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> str | None:
    """Do rounds until a signal, the end (`once`) or the end of Java; return why there can be no more rounds.

    They follow at once while there is more to do, else at the pace of the settings. The signal of systemd goes to Java,
    too, and so may end Java first.
    """
    try:
        while not is_stopped() and not has_ended():
            begin = rounds.monotonic()
            has_more = rounds.round()
            if once and is_done(rounds):
                break
            while not has_more and not is_stopped() and rounds.monotonic() - begin < pause_s(rounds, once=once):
                sleep(_LOOK_S)
    except (PySparkException, Py4JError, OSError):
        if not has_ended():
            raise
    if is_stopped() or not has_ended():
        return None
    sleep(_SIGNAL_S)
    return None if is_stopped() else _JAVA_ENDED


def pause_s(rounds: Rounds, *, once: bool) -> float:
    """The time from one look to the next; a run with an end hurries."""
    return min(1.0, rounds.settings.every_s) if once else float(rounds.settings.every_s)


def is_done(rounds: Rounds) -> bool:
    """Whether each table has all there is, or has failed too often; or the brokers cannot be asked.

    Brokers that are away are waited for a little.
    """
    if rounds.why:
        return True
    if 0 < rounds.looks_without_some < MOST_FAILURES:  # a broker may be restarting
        return False
    return all(
        table.is_gone or table.is_permanent or table.failures_in_a_row >= MOST_FAILURES or table.has_all
        for table in rounds.tables.values()
    )


def add_up(report: Report, rounds: Rounds, *, once: bool) -> None:
    """Fill the report with what all tables did; with `once` also with what they did not."""
    tables = rounds.tables
    figures = [table.figures for table in tables.values()]
    report.read = sum(each.read for each in figures)
    report.written = sum(each.rows for each in figures)
    report.errors = sum(each.errors for each in figures)
    report.batches = sum(each.batches for each in figures)
    report.lost = None if any(each.recreated for each in figures) else sum(each.lost for each in figures)
    report.bad = sum(each.damaged for each in figures)
    report.restarts = sum(each.failures for each in figures)
    report.offsets = {}
    for table in tables.values():
        report.offsets |= offsets_by_topic(table.offsets)
    report.away = rounds.away if once else ()
    if once and (failed := [f"{topic}: {table.why}" for topic, table in tables.items() if table.has_failed]):
        report.error = f"{len(failed)} tables are not up to date; {failed[0]}"
    elif once and rounds.why:
        report.error = rounds.why
    elif once and not tables:
        report.error = "no topic of the cluster fits a section of the file; see `sparrowmq lake check`"


def source_options(settings: LakeSettings) -> SourceOptions:
    """The options by which the brokers are asked. Raises: ConfigError."""
    return parse(SourceOptions, {**settings.source(TableSettings()), "topic": "-"})


def _session(settings: LakeSettings) -> SparkSession:
    own = {} if is_submitted() else ON_THIS_MACHINE
    return session(settings.master, {**own, **_NO_PAGES, **settings.spark})
