"""A Spark session that says nothing, and that can be ended at any moment.

The JVM writes to a log file instead of the terminal. Its own files go below one folder, so that it may be killed:
what it leaves behind goes with the folder, and its Python workers end when their pipes do.
"""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path
from threading import Event

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from sparrowmq.errors import SparrowError
from sparrowmq.spark.java import spark_environment

STOP_TIMEOUT_S = 10.0

SETTINGS = {
    "spark.master": "local[2]",
    "spark.app.name": "sparrowmq demo",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "900m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}
# A JVM that lives for a minute gains nothing from its second compiler.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Djava.io.tmpdir={folder}"


class SparkProcess:
    """Starts a JVM with a session, and ends both.

    Not for several threads at once, but for `kill`, which may come from any.
    """

    def __init__(self, folder: Path) -> None:
        self.log = folder / "spark.log"
        self._folder = folder
        self._killed = Event()
        self._jvm: subprocess.Popen[bytes] | None = None

    def start(self) -> SparkSession:
        """Takes about four seconds. Raises: ConfigError, there is no Java; SparrowError, it was killed or failed."""
        os.environ.update(spark_environment())
        for logger in (None, "py4j.clientserver", "py4j.java_gateway"):
            logging.getLogger(logger).addFilter(_is_not_py4j)
        temporary = self._folder / "spark"
        temporary.mkdir(parents=True)
        options = JAVA_OPTIONS.format(folder=temporary)
        conf = SparkConf().setAll([*SETTINGS.items(), ("spark.local.dir", str(temporary))])
        conf.set("spark.driver.extraJavaOptions", options)
        conf.set("spark.sql.warehouse.dir", str(temporary / "warehouse"))
        with self.log.open("wb") as log:
            kwargs = {"stdout": log, "stderr": log, "cwd": temporary}
            gateway = launch_gateway(conf, kwargs)  # type: ignore[no-untyped-call]
        self._jvm = gateway.proc
        if self._killed.is_set():
            self.kill()
            raise SparrowError("Spark was stopped while it started")
        return SparkSession(SparkContext(conf=conf, gateway=gateway))

    def stop(self, session: SparkSession) -> None:
        """The orderly end."""
        session.stop()
        self.kill()

    def kill(self) -> None:
        """End at once: calls to the session raise Py4JError or ConnectionError."""
        self._killed.set()
        if self._jvm is None:
            return
        self._jvm.kill()
        self._jvm.wait(STOP_TIMEOUT_S)
        if self._jvm.stdin is not None:
            self._jvm.stdin.close()
        self._forget()

    def _forget(self) -> None:
        """Let the next session of this process start a JVM of its own; pyspark would go on talking to this one."""
        gateway, SparkContext._gateway = SparkContext._gateway, None
        SparkContext._jvm = None
        SparkContext._active_spark_context = None
        if gateway is not None:
            gateway.shutdown()


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """Py4j logs a traceback for each call that a killed JVM leaves without an answer; it raises them all the same."""
    return "py4j" not in Path(record.pathname).parts
