"""sparrowmq.spark.worker_daemon: each idle worker that Java closes ends in silence, whatever it has loaded."""

import pytest

from tests.spark.java_side import said_by_idle_worker

pytest.importorskip("pyspark")


def test_an_idle_worker_that_java_closes_prints_nothing():
    assert said_by_idle_worker("sparrowmq.spark.worker_daemon", "") == ""
