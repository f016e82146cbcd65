"""Pops of Apache's 5.x client at our broker: it makes the handles itself."""

import asyncio
from pathlib import Path

import pytest

from sparrowmq.protocol.requests.headers import QueryConsumerOffset
from tests.broker.live import live_broker
from tests.interop.apache import java_program

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "java" / "Pops.java"


@pytest.mark.slow
async def test_a_java_client_pops_acknowledges_and_changes(tmp_path):
    async with live_broker(tmp_path) as broker:
        for number in range(4):
            await broker.send(f"{number}".encode())
        asked = (PROGRAM, broker.broker.address, "broker-0", "orders", "poppers")
        program = await asyncio.to_thread(java_program, "5.4.0", *asked)
        assert program.stdout.splitlines() == [
            "first [0:0, 1:0, 2:0, 3:0]",
            "second []",
            "ack OK",
            "ack again OK",
            "change OK",
            "old handle NO_EXIST",
            "new handle OK",
            "again [2:1, 3:1]",
            "batch OK",
        ], program.stderr[-3000:]
        committed = await broker.session.call(QueryConsumerOffset("poppers", "orders", 0))
        assert committed.header.offset == 4
