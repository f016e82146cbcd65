"""sparrowmq.spark.pipelines.running.runner: the loop, the ending and the report of all pipelines."""

from __future__ import annotations

import json
import os
import shutil
import signal
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from sparrowmq.errors import BadStore, BrokerUnreachable, ConfigError
from sparrowmq.spark import failures
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.running import runner as running
from sparrowmq.spark.pipelines.running.runner import Runner, parallel_tasks, with_defaults
from sparrowmq.spark.pipelines.running.session import note_signals
from sparrowmq.spark.source.partition_ranges import RowsLost
from tests.crash.not_here import skipped_without
from tests.crash.small_disk import SmallDisk

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "9", "maxBytesPerTrigger": "536870912"}),
        (
            {"maxBytesPerTrigger": "1000"},
            {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "9", "maxBytesPerTrigger": "1000"},
        ),
        (
            {"maxoffsetspertrigger": "5", "STARTINGOFFSETS": "latest"},
            {"STARTINGOFFSETS": "latest", "maxoffsetspertrigger": "5", "maxBytesPerTrigger": "536870912"},
        ),
    ],
)
def test_options_of_the_user_replace_defaults_in_any_case(given, options):
    found = with_defaults(given, 9)
    assert found == options
    parse(SourceOptions, found | {"nameServer": "x:1", "topic": "T"})


@pytest.mark.parametrize(
    ("given", "option"),
    [({}, {"parallelTasks": "2"}), ({"PARALLELTASKS": "9"}, {}), ({"maxPartitions": "3"}, {})],
)
def test_a_stream_has_as_many_tasks_as_the_session_runs_at_once(spark, given, option):
    assert parallel_tasks(spark, given) == option


class Query:
    """A query that is interrupted while the runner waits for it."""

    recentProgress = ()

    def __init__(self):
        self.is_stopped = False

    def awaitTermination(self, timeout):
        os.kill(os.getpid(), signal.SIGINT)
        return False

    def stop(self):
        self.is_stopped = True


def test_control_c_ends_a_query_in_order():
    query: Any = Query()
    runner = Runner()
    with note_signals() as is_stopped:
        assert not runner._watch(query, is_stopped)
    assert query.is_stopped
    assert (runner.report.offsets, runner.report.read) == ({}, 0)
    assert runner.report.seconds > 0


def test_prometheus_can_read_the_figures_of_a_pipeline_at_work(tmp_path, capsys):
    with Runner(metrics="127.0.0.1:0").at_work(tmp_path, "table orders"):
        address = capsys.readouterr().err.removeprefix("figures at ").strip()
        page = urlopen(address).read().decode()
    assert "sparrowmq_pipeline_read_total" in page
    assert 'query="table orders"' in page


def test_a_folder_belongs_to_one_run_at_a_time(tmp_path):
    second = Runner().at_work(tmp_path)
    with Runner().at_work(tmp_path), pytest.raises(ConfigError, match="another run is at work"):
        second.__enter__()
    with Runner().at_work(tmp_path):
        pass


def test_a_batch_is_counted_and_gets_a_line():
    lines: list[str] = []
    runner = Runner(say=lines.append)
    rows: Any = None
    runner.batch(lambda _rows, number: f"{number} rows", rows, 7)
    assert runner.report.batches == 1
    assert lines[0].startswith("batch 7: 7 rows, ")


@pytest.fixture(params=[pytest.param(True, marks=pytest.mark.nightly), False])
def limits(request, monkeypatch):
    """Run as with Spark 4.2, and as with 4.1."""
    if not request.param:
        monkeypatch.setattr(running, "HAS_LIMITS", False)


@pytest.mark.usefixtures("limits")
@pytest.mark.slow
def test_all_that_is_there_is_done_in_batches_of_their_size_and_nothing_twice(topic, tmp_path):
    topic.send(0, 250)
    options = {**topic.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    taken: list[list[str]] = []

    def run(fails_at=None):
        runner = Runner(spark=topic.spark, once=True, every="1 second", say=lambda _: None)

        def take(rows, batch):
            assert batch != fails_at
            taken.append([row.body.decode() for row in rows.select("body").collect()])
            runner.report.add_batch(batch, len(taken[-1]))
            return ""

        runner.stream(options, take, str(tmp_path / "checkpoint"))
        return runner.report

    with pytest.raises(Exception, match="AssertionError"):
        run(fails_at=1)
    assert [len(bodies) for bodies in taken] == [100]
    report = run()
    assert [len(bodies) for bodies in taken] == [100, 100, 50]
    assert sorted(int(body) for bodies in taken for body in bodies) == list(range(250))
    assert report.read == 150
    assert sum(report.offsets[topic.name]["broker-0"].values()) == 250
    assert run().batches == 0


@pytest.fixture
def run(topic, tmp_path):
    """Reads all there is; returns how many batches there were, and what is said beside them."""

    def run():
        said: list[str] = []
        runner = Runner(spark=topic.spark, once=True, say=said.append)
        given = {**topic.options, "startingOffsets": "earliest"}
        runner.stream(given, lambda rows, _: str(rows.count()), str(tmp_path / "checkpoint"), lambda _batch: True)
        return runner.report.batches, [line for line in said if not line.startswith("batch ")]

    return run


@pytest.mark.slow
def test_a_driver_that_died_while_it_wrote_its_first_plan_does_not_stop_the_next_run(topic, run, tmp_path):
    topic.send(0, 10)
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    for name in (".0.9a3f.tmp", "..0.9a3f.tmp.crc"):
        (offsets / name).write_bytes(b"v1")
    assert run() == (1, [])
    assert sorted(each.name for each in offsets.iterdir()) == [".0.crc", "0"]


@pytest.mark.slow
def test_files_of_spark_that_a_power_cut_has_emptied_do_not_stop_the_next_run(topic, run, tmp_path):
    topic.send(0, 10)
    assert run() == (1, [])
    topic.send(10, 10)
    assert run() == (1, [])
    (tmp_path / "checkpoint" / "commits" / "1").write_bytes(b"")
    (tmp_path / "checkpoint" / "metadata").write_bytes(b"")
    batches, said = run()
    assert (batches, len(said)) == (1, 2)
    assert run() == (0, [])
    (tmp_path / "checkpoint" / "offsets" / "1").write_bytes(b"")
    batches, said = run()
    assert (batches, len(said)) == (1, 1)
    assert run() == (0, [])


@pytest.mark.slow
def test_a_batch_begins_when_its_plan_is_on_the_disk(topic, tmp_path, monkeypatch):
    topic.send(0, 10)
    seen: list[int] = []
    monkeypatch.setattr(running, "sync_plan", lambda _checkpoint, batch: seen.append(batch))
    runner = Runner(spark=topic.spark, once=True, say=lambda _: None)
    given = {**topic.options, "startingOffsets": "earliest"}
    runner.stream(given, lambda _rows, batch: str(seen == [batch] or 1 / 0), str(tmp_path / "checkpoint"))
    assert (runner.report.batches, runner.report.restarts) == (1, 0)


@pytest.mark.parametrize("every", ["nonsense", "-1s", ""])
@pytest.mark.parametrize("once", [False, True])
def test_a_pause_that_is_no_time_is_refused(topic, tmp_path, once, every):
    runner = Runner(spark=topic.spark, once=once, every=every)
    with pytest.raises(ConfigError, match=f"every='{every}' is no time; write 10 seconds"):
        runner.stream(topic.options, lambda _rows, _batch: "", str(tmp_path / "checkpoint"))


@pytest.mark.slow
@pytest.mark.usefixtures("limits")
def test_a_run_that_is_interrupted_before_its_end_says_so(topic, tmp_path):
    topic.send(0, 1000)
    options = {**topic.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    runner = Runner(spark=topic.spark, once=True, say=lambda _: None)

    def take(_rows, _batch):
        if runner.report.batches == 0:  # a second one would end the tests
            os.kill(os.getpid(), signal.SIGINT)
        return ""

    runner.stream(options, take, str(tmp_path / "checkpoint"))
    assert runner.report.stopped
    assert 1 <= runner.report.batches < 100, "it was looked at in between"
    assert json.loads(runner.report.line())["stopped"] is True


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, 200], ids=["in its last batch", "before the next"])
def test_a_stream_whose_checkpoint_was_removed_does_not_begin_again(topic, tmp_path, count):
    topic.send(0, count)
    runner, seen = Runner(spark=topic.spark, once=True, say=lambda _: None), []

    def step(_rows, batch):
        seen.append(batch)
        shutil.rmtree(tmp_path / "state" / "checkpoint")
        return ""

    options = {**topic.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    with pytest.raises(BadStore, match=r"it is not known where the stream is; restore .*/state from a backup"):
        runner.stream(options, step, str(tmp_path / "state" / "checkpoint"))
    assert seen == [0]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["in its batch", "before it is tried again"])
def test_a_run_that_fails_and_whose_checkpoint_is_removed_does_not_begin_again(topic, tmp_path, when):
    topic.send(0, 100)
    options, state = {**topic.options, "startingOffsets": "earliest"}, tmp_path / "state"
    Runner(spark=topic.spark, once=True).stream(options, lambda *_: "", str(state / "checkpoint"))
    topic.send(100, 200)
    seen = []

    def say(line):
        if when == "before it is tried again" and line.startswith("the stream failed"):
            shutil.rmtree(state)

    runner = Runner(spark=topic.spark, once=True, say=say)

    def step(_rows, batch):
        seen.append(batch)
        if when == "in its batch":
            shutil.rmtree(state)
        raise ConnectionError("the broker is away")

    with pytest.raises(BadStore, match="it is not known where the stream is"):
        runner.stream(options, step, str(state / "checkpoint"))
    assert seen == [1]


class Failing:
    """A step that raises these errors one after the other, and then takes batches."""

    def __init__(self, runner, *errors):
        self.runner = runner
        self.errors = list(errors)
        self.bodies: list[int] = []

    def __call__(self, rows, batch):
        bodies = [int(row.body.decode()) for row in rows.select("body").collect()]
        self.runner.report.add_batch(batch, len(bodies))
        if self.runner.report.batches == 1 and self.errors:
            raise self.errors.pop(0)
        self.bodies += bodies
        return ""


@pytest.mark.slow
def test_a_stream_goes_on_from_its_checkpoint_after_a_failure_that_passes(topic, tmp_path):
    topic.send(0, 250)
    lines: list[str] = []
    runner = Runner(spark=topic.spark, once=True, say=lines.append)
    step = Failing(runner, ConnectionResetError("the disk was away"), BrokerUnreachable("b", "it is restarted"))
    options = {**topic.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    runner.stream(options, step, str(tmp_path / "checkpoint"))
    assert sorted(step.bodies) == list(range(250))
    assert (runner.report.read, runner.report.stopped) == (250, False)
    failed = "\n".join(line for line in lines if "failed" in line)
    # A machine that is too busy for Spark may add failures of its own.
    assert json.loads(runner.report.line())["restarts"] == runner.report.restarts == len(failed.splitlines()) >= 2
    assert "s: ConnectionResetError: the disk was away" in failed
    assert "it is restarted" in failed


@pytest.mark.slow
@pytest.mark.parametrize("error", [ConfigError("it is wrong"), RowsLost("3 rows are gone"), TypeError("a bug")])
def test_a_stream_that_would_fail_again_ends_at_once(topic, tmp_path, error):
    topic.send(0, 200)
    runner = Runner(spark=topic.spark, once=True, say=lambda _: None)
    step = Failing(runner, error)
    options = {**topic.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    with pytest.raises(PySparkException, match=str(error)):
        runner.stream(options, step, str(tmp_path / "checkpoint"))
    assert (runner.report.batches, runner.report.restarts) == (1, 0)


@pytest.mark.slow
def test_a_run_with_an_end_ends_where_no_batch_can_be_noted_as_done(topic, tmp_path, monkeypatch):
    monkeypatch.setattr(failures, "FIRST_PAUSE_S", 0.0)
    topic.send(0, 100)
    seen: list[int] = []
    with skipped_without("a small disk"):
        disk = SmallDisk(tmp_path, 1 << 20)
    with disk:
        runner = Runner(spark=topic.spark, once=True, say=lambda _: None)

        def step(_rows, batch):
            disk.fill()
            seen.append(batch)
            return str(len(seen) < 9 or 1 / 0)  # a run that goes on for ever would hold up the tests

        options = {**topic.options, "startingOffsets": "earliest"}
        with pytest.raises(PySparkException, match="No space left on device"):
            runner.stream(options, step, str(disk.folder / "checkpoint"))
    assert seen == [0] * 6


@pytest.mark.slow
def test_a_signal_ends_the_pause_before_the_next_start(topic, tmp_path):
    topic.send(0, 200)
    runner = Runner(spark=topic.spark, every="1 second")
    runner.say = lambda line: os.kill(os.getpid(), signal.SIGINT) if "failed" in line else None
    options = {**topic.options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    runner.stream(options, Failing(runner, ConnectionResetError("away")), str(tmp_path / "checkpoint"))
    assert (runner.report.batches, runner.report.restarts) == (1, 1)
    assert not runner.report.stopped, "a stream without an end has ended in order"
