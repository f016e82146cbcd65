"""The clusters of examples/clusters, each started by its one command and used."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq import Admin, SendResult, SendStatus, connect
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.settings.settings import build, load
from tests.interop.apache import is_free

CLUSTERS = Path(__file__).parents[2] / "examples" / "clusters"
SMALL = ["mappedFileSizeCommitLog=1m", "maxHashSlotNum=5000", "maxIndexNum=20000", "fastListenPort=off"]


def start(configuration: str, folder: Path, port: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(CLUSTERS / "start.py"), configuration, str(folder), str(port), *SMALL]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_until_up(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line)
        if " is up: " in line:
            return
    raise AssertionError("".join(said))


@pytest.mark.slow
@pytest.mark.covers("S-HA-02")
@pytest.mark.parametrize(
    ("configuration", "ids"),
    [
        pytest.param("2m-noslave", {0}, marks=pytest.mark.slow),
        pytest.param("2m-2s-async", {0, 1}, marks=pytest.mark.slow),
        ("2m-2s-sync", {0, 1}),
    ],
)
async def test_a_cluster_is_started_by_one_command_and_takes_messages_on_two_masters(
    tmp_path: Path, configuration: str, ids: set[int]
) -> None:
    port = free_port()
    namesrv = f"127.0.0.1:{port}"
    with start(configuration, tmp_path, port) as process:
        try:
            await asyncio.wait_for(asyncio.to_thread(wait_until_up, process), 60)
            async with Admin(namesrv) as admin:
                brokers = {broker.name: set(broker.addresses) for broker in await admin.brokers()}
                assert brokers == {"broker-a": ids, "broker-b": ids}
                await admin.create_topic("orders", queues=2)
            await use(namesrv)
            if 1 in ids:
                await until_copied(tmp_path)
        finally:
            process.terminate()
            assert await asyncio.to_thread(process.wait, 30) == 0


async def use(namesrv: str) -> None:
    """Send until both masters take messages, as safely as they are told to."""
    sent: list[SendResult] = []
    async with connect(namesrv) as mq:
        for _ in range(200):
            sent = [await mq.send("orders", b"%d" % number) for number in range(4)]
            brokers = {each.queue.broker_name for each in sent}
            if all(each.status is SendStatus.OK for each in sent) and brokers == {"broker-a", "broker-b"}:
                return
            await asyncio.sleep(0.1)  # A slave comes a moment after its master, a topic after its broker.
    raise AssertionError(f"not as safely as the masters are told to: {sent}")


async def until_copied(folder: Path) -> None:
    """Return when each slave has its master's log."""
    for _ in range(200):
        if all(log_of(folder / f"{name}-s") == log_of(folder / name) for name in ("broker-a", "broker-b")):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("a slave lacks messages")


def log_of(store: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((store / "commitlog").glob("0*"))).rstrip(b"\0")


def free_port() -> int:
    """One with room for four brokers where start.py puts them; below those that any connection may be given."""
    for _ in range(100):
        port = random.randrange(12_000, 30_000)
        brokers = [port + 1035 + 10 * number + part for number in range(4) for part in (0, 1)]
        if all(map(is_free, [port, *brokers])):
            return port
    raise OSError("no such port")


@pytest.mark.parametrize("file", sorted(CLUSTERS.glob("*/*.properties")), ids=lambda path: path.stem)
def test_every_key_of_the_files_has_an_effect(file: Path) -> None:
    settings, report = build(BrokerSettings, load(file), file.name)
    assert not report.unknown and not report.without_effect
    assert settings.is_slave == file.stem.endswith("-s") == (settings.broker_id == 1)
    assert settings.name == file.stem.removesuffix("-s")


def test_who_names_no_cluster_is_told_which_there_are(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(CLUSTERS / "start.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert run.returncode == 1 and "2m-2s-async, 2m-2s-sync, 2m-noslave" in run.stderr
