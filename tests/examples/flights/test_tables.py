"""How queries are followed. What they make is proved by test_show.py, with a real Spark."""

import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from examples.flights.stages import Stage
from examples.flights.tables import Followed, Places, follow, processed, without_java
from sparrowmq.errors import SparrowError


class Query:
    """A query of Spark's: it gives the ends of its batches one after the other, or fails with one of them."""

    def __init__(self, *ends):
        self.name = "flights"
        self.status = {"message": "Waiting for data to arrive"}
        self.lastProgress = None
        self._ends = list(ends)

    def awaitTermination(self, timeout):
        end = self._ends.pop(0) if self._ends else None
        if isinstance(end, Exception):
            raise end
        if end is not None:
            self.lastProgress = progress(end)
        return end == "stopped"


def progress(end):
    offsets = {"v": 1, "topics": {"flights": {"broker-0": {"0": end, "1": 1}}}}
    return SimpleNamespace(json=json.dumps({"sources": [{"endOffset": offsets}]}))


def followed(*queries, total=10, restarts=2):
    started = iter(queries)
    return Followed(lambda: next(started), Stage("table", total), restarts)


def test_a_query_is_followed_to_its_total():
    each = followed(Query(3, 7, 9))
    follow([each])
    assert each.is_done
    assert each.stage.done == 10


def test_both_queries_are_followed_at_once():
    one, other = followed(Query(9)), followed(Query(1, 2, 9))
    follow([one, other])
    assert one.is_done and other.is_done


def test_the_cause_of_a_failure_reaches_the_caller():
    with pytest.raises(PySparkException, match="disk is gone"):
        follow([followed(Query(3, PySparkException("disk is gone")))])


def test_a_query_that_has_done_nothing_is_started_anew():
    each = followed(Query(PySparkException("Python worker failed to connect back.")), Query(9))
    follow([each])
    assert each.is_done


def test_a_query_is_not_started_anew_for_ever():
    queries = [Query(PySparkException(f"failure {number}")) for number in range(3)]
    with pytest.raises(PySparkException, match="failure 2"):
        follow([followed(*queries)])


def test_a_query_without_data_does_not_hang():
    with pytest.raises(SparrowError, match=r"no progress since 0\.05 s: query 'flights' has read 4 of 10 messages"):
        follow([followed(Query(3))], stall_s=0.05)


def test_a_query_that_somebody_stopped_is_told():
    each = followed(Query("stopped"))
    each.query.lastProgress = None
    with pytest.raises(SparrowError, match="was stopped before it had read everything"):
        each.look()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, 0),
        (SimpleNamespace(json='{"sources": [{"endOffset": null}]}'), 0),
        (progress(41), 42),
    ],
)
def test_processed_sums_the_ends_of_all_queues(found, expected):
    query: Any = Query()
    query.lastProgress = found
    assert processed(query) == expected


def test_an_error_is_told_without_the_frames_of_java():
    text = "Job aborted:\n\tat org.apache.Spark.run(Spark.scala:1)\n\nNoRoute: no route\n\tat java.lang.Thread.run"
    assert without_java(text) == "Job aborted:\nNoRoute: no route"


def test_places_are_below_the_work_folder(tmp_path):
    places = Places("localhost:9876", "flights", "delays", tmp_path / "f", tmp_path / "s", tmp_path / "work")
    assert places.updates == tmp_path / "work" / "updates"
    assert places.checkpoint("flights") == str(tmp_path / "work" / "checkpoints" / "flights")


MISSING = """
import pathlib, sys
from examples.flights.session import SparkProcess
from examples.flights.stages import Stages
from examples.flights.tables import Places, make_tables
from sparrowmq.errors import SparrowError
from sparrowmq.testing.background import BackgroundCluster

folder = pathlib.Path(sys.argv[1])
spark, stages = SparkProcess(folder), Stages()
stages.table.total = stages.statistics.total = 10
with BackgroundCluster(folder / "store") as cluster:
    places = Places(cluster.namesrv, "nowhere", "delays", folder / "f", folder / "s", folder)
    session = spark.start()
    for _ in range(2):
        try:
            make_tables(session, places, stages)
        except SparrowError as error:
            print(error, flush=True)
        spark.kill()
"""


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_failed_query_tells_its_cause_and_so_does_a_spark_that_is_gone(tmp_path):
    command = [sys.executable, "-c", MISSING, str(tmp_path)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True).stdout
    assert "no route for topic 'nowhere'" in told
    assert "\tat " not in told
    assert "Spark's Java has ended" in told
    assert f"see {tmp_path / 'spark.log'}" in told
