"""The examples of Apache's Python client of RocketMQ 5, word for word, at `sparrowmq dev`.

Only their endpoint is replaced, and the topic of messages with a priority has this type, as at Apache's. Those of lite
topics are left out: Apache's own broker 5.4.0 has no such topics either.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.interop.kits import five_examples, five_python
from tests.interop.test_rocketmq5_page import running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first fetches the client

TOPICS: Final = ("topic", "delay-topic", "fifo-test-topic")
ENDPOINT: Final = "foobar.com:8080"
LIMIT_S: Final = 240
SENT: Final = "send message success"
# Each producer, what it prints for a message, and how often.
PRODUCERS: Final = {
    "normal_producer": (SENT, 10),
    "async_producer": (SENT, 10),
    "delay_producer": (SENT, 1),
    "fifo_producer": (SENT, 9),
    "priority_producer": (SENT, 10),
    "transaction_producer": ("do TestChecker check", 1),
}
CONSUMERS: Final = {"simple_consumer": "ack message:[", "push_consumer": "consume message, "}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    topics = [word for topic in TOPICS for word in ("--topic", topic)]
    with running("dev", "--port", "0", "--grpc-port", "0", *topics, "--json") as line:
        port = json.loads(line)
        words = ["topic", "create", "priority-topic", "--type", "PRIORITY", "-n", port["namesrv"]]
        subprocess.run([sys.executable, "-m", "sparrowmq", *words], check=True)
        yield port["grpc"]


@contextmanager
def started(name: str, endpoint: str, home: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """An example that runs, and the file with what it prints."""
    program = (five_examples() / f"{name}_example.py").read_text()
    assert program.count(ENDPOINT) == 1
    printed = home / f"{name}-{time.monotonic_ns()}.txt"
    command = [str(five_python()), "-u", "-c", program.replace(ENDPOINT, endpoint)]
    with printed.open("w") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=out, stderr=out, text=True, env={"HOME": str(home)}
        )
    try:
        yield process, printed
    finally:
        process.kill()
        process.communicate()


def send(name: str, endpoint: str, home: Path) -> None:
    """Let a producer send its messages, and press Enter when it has."""
    words, count = PRODUCERS[name]
    with started(name, endpoint, home) as (process, printed):
        end = time.monotonic() + LIMIT_S
        while printed.read_text().count(words) < count and process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        process.communicate("\n", timeout=LIMIT_S)
        text = printed.read_text()
    assert process.returncode == 0 and text.count(words) == count and "exception" not in text, text


@pytest.mark.cell("five-delay", "five-priority", columns=["five-python"])
@pytest.mark.parametrize("name", PRODUCERS)
def test_example_of_a_producer_sends_all_its_messages(endpoint, tmp_path, name):
    send(name, endpoint, tmp_path)


@pytest.mark.parametrize("name", CONSUMERS)
def test_example_of_a_consumer_receives_what_another_example_sends(endpoint, tmp_path, name):
    send("normal_producer", endpoint, tmp_path)
    with started(name, endpoint, tmp_path) as (_, printed):
        end = time.monotonic() + LIMIT_S
        while printed.read_text().count(CONSUMERS[name]) < PRODUCERS["normal_producer"][1]:
            assert time.monotonic() < end, printed.read_text()
            time.sleep(0.1)
    assert "exception" not in printed.read_text()
