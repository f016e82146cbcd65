"""A slave that hangs, as a real process: its connection stays, and it confirms nothing. No send may fail for that."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sparrowmq import ProducerSettings, SendStatus, connect
from tests.broker.replication.test_kills import Processes
from tests.interop.servers import OurNamesrv

STAYS = {"haHousekeepingInterval": 20_000}  # the default: the master notices a silent slave after this time


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [ProducerSettings(), ProducerSettings(idempotent=True)])
async def test_no_send_fails_while_the_slave_of_a_synchronous_master_hangs(
    tmp_path: Path, settings: ProducerSettings
) -> None:
    with ExitStack() as stack:
        namesrv = stack.enter_context(OurNamesrv()).address
        processes = Processes(tmp_path, namesrv, stack, **STAYS)
        processes.master()
        slave = processes.slave()
        async with connect(namesrv, settings=settings) as mq:
            async with asyncio.timeout(60):
                while (await mq.send("orders", b"before")).status is not SendStatus.OK:
                    await asyncio.sleep(0.1)
            with frozen(slave.pid):
                first = await asyncio.gather(*(mq.send("orders", b"%d" % number) for number in range(40)))
                second = await mq.send("orders", b"later")
            assert {each.status for each in [*first, second]} == {SendStatus.FLUSH_SLAVE_TIMEOUT}
            async with asyncio.timeout(60):
                while (await mq.send("orders", b"after")).status is not SendStatus.OK:
                    await asyncio.sleep(0.1)
