"""The start of a member's broker, and what it does on a full disk. Its repair: replication/test_peer_repair.py."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.broker.failover.group_state import RECOVERING, OwnEpoch
from sparrowmq.broker.failover.term import Term
from sparrowmq.broker.member import RETRY_S, Member, MemberStart
from sparrowmq.errors import ConfigError, DiskFull, SparrowError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.tasks import Background
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.requests.admin_headers import GetBrokerRuntime
from sparrowmq.protocol.requests.bodies import KVTable
from tests.broker.members import LEASE_S, OK, Members
from tests.crash.not_here import skipped_without
from tests.crash.small_disk import SmallDisk
from tests.interop.etcd import needs_etcd


def leave_open(settings: BrokerSettings) -> None:
    """As a killed process leaves its store."""
    Path(settings.store(1).layout.abort).touch()


async def no_peers() -> list[str]:
    return []


spawn = Background().spawn  # for members without metrics, which start no task


async def test_a_store_that_was_closed_in_order_is_in_no_doubt_and_another_one_is_while_it_recovers(
    tmp_path: Path,
) -> None:
    settings = BrokerSettings(port=0, ha_port=0, fast_port=0, store_path=tmp_path, broker_id=2, role=BrokerRole.SLAVE)
    own = OwnEpoch.load(settings.config_path)
    start = MemberStart(own, SystemClock(), None, no_peers, spawn)
    await start.begin(settings, Term(2, 0))
    assert start.broker is not None and start.broker.store.end == 0 and own.doubt == ""
    await start.end()
    leave_open(settings)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(ConfigError):
            await start.begin(replace(settings, port=taken.getsockname()[1]), Term(2, 0))
        assert OwnEpoch.load(settings.config_path).doubt == RECOVERING


async def test_name_servers_know_a_member_between_its_brokers_but_not_once_it_ends_or_cannot_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sparrowmq.namesrv")
    kept = NamesrvSettings(port=0, kv_path=tmp_path / "kv.json")
    async with Namesrv(kept, SystemClock()) as namesrv:
        settings = BrokerSettings(
            port=0,
            ha_port=0,
            fast_port=0,
            store_path=tmp_path / "store",
            broker_id=2,
            role=BrokerRole.SLAVE,
            namesrv=(namesrv.address,),
        )
        start = MemberStart(OwnEpoch.load(settings.config_path), SystemClock(), None, no_peers, spawn)
        await start.begin(settings, Term(2, 0))
        assert start.broker is not None
        settings = replace(settings, port=split_address(start.broker.address)[1])
        for _ in range(3):
            await start.begin(settings, Term(2, 0))
        assert "is gone" not in caplog.text
        await start.end()
        assert "is gone: it said goodbye" in caplog.text
        caplog.clear()
        await start.begin(settings, Term(2, 0))
        with pytest.raises(ConfigError):
            await start.begin(replace(settings, port=split_address(namesrv.address)[1]), Term(2, 0))
        async with asyncio.timeout(10):
            while "is gone: its connection ended" not in caplog.text:
                await asyncio.sleep(0.01)


async def test_a_reason_why_a_member_cannot_start_again_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = BrokerSettings(
            port=port, ha_port=1, store_path=tmp_path, broker_id=2, failover=True, etcd=("127.0.0.1:1",)
        )
        member = Member(settings)
        member._has_served = True
        for _ in range(3):
            await member._become_slave(Term(2, 0))
    assert caplog.text.count("this member cannot start, trying again") == 1


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallDisk]:
    with skipped_without("a file system in memory"):
        disk = SmallDisk(tmp_path, 64 << 20)
        disk.__enter__()
    yield disk
    disk.__exit__()


async def test_room_that_comes_while_the_broker_still_starts_is_noticed(small: SmallDisk) -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        small.free()  # the store is open by now, and the broker registers
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as name_server:
        address = f"127.0.0.1:{name_server.sockets[0].getsockname()[1]}"
        settings = BrokerSettings(
            port=0, ha_port=0, fast_port=0, store_path=small.folder, broker_id=2, role=BrokerRole.SLAVE
        )
        start = MemberStart(OwnEpoch.load(settings.config_path), SystemClock(), None, no_peers, spawn)
        await start.begin(settings, Term(2, 0))
        await start.end()
        leave_open(settings)
        small.fill()
        await start.begin(replace(settings, namesrv=(address,)), Term(2, 0))
        assert start.disk_full_reason and start.has_space()
        await start.end()


async def on_full_disk(members: Members, small: SmallDisk) -> list[bytes]:
    """All three have some messages and are in sync, but none runs; the disk of 2 is full."""
    members.change(2, store_path=small.folder / "store")
    texts = [b"%d" % number for number in range(20)]
    await members.all_in_sync()
    for text in texts:
        assert await members.send(1, text) == OK
    await members.same(1, 2, 3)
    await members.power_cut(1, 2, 3)
    small.fill()
    return texts


@pytest.mark.slow
@needs_etcd
async def test_a_member_with_a_full_disk_serves_reads_is_not_elected_and_joins_once_there_is_room(
    small: SmallDisk, members: Members
) -> None:
    texts = await on_full_disk(members, small)
    second = await members.start(2)
    assert second.broker is not None and "the disk was full at the start" in second.broker.unready()
    await members.shows(2, "the disk was full at the start")
    await asyncio.sleep(4 * LEASE_S)
    assert (await members.state()).epoch == 1, "it was elected"
    await members.start(3)
    assert await members.leader() == 3
    async with asyncio.timeout(20):
        while second._followed_leader is None or second._followed_leader.epoch != 2:
            await asyncio.sleep(0.05)
    assert [body for body in await members.bodies(2) if body != b"?"] == texts
    told = KVTable.decode((await members.order(2, GetBrokerRuntime())).body).table
    assert "the disk was full at the start" in told["condition.disk_full"]
    assert "condition.no_master" not in told, "its remedy is about etcd and other members"
    small.free()
    await members.in_sync(2, 3)
    assert await members.send(3, b"after") == OK
    await members.same(2, 3)
    assert await members.problem(2) == ""


@pytest.mark.slow
@needs_etcd
async def test_a_member_that_cannot_start_though_there_is_room_pauses_between_its_attempts(
    members: Members, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await members.two_in_sync()
    caplog.set_level("INFO", "sparrowmq.broker.member")
    caplog.clear()
    second, tries = members.member(2), list[float]()

    async def fail(*_: object) -> Broker:
        tries.append(second._clock.monotonic())
        raise DiskFull("no room again")

    monkeypatch.setattr(second._member_start, "_start_broker", fail)
    monkeypatch.setattr(second._member_start, "has_space", lambda: True)
    async with asyncio.timeout(30):
        while len(tries) < 4:
            await asyncio.sleep(0.05)
    assert all(after - before >= RETRY_S for before, after in pairwise(tries))
    assert caplog.text.count("following the master at") == 1


async def test_a_member_that_cannot_start_the_first_time_ends_and_says_why(members: Members) -> None:
    await members.start(1)
    await members.leader()
    port = members.settings(2).port
    with socket.create_server(("127.0.0.1", port)), pytest.raises(SparrowError, match=str(port)):
        await asyncio.wait_for(members.start(2), 20)
    await members.start(2)
    await members.in_sync(1, 2)
