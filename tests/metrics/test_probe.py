"""The health check of containers, asked of real servers."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.apache import free_ports


def asked(port: int, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "sparrowmq.metrics.probe", *words, str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def listens(port: int) -> bool:
    with socket.socket() as connecting:
        return connecting.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A broker without a name server, which is healthy and not ready; and its metrics port."""
    names, ha, port, metrics = free_ports(4)
    given = {
        "listenPort": port,
        "haListenPort": ha,
        "fastListenPort": "off",
        "namesrvAddr": f"127.0.0.1:{names}",
        "storePathRootDir": tmp_path / "store",
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": metrics,
    }
    settings = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    process = subprocess.Popen(
        [sys.executable, "-m", "sparrowmq", "broker", *settings],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not listens(metrics) and time.monotonic() < deadline:
            time.sleep(0.1)
        yield process, metrics
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_server_that_cannot_work_is_healthy_and_not_ready(
    broker: tuple[subprocess.Popen[bytes], int],
) -> None:
    process, port = broker
    assert asked(port)[0] == 0
    status, said = asked(port, "--ready")
    assert status == 1 and "name server" in said
    process.send_signal(signal.SIGSTOP)
    assert asked(port) == (1, "no answer within 4 s\n")
    process.send_signal(signal.SIGCONT)


def test_without_the_port_nothing_is_known_and_no_server_is_ready() -> None:
    (port,) = free_ports(1)
    assert asked(port)[0] == 0 and asked(port, "--ready")[0] == 1
    assert "metricsExporterType=PROM" in asked(port)[1]
