"""The session of a pipeline: settings that the user's session does not get, errors of Spark, and signals."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

from sparrowmq.errors import ConfigError

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.caseSensitive": "true",
}
_SHUFFLES: Final = "spark.sql.shuffle.partitions"
# For each file of a checkpoint in a local folder, Spark's usual class starts `readlink` and `chmod` as processes, by
# way of Hadoop's FileContext: a third of the time of a small batch. This class writes the same files without.
_FILE_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
_FILE_SYSTEM_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
# For a session on this machine. Pipelines show their own progress, and leave no folder in the current directory.
ON_THIS_MACHINE: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "sparrowmq-warehouse"),
}


def own_session(
    spark: SparkSession | None, settings: dict[str, str] = SETTINGS, *, sees_views: bool = False
) -> SparkSession:
    """A session beside `spark`, or beside one that is made if there is none.

    With `sees_views` it has the views, functions and settings that `spark` has now.
    Raises: ConfigError, it is one of Spark Connect, whose driver, and with it states and checkpoints, is elsewhere.
    """
    if spark is None:
        from sparrowmq.spark.register import is_submitted, session

        with restore_handler():
            spark = session(settings={} if is_submitted() else ON_THIS_MACHINE)
        settings = shuffle_settings(spark) | settings
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigError(
            "a pipeline needs a session with its own driver, not one of Spark Connect; run it "
            "where the cluster can be reached, by `sparrowmq spark submit`"
        )
    # A session with the state of another; pyspark has no name for what Spark uses inside.
    clone = type(spark)(spark.sparkContext, spark._jsparkSession.cloneSession()) if sees_views else None
    new_session = clone or spark.newSession()
    for name, value in (checkpoint_settings(spark) | settings).items():
        new_session.conf.set(name, value)
    return new_session


def shuffle_settings(spark: SparkSession) -> dict[str, str]:
    """A number of partitions for sorting, unless the user set one: Spark's 200 take longer to start than to sort."""
    context = spark.sparkContext
    if context.getConf().contains(_SHUFFLES):
        return {}
    return {_SHUFFLES: str(max(16, 4 * context.defaultParallelism))}


def checkpoint_settings(spark: SparkSession) -> dict[str, str]:
    """The class that writes local checkpoints, unless the user set another, or this version of Spark lacks it."""
    if spark.sparkContext.getConf().contains(_FILE_MANAGER):
        return {}
    java: Any = spark._jvm
    is_available = java.org.apache.spark.util.Utils.classIsLoadable(_FILE_SYSTEM_MANAGER)
    return {_FILE_MANAGER: _FILE_SYSTEM_MANAGER} if is_available else {}


@contextmanager
def without_error_log() -> Iterator[None]:
    """Keep Spark from logging the errors that it raises, with their Java stacks."""
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    was_disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was_disabled


def first_line(error: PySparkException) -> str:
    """The first line of an error; the others show Spark's plan."""
    return str(error).strip().splitlines()[0]


def is_deterministic(rows: DataFrame) -> bool:
    """Whether selected or filtered rows are the same at each evaluation: without `rand()` or `uuid()`."""
    return bool(rows._jdf.queryExecution().analyzed().deterministic())


def depends_on_row(selected: DataFrame, rows: DataFrame) -> bool:
    """Whether one selected expression is a function of columns of `rows`: no constant, sum, window or time of now."""
    plan, source_plan = (frame._jdf.queryExecution().analyzed() for frame in (selected, rows))
    java: Any = rows.sparkSession._jvm
    now = java.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    is_projection = plan.nodeName() == "Project" and plan.children().head() == source_plan
    return bool(is_projection and not plan.references().isEmpty() and not plan.containsPattern(now))


@contextmanager
def note_signals() -> Iterator[Callable[[], bool]]:
    """Note signals instead of raising KeyboardInterrupt; yields a function that says whether one came.

    A KeyboardInterrupt during a call to Spark breaks the bridge to Java, which is needed to stop the query. Control-C
    is noted, and SIGTERM if it has a handler that raises. Only the main thread gets signals.
    """
    signals: list[int] = []
    handlers: dict[int, Any] = {}

    def note(number: int, frame: FrameType | None) -> None:
        try:
            # Spark's own handler of Control-C would ask Java in the middle of another question.
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            handlers[number](number, frame)
        except KeyboardInterrupt:
            signals.append(number)

    if threading.current_thread() is threading.main_thread():
        for noted in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(noted)):
                handlers[noted] = handler
                signal.signal(noted, note)
    try:
        yield lambda: bool(signals)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def restore_handler() -> Iterator[None]:
    """Keep the handler of Control-C while a session begins: Spark puts its own in the place of any other.

    Python's own handler may go, and that of an earlier session: a notebook needs the new one, which cancels the jobs.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if not _is_replaceable(handler) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def _is_replaceable(handler: Any) -> bool:
    is_of_spark = str(getattr(handler, "__module__", "")).startswith("pyspark.")
    return handler is None or handler is signal.default_int_handler or is_of_spark
