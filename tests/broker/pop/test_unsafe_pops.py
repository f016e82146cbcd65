"""Orderly pops wait until slaves know what they have given. Otherwise an election gives it to another consumer, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateTopic
from sparrowmq.protocol.requests.pop_headers import Polling
from tests.broker.live import Live, live_broker, send_request
from tests.broker.pop_live import ack, change, pop, pop_all
from tests.broker.replication.slaves import ScriptedSlave, slave_at

BEHIND = "no message is given now, as that is not safe: .* not at a slave"
ORDER = {"order": True, "queue_id": 0}


class Slave:
    """A slave that has nothing, until it catches up."""

    def __init__(self, scripted: ScriptedSlave) -> None:
        self._scripted = scripted
        self._following: asyncio.Task[None] | None = None

    def catches_up(self) -> None:
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            offset, content = await self._scripted.piece()
            self._scripted.report(offset + len(content))

    def end(self) -> None:
        if self._following is not None:
            self._following.cancel()


@asynccontextmanager
async def behind(path: Path, *groups: str, **settings: Any) -> AsyncIterator[tuple[Live, Slave]]:
    """A master with a message of each message group, and its slave."""
    settings |= {"role": BrokerRole.SYNC_MASTER, "slave_timeout_ms": 300}
    async with live_broker(path, **settings) as live:
        await live.session.call(UpdateAndCreateTopic("orders", 1, 1, perm=6))
        async with slave_at(live.broker.ha_address) as scripted:
            scripted.report(0)
            await scripted.piece()
            slave = Slave(scripted)
            for number, group in enumerate(groups):
                await send(live, number, group)
            yield live, slave
            slave.end()


async def send(live: Live, number: int, group: str = "") -> None:
    """Send a message that no slave has yet."""
    request = send_request(properties={"__SHARDINGKEY": group, "WAIT": "false"})
    await live.session.call(request, str(number).encode())


async def refused(live: Live, **fields: Any) -> None:
    with pytest.raises(RemoteError, match=BEHIND) as error:
        await pop(live, **(ORDER | fields))
    assert error.value.code == ResponseCode.FLUSH_SLAVE_TIMEOUT


@pytest.mark.parametrize("read_ahead", [0, 1000])
async def test_an_orderly_pop_that_no_slave_knows_gives_nothing_and_the_next_one_gives_it(
    tmp_path: Path, read_ahead: int
) -> None:
    async with behind(tmp_path, "a", "a", "b", message_group_read_ahead=read_ahead) as (live, slave):
        await refused(live, attempt_id="A")
        await refused(live, attempt_id="A", max_msg_nums=1)
        slave.catches_up()
        found = await pop(live, **ORDER, attempt_id="B")
        assert [(each.body, each.reconsume_times) for each in found] == [(b"0", 0), (b"1", 0), (b"2", 0)]
        assert await pop(live, **ORDER, attempt_id="A") == []
        for each in found:
            await live.session.call(ack(each))
        assert await pop(live, **ORDER) == []


async def test_an_orderly_pop_that_waits_gives_nothing_before_slaves_know_it(tmp_path: Path) -> None:
    async with behind(tmp_path) as (live, slave):
        waiting = asyncio.create_task(pop(live, order=True, poll_time=20_000))
        while (await live.session.call(Polling("poppers", "orders", 0))).header.polling_num < 1:
            await asyncio.sleep(0.01)
        await send(live, 0)
        with pytest.raises(RemoteError, match=BEHIND):
            await waiting
        waiting = asyncio.create_task(pop(live, order=True, poll_time=20_000))
        await asyncio.sleep(0.02)
        slave.catches_up()
        assert [each.body for each in await waiting] == [b"0"]


async def test_a_delivery_that_was_not_safe_does_not_count(tmp_path: Path) -> None:
    async with behind(tmp_path, "a") as (live, slave):
        (first,) = await pop(live)  # not in order
        with pytest.raises(RemoteError, match="not yet safe"):
            await live.session.call(change(first, 0))
        await refused(live, poll_time=5000)
        await refused(live, poll_time=5000)
        slave.catches_up()
        (again,) = await pop(live, **ORDER, poll_time=5000)
        assert again.reconsume_times == 1


async def test_a_message_that_its_attempt_got_again_is_not_taken_from_it(tmp_path: Path) -> None:
    async with behind(tmp_path, "a") as (live, slave):
        lost = asyncio.create_task(pop(live, **ORDER, attempt_id="A"))
        await asyncio.sleep(0.3)
        again = asyncio.create_task(pop(live, **ORDER, attempt_id="A"))
        with pytest.raises(RemoteError, match=BEHIND):
            await lost
        slave.catches_up()
        (message,) = await again
        assert await pop(live, **ORDER, attempt_id="B") == []
        await live.session.call(ack(message))


async def test_a_pop_without_order_waits_for_no_slave(tmp_path: Path) -> None:
    async with behind(tmp_path, "a", "b") as (live, _):
        assert len(await pop_all(live)) == 2
