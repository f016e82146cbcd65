"""Runs a lake until a signal comes or all is done, and checks a file of settings without Spark."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from sparrowmq.errors import ConfigError
from sparrowmq.spark.exposed import exposed
from sparrowmq.spark.failures import has_session_ended
from sparrowmq.spark.lakehouse.batch_parts import SparkWorkers
from sparrowmq.spark.lakehouse.lake_loop import LakeLoop
from sparrowmq.spark.lakehouse.lake_settings import LakeSettings, SectionSettings
from sparrowmq.spark.lakehouse.lake_status import declare, pages
from sparrowmq.spark.options import SourceOptions, matches_pattern, parse
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.catalogs import catalog_secrets, open_catalog, table_identifier
from sparrowmq.spark.pipelines.lake.retry_policy import RetryPolicy, storage_errors
from sparrowmq.spark.pipelines.running.report import Report, Say, to_stderr
from sparrowmq.spark.pipelines.running.session import ON_THIS_MACHINE, note_signals, own_session
from sparrowmq.spark.pipelines.running.span import offsets_by_topic, unread_notice
from sparrowmq.spark.pipelines.tables.row_shapes import parse_fields
from sparrowmq.spark.pipelines.tables.table_settings import load_checked_settings, state_folder
from sparrowmq.spark.register import is_submitted, session
from sparrowmq.spark.worker import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_POLL_S: Final = 0.2  # how soon a signal is noticed
_NO_SPARK_PAGES: Final = {"spark.ui.enabled": "false"}  # Spark's own keep something of each job
MAX_FAILURES: Final = 5  # in a row, with `once`
_SIGNAL_DELAY_S: Final = 1.0  # for the signal that Java got before
_JAVA_ENDED: Final = "the Java process of Spark has ended, and the lake with it; start the lake again to go on"
OWN_CATALOGS: Final = (
    "each Iceberg table without a catalog has its own, catalog.db in its state, so no engine lists them all; write "
    "catalog and table to have them in one, before their first start"
)
_ANY_TOPIC: Final = re.compile(".*")


def lake(
    settings: LakeSettings, *, once: bool = False, spark: SparkSession | None = None, say: Say = to_stderr
) -> Report:
    """Keep the topics of a file as tables; returns when a signal comes, or when all tables have all (`once`).

    The report has an error if Java ended, and with `once` if tables were not brought up to date.
    Raises: ConfigError, a schema is none, the address of the metrics cannot be used, or there is no Java.
    """
    spark_session = own_session(spark or _session(settings))
    parse_ddl = partial(parse_fields, spark=spark_session)
    for _, section in settings.sections:
        if section.schema is not None:
            parse_ddl(section.schema)
    report = Report()
    with ExitStack() as stack, note_signals() as is_stopped:
        network = stack.enter_context(connect(source_options(settings)))
        rounds = LakeLoop(settings, network, SparkWorkers(spark_session), parse_ddl, say)
        stack.callback(rounds.close)
        address = stack.enter_context(
            exposed(settings.metrics, partial(declare, rounds=rounds), pages(rounds), insecure=settings.insecure)
        )
        if address is not None:
            say(f"status page at http://{address}/")
        begin = time.monotonic()
        error = run_until_end(rounds, is_stopped, partial(has_session_ended, spark_session), once=once)
        report.seconds = time.monotonic() - begin
        report.stopped = once and is_stopped()
        fill_report(report, rounds, once=once)
        report.error = error or report.error
        if report.away:
            say(unread_notice(report.away))
    return report


def run_until_end(
    rounds: LakeLoop,
    is_stopped: Callable[[], bool],
    has_session_ended: Callable[[], bool],
    *,
    once: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> str | None:
    """Do rounds until a signal, the end (`once`) or the end of Java; return why there can be no more rounds.

    They follow at once while there is more to do, else at the pace of the settings. The signal of systemd goes to Java,
    too, and so may end Java first.
    """
    try:
        while not is_stopped() and not has_session_ended():
            begin = rounds.monotonic()
            has_more = rounds.run_round()
            if once and is_done(rounds):
                break
            while not has_more and not is_stopped() and rounds.monotonic() - begin < pause_s(rounds, once=once):
                sleep(_POLL_S)
    except (PySparkException, Py4JError, OSError):
        if not has_session_ended():
            raise
    if is_stopped() or not has_session_ended():
        return None
    sleep(_SIGNAL_DELAY_S)
    return None if is_stopped() else _JAVA_ENDED


def pause_s(rounds: LakeLoop, *, once: bool) -> float:
    """Return the time between checks of the brokers; shorter with `once`."""
    return min(1.0, rounds.settings.every_s) if once else float(rounds.settings.every_s)


def is_done(rounds: LakeLoop) -> bool:
    """Whether each table has all there is, or failed too often; absent brokers are waited for a little."""
    if rounds.error:
        return True
    if 0 < rounds.incomplete_checks < MAX_FAILURES:  # a broker may be restarting
        return False
    return all(
        table.is_deleted or table.is_permanent or table.failures_in_a_row >= MAX_FAILURES or table.is_complete
        for table in rounds.tables.values()
    )


def fill_report(report: Report, rounds: LakeLoop, *, once: bool) -> None:
    """Fill the report with the figures of all tables; with `once` also with what is missing."""
    tables = rounds.tables
    figures = [table.figures for table in tables.values()]
    report.read = sum(table_figures.read for table_figures in figures)
    report.written = sum(table_figures.rows for table_figures in figures)
    report.errors = sum(table_figures.errors for table_figures in figures)
    report.batches = sum(table_figures.batches for table_figures in figures)
    report.lost = (
        None
        if any(table_figures.recreated for table_figures in figures)
        else sum(table_figures.lost for table_figures in figures)
    )
    report.bad = sum(table_figures.damaged for table_figures in figures)
    report.restarts = sum(table_figures.failures for table_figures in figures)
    report.offsets = {}
    for table in tables.values():
        report.offsets |= offsets_by_topic(table.offsets)
    report.away = rounds.absent_brokers if once else ()
    if once and (failed := [f"{topic}: {table.error}" for topic, table in tables.items() if table.has_failed]):
        report.error = f"{len(failed)} tables are not up to date; {failed[0]}"
    elif once and rounds.error:
        report.error = rounds.error
    elif once and not tables:
        report.error = "no topic of the cluster fits a section of the file; see `sparrowmq lake check`"


def source_options(settings: LakeSettings) -> SourceOptions:
    return parse(SourceOptions, {**settings.source(SectionSettings()), "topic": "-"})


def _session(settings: LakeSettings) -> SparkSession:
    own_settings = {} if is_submitted() else ON_THIS_MACHINE
    return session(settings.master, {**own_settings, **_NO_SPARK_PAGES, **settings.spark})


def check_settings(settings: LakeSettings) -> list[str]:
    """Return a line for each topic that becomes a table, and for the others. Raises: ConfigError; NetworkError."""
    with connect(source_options(settings)) as network:
        topics = network.retrying(network.topics)
    lines, problems = [], []
    for topic in sorted(topics):
        if settings.section_for(topic) is None:
            continue
        try:
            lines.append(_topic_line(settings, topic))
        except ConfigError as error:
            problems.append(f"{topic}: {error}")
    if problems:
        raise ConfigError("; ".join(problems))
    topics_by_pattern = Counter(_pattern_of(settings, topic) for topic in topics)
    lines += [
        f'[tables."{pattern.pattern}"] fits no topic yet'
        for pattern, _ in settings.sections
        if not topics_by_pattern[pattern.pattern]
    ]
    sections = map(settings.section_for, topics)
    if any(section and section.format == "iceberg" and section.catalog is None for section in sections):
        lines.append(OWN_CATALOGS)
    users = [topic for topic in topics if matches_pattern(_ANY_TOPIC, topic)]
    tables = sum(settings.section_for(topic) is not None for topic in users)
    return [*lines, f"{tables:,} of {len(users):,} topics of users become tables; nothing was written"]


def _topic_line(settings: LakeSettings, topic: str) -> str:
    section = settings.section_for(topic)
    assert section is not None
    root = section.root(topic)
    stored_settings = load_checked_settings(root, section.table_settings(topic))
    if isinstance(root, Address):
        _check_storage(root)
    parent = next(folder for folder in state_folder(root).parents if folder.exists())
    if not os.access(parent, os.W_OK):
        raise ConfigError(f"{parent} cannot be written by this user; give the user the permission")
    verb = "goes on with" if stored_settings else "begins"
    return f"{topic}: {verb} {section.format} at {root}, mode {section.mode}, partition {section.partition}"


def _check_storage(root: Address) -> None:
    _check_reachable(root, root.url, root.storage.check_bucket)
    if root.catalog is not None:
        _check_reachable(
            root,
            f"the catalog {root.catalog.name}",
            lambda: open_catalog(root, root.state).table_exists(table_identifier(root)),
        )


def _check_reachable(root: Address, target: str, request: Callable[[], object]) -> None:
    retry = RetryPolicy(target, secrets=catalog_secrets(root), limit_s=0)
    try:
        retry.call(request)
    except ConnectionError as error:
        raise ConfigError(str(error)) from None
    except storage_errors() as error:
        raise ConfigError(f"{target}: {retry.describe(error)}") from None


def _pattern_of(settings: LakeSettings, topic: str) -> str:
    return next((pattern.pattern for pattern, _ in settings.sections if matches_pattern(pattern, topic)), "")
