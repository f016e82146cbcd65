"""sparrowmq.spark.commands.shared: the last line of a command and its exit status, whatever became of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import click
import psutil
import pytest

pytest.importorskip("pyspark")

from click.testing import CliRunner

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError
from sparrowmq.spark.commands import shared
from sparrowmq.spark.commands.shared import Outcome
from sparrowmq.spark.pipelines.running.report import Report
from tests.spark.pipelines.killing import START_LIMIT_S, environment

LIMIT_S = 60


def ended(work):
    """The exit status and the line of a command that has read 20 messages before it does this work."""

    @click.command()
    @shared.prints_report
    def command():
        report = Report()
        report.add_read(20)
        return work(report)

    found = CliRunner().invoke(command)
    return found.exit_code, json.loads(found.stdout.splitlines()[-1]), found


def interrupt(_report):
    raise KeyboardInterrupt


def terminate(_report):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LIMIT_S)


def fail_behind(report):
    """As what has to ask Spark when it was interrupted."""
    from py4j.protocol import Py4JNetworkError

    try:
        interrupt(report)
    finally:
        raise Py4JNetworkError("the bridge is broken")


def heed(report):
    """As a stream that is stopped in order, before it has all that was there or without an end of its own."""

    def run(has_end):
        try:
            terminate(report)
        except KeyboardInterrupt:
            report.stopped = has_end
        return report

    return run


@pytest.mark.parametrize(
    ("work", "status", "stopped"),
    [
        (interrupt, 130, True),
        (fail_behind, 130, True),
        (terminate, 143, True),
        (lambda report: heed(report)(True), 143, True),
        (lambda report: heed(report)(False), 0, None),
        (lambda report: report, 0, None),
        (lambda report: Outcome(report, 1), 1, None),
        (lambda report: replace(report, away=["b"]), 3, None),
    ],
)
def test_a_signal_is_seen_by_the_status_and_the_line_unless_there_was_no_end(work, status, stopped):
    before = signal.getsignal(signal.SIGTERM)
    code, line, _ = ended(work)
    assert (code, line["read"], line.get("stopped"), "error" in line) == (status, 20, stopped, False)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_failure_has_its_line_too_with_what_was_done_before():
    def fail(_report):
        raise ConfigError("it is wrong")

    code, line, found = ended(fail)
    assert (code, line["read"], line["error"]) == (1, 20, "it is wrong")
    assert found.stderr == "sparrowmq pipeline: it is wrong\n"


def test_what_spark_alone_knows_is_told_in_the_line_and_then_whole():
    from py4j.protocol import Py4JNetworkError

    def fail(_report):
        raise Py4JNetworkError("the JVM is gone\n\tat org.apache")

    code, line, found = ended(fail)
    assert (code, line["error"]) == (1, "the JVM is gone")
    assert isinstance(found.exception, Py4JNetworkError)


def test_a_report_of_an_earlier_command_is_not_taken_for_this_ones():
    Report(read=7)

    @click.command()
    @shared.prints_report
    def command():
        raise ConfigError("it is wrong")

    assert json.loads(CliRunner().invoke(command).stdout)["read"] == 0


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("number", "args", "reaches", "status", "stopped"),
    [
        pytest.param(signal.SIGINT, ["--once"], "python", 130, True, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, ["--once"], "python", 143, True, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, [], "python", 0, None, marks=pytest.mark.nightly),
        pytest.param(signal.SIGINT, [], "python", 0, None, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, ["--once"], "all", 143, True, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, [], "all", 0, None, marks=pytest.mark.slow),
    ],
)
def test_a_stream_that_is_stopped_ends_with_a_line_and_without_a_stack(
    namesrv, tmp_path, number, args, reaches, status, stopped
):
    """systemd sends its signal to all processes, and Java, which has no handler, ends first."""
    topic = f"orders-{len(args)}-{number}-{reaches}"
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic(topic, queues=1)
        for _ in range(300):
            mq.send(topic, b"{}")
    command = [sys.executable, "-m", "sparrowmq", "pipeline", "table", topic, "-n", namesrv]
    command += ["--to", str(tmp_path / "table"), "-o", "maxOffsetsPerTrigger=10", *args]
    told = tmp_path / "told"
    with (
        open(told, "w") as stderr,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment(tmp_path),
            start_new_session=reaches == "all",
        ) as driver,
    ):
        deadline = time.monotonic() + START_LIMIT_S
        while "batch 1:" not in told.read_text():
            assert driver.poll() is None and time.monotonic() < deadline, told.read_text()
            time.sleep(0.02)
        if reaches == "all":
            os.killpg(driver.pid, number)
        else:
            driver.send_signal(number)
        out, _ = driver.communicate(timeout=LIMIT_S)
    line = json.loads(out.splitlines()[-1])
    assert (driver.returncode, line.get("stopped")) == (status, stopped), told.read_text()
    assert 20 <= line["read"] < 300
    assert "while sending command" not in told.read_text()  # the stack of the bridge to Java


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_killed_java_is_named_with_what_to_do(tmp_path):
    query = "select sum(id % 7) from range(10000000000000)"
    command = [sys.executable, "-m", "sparrowmq", "pipeline", "sql", query, "-n", "127.0.0.1:1"]
    command += ["--to", str(tmp_path / "t")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment(tmp_path)) as run:
        deadline = time.monotonic() + START_LIMIT_S
        while not (tmp_path / ".t.begun" / "lock").exists():
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        [java] = [each for each in psutil.Process(run.pid).children(recursive=True) if each.name() == "java"]
        java.kill()
        out, err = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "the Java process of Spark has ended (by the signal 9)" in json.loads(out.splitlines()[-1])["error"]
    assert "run the command again" in err.splitlines()[-1] and "Traceback" not in err


def test_a_peer_that_refuses_is_no_end_of_java():
    def work(_report):
        raise ConnectionRefusedError(111, "Connection refused")

    assert "Java" not in ended(work)[2].stderr
