"""A Spark session that can read and write topics.

    sparrowmq.spark.session()                                   on this machine; or where spark-submit says
    sparrowmq.spark.session("spark://10.0.0.5:7077")            on a cluster
    sparrowmq.spark.session(remote="sc://10.0.0.5:15002")       by Spark Connect

Spark finds the source by itself, by the module `pyspark_rocketmq`, wherever sparrowmq is installed. What `register`
makes known, one session knows alone. To a cluster whose machines lack it, `sparrowmq spark submit` sends it along. With
Spark Connect it is the server's environment that must have it.
"""

from __future__ import annotations

import atexit
import os
import re
import sysconfig
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from sparrowmq.errors import ConfigError

try:
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession
except ImportError as error:
    raise ConfigError("a session needs the package pyspark: pip install 'sparrowmq[spark]'") from error

from sparrowmq.spark.java import CORES, spark_environment
from sparrowmq.spark.source_and_sink import RocketMQSource

SETTINGS: Final = {"spark.sql.python.filterPushdown.enabled": "true"}  # for the option pushdown
_UNIX_SOCKETS: Final = "spark.python.unix.domain.socket"
_DAEMON_MODULE: Final = "sparrowmq.spark.worker_daemon"
_MAX_SOCKET_FOLDER_BYTES: Final = 60  # bytes: macOS takes addresses of 103, and Spark's names have 43
_JAVA_ENDED: Final = (
    "the Java process of Spark ended at its start, and wrote the reason above; the usual ones are a limit of less than "
    "1,024 open files (ulimit -n, LimitNOFILE of systemd) and less memory than spark.driver.memory"
)
_GATEWAY_VARIABLE: Final = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the program that it starts


def session(
    master: str | None = None, settings: Mapping[str, str] | None = None, *, remote: str | None = None
) -> SparkSession:
    """A session with a Java, a Python and settings that the source can be used with.

    Args:
        master: `local[*]` if not given; in a program that spark-submit started, its master.
        settings: Spark's, by their full names.
        remote: a server of Spark Connect, `sc://host:15002`, instead of a master.
    Raises: ConfigError, there is no Java that Spark can use, or it ended; or packages of Spark Connect are missing.
    """
    if remote is not None:
        return _connect_remote(remote, master, settings or {})
    builder = SparkSession.builder
    if not is_submitted():
        master = master or "local[*]"
        os.environ.update(spark_environment() | python_path(os.environ) | cores_variable(master))
        builder = builder.master(master)
    elif master is not None:
        builder = builder.master(master)
    sockets = unix_sockets(tempfile.gettempdir()) if (master or "").startswith("local") else {}
    for name, value in (SETTINGS | sockets | dict(settings or {})).items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise ConfigError(_JAVA_ENDED) from None
    socket = spark.sparkContext._accumulatorServer.server_address
    if isinstance(socket, str):  # else it is an address of TCP
        remove_at_exit(socket)
    return spark


def unix_sockets(folder: str) -> dict[str, str]:
    """Settings that let Java and Python workers of one machine talk by Unix sockets in a folder, or in /tmp.

    With TCP, each task can wait 40 ms: Java's system holds a second small write back until the first is acknowledged,
    and the worker's system delays the acknowledgement. Spark 4.1 and later can have Unix sockets. Without the setting
    they are in Java's folder for temporary files, whose path is too long for an address in many clusters.
    """
    for path in (folder, "/tmp"):
        if len(os.fsencode(path)) <= _MAX_SOCKET_FOLDER_BYTES and os.access(path, os.W_OK | os.X_OK):
            sockets = {f"{_UNIX_SOCKETS}.enabled": "true", f"{_UNIX_SOCKETS}.dir": path}
            return sockets | {"spark.python.daemon.module": _DAEMON_MODULE}
    return {}


@cache
def remove_at_exit(socket: str) -> None:
    """Remove the Unix socket of a driver that ends without `stop()`, which pyspark leaves."""
    atexit.register(Path(socket).unlink, missing_ok=True)


def is_submitted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether spark-submit started this program: it has said where Spark is, and how it is set."""
    return _GATEWAY_VARIABLE in environ


def _connect_remote(remote: str, master: str | None, settings: Mapping[str, str]) -> SparkSession:
    if master is not None:
        raise ConfigError(f"give a master or a remote, not both: {master!r}, {remote!r}")
    builder = SparkSession.builder.remote(remote)
    try:
        for name, value in (SETTINGS | dict(settings)).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except ImportError as error:  # Spark's own, of grpcio and what goes with it
        raise ConfigError(f"Spark Connect needs more packages: pip install 'sparrowmq[connect]' ({error})") from None


def python_path(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings for Spark's Python processes, so that they find this package if it is only in some folder."""
    folder = str(Path(__file__).parents[2])
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if folder in paths or folder in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return {}
    return {"PYTHONPATH": os.pathsep.join([folder, *paths])}


def cores_variable(master: str) -> dict[str, str]:
    """The variable with the number of tasks that a session on this machine runs at once; none for a cluster."""
    match = re.fullmatch(r"local(?:\[([0-9]+|\*)(?:,[0-9]+)?\])?", master)
    if match is None:
        return {}
    return {CORES: str(os.cpu_count() or 1) if match[1] == "*" else match[1] or "1"}


def register(spark: SparkSession) -> None:
    """Make the source known to a session that does not find it by itself, as when it runs from an unpacked checkout."""
    spark.dataSource.register(RocketMQSource)
