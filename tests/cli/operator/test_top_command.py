import json
import os
import pty
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

import sparrowmq.sync
from sparrowmq.cli.diagnostics import _max_rows, top
from sparrowmq.testing.background import BackgroundCluster


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("top")) as started:
        with sparrowmq.sync.connect(started.namesrv) as mq:
            mq.admin.create_topic("orders", queues=1)
        yield started


def test_a_file_gets_one_look_and_no_escape_codes(live):
    shown = CliRunner().invoke(top, ["-n", live.namesrv])
    assert shown.exit_code == 0, shown.output
    assert "\x1b" not in shown.output
    assert "1 topic, " in shown.output and "orders" in shown.output
    assert "broker-0  master" in shown.output and shown.output.count("BROKER") == 1


def test_programs_get_numbers(live):
    found = json.loads(CliRunner().invoke(top, ["-n", live.namesrv, "-o", "json"]).output)
    assert found["topics"] == [{"topic": "orders", "in_tps": 0.0, "in_a_day": 0}]
    assert found["brokers"][0]["state"] == "ok" and found["groups"] == []


def test_a_terminal_is_redrawn_until_it_is_interrupted(live):
    """The program runs at a terminal of its own."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "sparrowmq", "top", "--every", "1", "-n", live.namesrv]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave) as program:
        os.close(slave)
        drawn = b""
        while drawn.count(b"\x1b[H\x1b[2J") < 3:
            drawn += os.read(master, 65536)
        program.send_signal(signal.SIGINT)
        assert program.wait(30) == 0
    os.close(master)
    assert b"orders" in drawn and b"Traceback" not in drawn


def test_a_missing_broker_is_named_and_the_status_says_so(tmp_path):
    with BackgroundCluster(tmp_path, brokers=2) as cluster:
        cluster.run(cluster.cluster.brokers[1]._server.stop())
        shown = CliRunner().invoke(top, ["-n", cluster.namesrv, "--timeout", "2"])
    assert shown.exit_code == 1
    assert "without broker-1: " in shown.output and "does not answer" in shown.output


def test_a_low_terminal_still_shows_some(monkeypatch):
    monkeypatch.setenv("LINES", "5")
    assert _max_rows(2) == 3
    monkeypatch.setenv("LINES", "49")
    assert _max_rows(2) == 20
