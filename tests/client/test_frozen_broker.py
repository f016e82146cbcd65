"""A broker that hangs, as a real process: its connection stays, and nothing is answered. Sends go to another one."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparrowmq import Admin, ProducerSettings, connect
from tests.client.test_frozen_slave import frozen
from tests.interop.servers import OurBroker, OurNamesrv

ENOUGH_S = 12.0  # of which the broker that hangs gets three quarters


@pytest.mark.slow
async def test_sends_go_to_another_broker_if_one_does_not_answer(tmp_path: Path) -> None:
    with ExitStack() as stack:
        namesrv = stack.enter_context(OurNamesrv()).address
        brokers = {
            name: stack.enter_context(OurBroker(namesrv, tmp_path / name, {"brokerName": name}))
            for name in ("broker-a", "broker-b")
        }
        async with (
            Admin(namesrv) as admin,
            connect(namesrv, settings=ProducerSettings(timeout_s=ENOUGH_S)) as mq,
        ):
            await admin.create_topic("orders", queues=2)
            await asyncio.gather(*(mq.send("orders", b"before") for _ in range(8)))
            with frozen(brokers["broker-a"].pid):
                sent = await asyncio.gather(*(mq.send("orders", b"%d" % number) for number in range(8)))
    assert {each.queue.broker_name for each in sent} == {"broker-b"}
