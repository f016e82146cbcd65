"""The benchmark of RocketMQ 5's clients."""

import sys

import pytest

from bench import five
from bench.five import APACHE, Server
from bench.servers import OURS

PROGRAM = """
import sys
print("ready", flush=True)
sys.stdin.readline()
print("begin", flush=True)
print('{"rate": 2.0, "errors": ERRORS}', flush=True)
"""


@pytest.fixture
def filled(monkeypatch):
    sent = []

    async def fill(namesrv, messages):
        sent.append((namesrv, messages))

    monkeypatch.setattr(five, "fill", fill)
    seconds = iter((1.0, 1.5))
    monkeypatch.setattr(five, "cpu_s", lambda pid: next(seconds))
    return sent


def program(monkeypatch, errors):
    command = [sys.executable, "-c", PROGRAM.replace("ERRORS", str(errors))]
    monkeypatch.setattr(five, "CLIENTS", {"java": lambda: command})


def test_messages_are_sent_when_the_consumer_is_ready_and_the_servers_cpu_is_counted(monkeypatch, filled):
    program(monkeypatch, errors=0)
    found = five.measure(Server(OURS, "a:1", "b:2", 3), "java", "receive", 16, 100, 20)
    assert filled == [("b:2", 150)]
    assert found["server_us"] == 5_000


def test_calls_that_fail_end_the_benchmark_with_what_the_client_wrote(monkeypatch, filled):
    program(monkeypatch, errors=1)
    with pytest.raises(RuntimeError, match=r'failed at ours:(.|\n)*"errors": 1'):
        five.measure(Server(OURS, "a:1", "b:2", 3), "java", "send", 1, 100, 20)


def test_ratios_are_against_apaches_proxy():
    def figures(rate, server_us):
        return [{"rate": rate, "server_us": server_us, "p99_ms": 1.0, "client_us": 9.0}]

    text = five.page({("java", "send", 16): {OURS: figures(30.0, 50.0), APACHE: figures(20.0, 100.0)}})
    assert "| java | send | 16 | ours | 30 | 1.50 | 50 | 0.50 | 1 | 9 |" in text
