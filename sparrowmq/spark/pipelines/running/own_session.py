"""The session of a pipeline, what its results depend on is set there and not in the user's; and what Spark refuses."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.logger import PySparkLogger

from sparrowmq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.caseSensitive": "true",
}
_SHUFFLES: Final = "spark.sql.shuffle.partitions"
# Of a session on this machine. Pipelines tell their progress themselves; and no folder is left where the command was
# typed.
_ON_THIS_MACHINE: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.warehouse.dir": os.path.join(tempfile.gettempdir(), "sparrowmq-warehouse"),
}


def own_session(spark: SparkSession | None, settings: dict[str, str] = SETTINGS) -> SparkSession:
    """A session beside `spark`, or beside one that is made if there is none.

    Raises:
        ConfigError: it is one of Spark Connect, whose driver, and with it states and checkpoints, is elsewhere.
    """
    if spark is None:
        from sparrowmq.spark.register import is_submitted, session

        spark = session(settings={} if is_submitted() else _ON_THIS_MACHINE)
        settings = shuffles(spark) | settings
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise ConfigError(
            "a pipeline needs a session with a driver of its own, and not one of Spark Connect; run it "
            "where the cluster can be reached, by `sparrowmq spark submit`"
        )
    own = spark.newSession()
    for name, value in settings.items():
        own.conf.set(name, value)
    return own


def shuffles(spark: SparkSession) -> dict[str, str]:
    """Into how many parts batches are sorted, unless the user has said it.

    Spark makes 200, also of a few thousand rows; their tasks take longer to start than most batches to sort.
    """
    context = spark.sparkContext
    if context.getConf().contains(_SHUFFLES):
        return {}
    return {_SHUFFLES: str(max(16, 4 * context.defaultParallelism))}


@contextmanager
def unlogged() -> Iterator[None]:
    """Spark logs what it raises, with its Java stack; whoever knows what to make of an error wants none of that."""
    log = PySparkLogger.getLogger("SQLQueryContextLogger")
    was, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was


def reason(error: PySparkException) -> str:
    """What Spark says, in its first line; the others show its plan."""
    return str(error).strip().splitlines()[0]
