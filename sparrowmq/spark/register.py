"""A Spark session that can read and write topics.

Spark finds the source by itself, by the module `pyspark_rocketmq`, on every machine where sparrowmq is installed: in
each session, and in each thread. What `register` makes known, one session knows alone, where it is active. On a
cluster whose machines lack it, send a packed environment along (`--archives environment.tar.gz#environment`,
`PYSPARK_PYTHON=./environment/bin/python`): the code alone would not do, as it needs msgspec and pyarrow.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from sparrowmq.spark.java import spark_environment
from sparrowmq.spark.source import RocketMQSource

SETTINGS: Final = {"spark.sql.python.filterPushdown.enabled": "true"}  # for the option pushdown


def session(master: str = "local[*]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session on this machine, with a Java that Spark can use; `settings` are Spark's, by their full names.

    Raises:
        ConfigError: there is no Java, and none can be made do.
    """
    os.environ.update(spark_environment() | found_by_workers(os.environ))
    builder = SparkSession.builder.master(master)
    for name, value in (SETTINGS | dict(settings or {})).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def found_by_workers(environ: Mapping[str, str]) -> dict[str, str]:
    """What lets Spark's Python processes import this package where it is not installed, but lies in some folder."""
    folder = str(Path(__file__).parents[2])
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if folder in paths or folder in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        return {}
    return {"PYTHONPATH": os.pathsep.join([folder, *paths])}


def register(spark: SparkSession) -> None:
    """Make the source known to a session that does not find it by itself, as when it runs from an unpacked checkout."""
    spark.dataSource.register(RocketMQSource)
