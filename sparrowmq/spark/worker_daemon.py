"""Spark's daemon of Python workers, whose workers end in silence: `spark.python.daemon.module`."""

from __future__ import annotations

from pyspark import daemon

from sparrowmq.spark.idle_workers import silence

if __name__ == "__main__":
    silence(daemon)
    daemon.manager()
