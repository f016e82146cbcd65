"""The benchmark beside other brokers' Python clients, from its command line to its text."""

import os
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest

from bench import peers
from bench.clients import ours
from bench.clients.task import BATCHES, BODY, IN_TURN, ONE_BY_ONE, PIPELINED, Count, Task
from bench.page_cache import PageCache
from bench.peers import Contender, Running, Server, _start, measure
from sparrowmq import SendStatus
from tests.interop.kits import PEERS_LOCK, PeerMissing

ROOT = Path(__file__).parents[2]


@contextmanager
def no_server():
    raise PeerMissing("no redis-server on PATH; install it")
    yield


def contender(module="ours", serve=no_server, ways=(PIPELINED, IN_TURN)):
    return Contender("redis-py", module, lambda: Path(sys.executable), serve, "nowhere", ways)


def test_a_peer_that_the_machine_does_not_have_is_left_out_with_the_reason(monkeypatch, capsys):
    monkeypatch.setattr(peers, "CONTENDERS", (contender(),))
    with ExitStack() as stack:
        running, missing = _start(["redis-py"], stack)
    assert not running and missing == ["redis-py is left out: no redis-server on PATH; install it."]
    assert missing[0] in capsys.readouterr().err


def test_rounds_alternate_between_clients_and_the_first_does_not_count(monkeypatch):
    runs = []

    def run(each, way, messages):
        runs.append((way, each.contender.module))
        return {"rate": float(len(runs)), "cpu_us": 1.0, "server_us": 1.0}

    monkeypatch.setattr(Running, "run", run)
    both = [
        Running(contender(module, ways=ways), Server("", 0), 0.0)
        for module, ways in (("a", (PIPELINED, BATCHES)), ("b", (PIPELINED,)))
    ]
    figures = measure(both, 10, rounds=1, cache=PageCache(0), warm_ups=1)
    assert runs == [(PIPELINED, "a"), (PIPELINED, "b"), (BATCHES, "a")] * 2
    assert [found["rate"] for found in figures[PIPELINED]["redis-py"]] == [4.0, 5.0]


def test_a_client_that_fails_ends_the_benchmark_with_what_it_wrote():
    running = Running(contender("absent"), Server("127.0.0.1:1", 1), 0.0)
    with pytest.raises(RuntimeError, match=r"(?s)redis-py, send pipelined, ended with 1:.*bench\.clients\.absent"):
        running.run(PIPELINED, 10)


def test_a_client_that_is_not_known_is_refused_with_those_that_are(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["peers", "--peers", "ours,pika"])
    with pytest.raises(SystemExit, match="2"):
        peers.main()
    assert "no client pika; there are ours, confluent-kafka, aiokafka, nats-py" in capsys.readouterr().err


def test_a_consumer_is_measured_from_a_fifth_on_and_refuses_other_bodies():
    count = Count(Task("", "T", 10, server=1))
    assert not count.take([BODY])
    assert not count.take([BODY] * 3)
    assert count.take([BODY] * 6)
    assert count.figures()["rate"] > 0
    with pytest.raises(ValueError, match=r"b'other', which is not what was sent"):
        count.take([b"other"])


def test_our_client_goes_each_way_and_every_message_is_acknowledged(rocketmq_server, rocketmq_topic):
    for way, run in ours.WAYS.items():
        figures = run(Task(rocketmq_server.namesrv, rocketmq_topic, 300, server=os.getpid()))
        assert figures["rate"] > 0 and figures["cpu_us"] > 0 and figures["peak_mib"] > 0, way
        assert ("p99_us" in figures) == (way == IN_TURN)


def test_a_message_that_is_less_safe_than_promised_ends_the_run():
    with pytest.raises(RuntimeError, match="FLUSH_DISK_TIMEOUT only"):
        ours._must_be_stored(Mock(status=SendStatus.FLUSH_DISK_TIMEOUT))


def test_the_peers_are_locked_by_hash_and_are_no_dependency_of_ours():
    lock = PEERS_LOCK.read_text()
    names = re.findall(r"(?m)^([\w.-]+)==", lock)
    assert {"aiokafka", "confluent-kafka", "hiredis", "nats-py", "redis"} <= set(names)
    assert len(re.findall(r"(?m)^\S+==.*\\\n    --hash=sha256:", lock)) == len(names)
    assert "://" not in lock
    declared = (ROOT / "pyproject.toml").read_text()
    assert not re.search(r'"(aiokafka|confluent-kafka|nats-py)\b[^."]*"', declared)


@pytest.mark.nightly
def test_a_quick_run_shows_a_row_for_each_way():
    run = subprocess.run(
        [sys.executable, "-m", "bench", "peers", "--quick", "--peers", "ours"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert run.returncode == 0, run.stderr
    rows = re.findall(r"(?m)^\| ([^|]+) \| ours \| [\d,]+ \| 1\.00 ", run.stdout)
    assert rows == [PIPELINED, IN_TURN, ONE_BY_ONE, BATCHES]
