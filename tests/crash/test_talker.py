"""The clients of the rigs: what they write down of what they send and read."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sparrowmq.client.client import connect
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until
from tests.crash.rounds import TOPIC
from tests.crash.talker import Talker


def bodies(file: Path, kind: str) -> list[str]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [event[1] for event in map(json.loads, lines) if event[0] == kind]


async def talk(file: Path, namesrv: str, senders: int, is_enough: Callable[[], bool]) -> None:
    talking = asyncio.ensure_future(Talker(str(file), "me", senders).talk(namesrv))
    await until(lambda: talking.done() or is_enough(), 30.0)
    talking.cancel()
    with suppress(asyncio.CancelledError):
        await talking


async def test_all_that_is_sent_heard_and_read_is_written_down(tmp_path: Path) -> None:
    file = tmp_path / "events"
    async with Cluster(tmp_path) as cluster:
        await talk(file, cluster.namesrv, 2, lambda: len(bodies(file, "read")) > 5)
    assert set(bodies(file, "read")) <= set(bodies(file, "sent"))
    assert set(bodies(file, "acked")) <= set(bodies(file, "sent"))
    assert bodies(file, "sent")[0].startswith("me-0-1 ")


async def test_who_has_no_senders_reads_on_what_others_send(tmp_path: Path) -> None:
    file = tmp_path / "events"
    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        await mq.send(TOPIC, b"theirs")
        await talk(file, cluster.namesrv, 0, lambda: bodies(file, "read") == ["theirs"])
    assert (bodies(file, "read"), bodies(file, "sent")) == (["theirs"], [])
