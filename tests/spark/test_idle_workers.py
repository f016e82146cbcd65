"""sparrowmq.spark: a worker of Spark's own daemon that has loaded the package ends in silence."""

import pytest

from tests.spark.java_side import said_by_idle_worker

pytest.importorskip("pyspark")


SPARKS_OWN = "pyspark.daemon"


def test_an_idle_worker_that_java_closes_prints_nothing():
    assert "BrokenPipeError" in said_by_idle_worker(SPARKS_OWN, "")
    assert said_by_idle_worker(SPARKS_OWN, "import sparrowmq.spark") == ""
