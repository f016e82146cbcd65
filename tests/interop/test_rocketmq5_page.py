"""The page about clients of RocketMQ 5: its program runs with Apache's client, at `sparrowmq dev` and at `mqproxy`."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.kits import five_python

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "rocketmq5.md").read_text()
[PROGRAM] = re.findall(r"(?ms)^```python\n(.*?)^```", PAGE)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first builds the client


@contextmanager
def running(*words: str) -> Iterator[str]:
    """A command of ours; its first line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sparrowmq", *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline()
    finally:
        process.terminate()
        process.communicate(timeout=60)


def check(endpoints: str, home: Path) -> None:
    assert PROGRAM.count("127.0.0.1:8081") == 1
    program = PROGRAM.replace("127.0.0.1:8081", endpoints)
    done = subprocess.run(
        [five_python(), "-c", program], capture_output=True, text=True, timeout=120, env={"HOME": str(home)}
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("sent ") and second == 'received {"amount": 5}'


def test_program_of_the_page_runs_at_the_ports_of_broker_and_proxy(tmp_path):
    with running("dev", "--port", "0", "--grpc-port", "0", "--topic", "orders", "--json") as line:
        told = json.loads(line)
        check(told["grpc"], tmp_path)
        with running("proxy", "-n", told["namesrv"], "--port", "0") as line:
            check(line.split()[-1], tmp_path)
