"""A member that was told that it holds a queue keeps it over a kill of its broker, and over an election."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker import journal
from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.broker.queue_locks import Holders
from sparrowmq.errors import DiskFull, RemoteError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateTopic
from sparrowmq.protocol.requests.client_bodies import LockedQueues, LockQueues
from sparrowmq.protocol.requests.headers import LockBatchMq, UnlockBatchMq
from sparrowmq.remoting.session import Session
from sparrowmq.store.message_store import MessageStore
from tests.broker.live import Live, live_broker
from tests.broker.members import Members
from tests.broker.replication.slaves import slave_at
from tests.broker.state.test_journal import after_kill
from tests.interop.etcd import needs_etcd

QUEUES = [MessageQueue("made", "broker-a", queue_id) for queue_id in range(3)]


async def make(session: Session) -> None:
    await session.call(UpdateAndCreateTopic("made", 3, 3, perm=6))


async def lock(session: Session, client_id: str, count: int = 3) -> int:
    """How many queues the client holds then."""
    body = LockQueues("g", client_id, QUEUES[:count]).encode()
    return len(LockedQueues.decode((await session.call(LockBatchMq(), body)).body).locked)


async def unlock(session: Session, client_id: str, count: int = 3) -> None:
    await session.call(UnlockBatchMq(), LockQueues("g", client_id, QUEUES[:count]).encode())


async def holders_after_kill(live: Live, tmp_path: Path) -> Holders:
    return (await after_kill(live, tmp_path)).locks


async def test_holders_are_in_the_log_when_they_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "PERIOD_S", 60)
    async with live_broker(tmp_path / "live") as live:
        await make(live.session)
        assert await lock(live.session, "one") == 3
        assert await holders_after_kill(live, tmp_path) == {("g", "made", number): "one" for number in range(3)}
        await unlock(live.session, "one", 2)
        await live.send(topic="made")  # what is freed waits for nothing, but is in the log before this
        assert await holders_after_kill(live, tmp_path) == {("g", "made", 2): "one"}


async def test_a_snapshot_has_the_holders(tmp_path: Path) -> None:
    async with live_broker(tmp_path / "live") as live:
        await make(live.session)
        await lock(live.session, "one")
        assert live.broker.journal is not None and live.broker.journal.write_snapshot()
        assert len(await holders_after_kill(live, tmp_path)) == 3


async def test_a_restart_keeps_queues_for_their_holder(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await make(live.session)
        await lock(live.session, "one", 2)
    async with live_broker(tmp_path) as live:
        assert await lock(live.session, "two") == 1
        assert await lock(live.session, "one") == 2


async def test_a_lock_that_no_slave_has_is_not_told_and_neither_is_its_renewal(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"role": BrokerRole.SYNC_MASTER, "slave_timeout_ms": 100}
    async with live_broker(tmp_path, **settings) as live:
        await make(live.session)
        async with slave_at(live.broker.ha_address) as slave:
            slave.report(0)
            await slave.piece()
            for _ in range(2):
                with pytest.raises(RemoteError, match="the queues are locked and in effect here, but not yet safe"):
                    await lock(live.session, "one")


async def test_a_lock_that_the_log_of_a_group_lacks_is_told_once_a_snapshot_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: MessageStore, *entries: object) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr(journal, "PERIOD_S", 0.05)
    async with live_broker(tmp_path, role=BrokerRole.SYNC_MASTER) as live:
        await make(live.session)
        await lock(live.session, "one", 1)
        with monkeypatch.context() as patch:
            patch.setattr(MessageStore, "append", full)
            for _ in range(2):
                with pytest.raises(RemoteError, match="no room"):
                    await lock(live.session, "one")
        async with asyncio.timeout(10):
            while live.broker.journal is not None and live.broker.journal.is_behind:
                await asyncio.sleep(0.02)
        assert await lock(live.session, "one") == 3


async def test_a_single_broker_with_a_full_disk_locks_queues_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: MessageStore, *entries: object) -> None:
        raise DiskFull("no room")

    async with live_broker(tmp_path) as live:
        await make(live.session)
        monkeypatch.setattr(MessageStore, "append", full)
        assert await lock(live.session, "one") == 3
        monkeypatch.undo()


@needs_etcd
async def test_the_next_master_knows_the_holders_and_none_of_its_own_former_ones(members: Members) -> None:
    await members.two_in_sync()
    first = await members.pool.session(f"127.0.0.1:{members.settings(1).port}")
    await make(first)
    await lock(first, "one", 2)
    await members.power_cut(1)
    assert await members.leader(2) == 2
    second = await members.pool.session(f"127.0.0.1:{members.settings(2).port}")
    assert await lock(second, "two") == 1
    await unlock(second, "one")
    assert await lock(second, "two") == 3
    await members.start(1)
    await members.in_sync(1, 2)
    await members.power_cut(2)
    assert await members.leader(1) == 1
    first = await members.pool.session(f"127.0.0.1:{members.settings(1).port}")
    assert await lock(first, "two") == 3, "member 1 once gave two of them to client one"
