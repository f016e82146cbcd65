"""sparrowmq.spark.pipelines.running.stream_runs: the streams of pipelines."""

from __future__ import annotations

import json
import os
import signal

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.running.stream_runs import Stream, with_defaults

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "9"}),
        ({"maxBytesPerTrigger": "1000"}, {"startingOffsets": "earliest", "maxBytesPerTrigger": "1000"}),
        ({"maxoffsetspertrigger": "5"}, {"startingOffsets": "earliest", "maxoffsetspertrigger": "5"}),
        ({"STARTINGOFFSETS": "latest"}, {"STARTINGOFFSETS": "latest", "maxOffsetsPerTrigger": "9"}),
    ],
)
def test_what_the_user_said_goes_before_defaults_in_any_case(given, options):
    found = with_defaults(given, 9)
    assert found == options
    parse(SourceOptions, found | {"nameServer": "x:1", "topic": "T"})


@pytest.mark.parametrize("way", [pytest.param("run", marks=pytest.mark.nightly), "run_by_batches"])
@pytest.mark.slow
def test_all_that_is_there_is_taken_in_batches_of_their_size_and_nothing_twice(topic, tmp_path, way):
    topic.send(0, 250)
    options = {**topic.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    taken: list[list[str]] = []

    def run(fails_at=None):
        report = Report()

        def take(rows, batch):
            assert batch != fails_at
            taken.append([row.body.decode() for row in rows.select("body").collect()])
            report.add_batch(batch, len(taken[-1]))
            report.batches += 1

        stream = Stream(topic.spark, options, take, str(tmp_path / "checkpoint"))
        if way == "run":
            stream.run(report, once=True, every="1 second")
        else:
            stream.run_by_batches(report)
        return report

    with pytest.raises(Exception, match="AssertionError"):
        run(fails_at=1)
    assert [len(bodies) for bodies in taken] == [100]
    report = run()
    assert [len(bodies) for bodies in taken] == [100, 100, 50]
    assert sorted(int(body) for bodies in taken for body in bodies) == list(range(250))
    assert report.read == 150
    assert sum(report.offsets[topic.name]["broker-0"].values()) == 250
    assert run().batches == 0


def test_a_pause_that_is_no_time_is_told(topic, tmp_path):
    stream = Stream(topic.spark, topic.options, lambda _rows, _batch: None, str(tmp_path / "checkpoint"))
    with pytest.raises(ConfigError, match="every='nonsense' is no time; write 10 seconds"):
        stream.run(Report(), once=False, every="nonsense")


@pytest.mark.parametrize("way", [pytest.param("run", marks=pytest.mark.nightly), "run_by_batches"])
def test_a_run_that_is_interrupted_before_it_has_all_says_so(topic, tmp_path, way):
    topic.send(0, 1000)
    options = {**topic.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    report = Report()

    def take(_rows, _batch):
        report.batches += 1
        if report.batches == 1:  # a second one would end the tests
            os.kill(os.getpid(), signal.SIGINT)

    stream = Stream(topic.spark, options, take, str(tmp_path / "checkpoint"))
    if way == "run":
        stream.run(report, once=True, every="1 second")
    else:
        stream.run_by_batches(report)
    assert report.stopped
    assert 1 <= report.batches < 100, "it was looked at in between"
    assert json.loads(report.line())["stopped"] is True
