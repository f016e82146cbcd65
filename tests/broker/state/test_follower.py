"""A slave has each answered change of topics, groups and offsets in its log, and knows it at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.replication import state_mirror
from sparrowmq.broker.topics import Topics
from sparrowmq.errors import DiskFull, RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.admin_headers import (
    DeleteTopic,
    GetAllTopicConfig,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndCreateTopic,
)
from sparrowmq.protocol.requests.bodies import GroupConfig, TopicConfig, TopicConfigTable
from sparrowmq.protocol.requests.headers import GetMaxOffset, QueryConsumerOffset, UpdateConsumerOffset
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.retention import Cleaning
from tests.broker.replication.pairs import Pair, pair
from tests.broker.state.dead import killed
from tests.broker.state.kept import Kept, kept


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Pair]:
    """A synchronous master and its slave, which has reported once."""
    async with pair(tmp_path, role=BrokerRole.SYNC_MASTER) as both:
        await both.start("master")
        await both.start("slave")
        await until_sent(both)
        yield both


async def until_sent(both: Pair) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                return await both.send(b"first", "probe")
            except RemoteError:
                await asyncio.sleep(0.05)


def slave_after_kill(both: Pair, tmp_path: Path) -> Kept:
    """What the slave knows if both are killed now, and it becomes the master; without its files in `config`."""
    path = killed(both.slave_settings.store_path, tmp_path / "killed")
    for file in (path / "config").glob("*.json*"):
        file.unlink()
    return kept(replace(both.slave_settings, store_path=path), trusts_files=False)


async def test_a_widened_topic_hides_no_message_at_the_next_master(both: Pair, tmp_path: Path) -> None:
    master = await both.session("master")
    await master.call(UpdateAndCreateTopic("orders", 3, 3, 6))
    await master.call(UpdateAndCreateTopic("orders", 9, 9, 6))
    for number in range(100):
        await both.send(b"%d" % number, "orders", queue_id=8)
    assert slave_after_kill(both, tmp_path).width("orders") == 9
    await both.stop("slave")
    await both.stop("master")
    both.master_settings = replace(both.master_settings, store_path=both.slave_settings.store_path)
    await both.start("master")
    assert await both.bodies("master", "orders", queue_id=8, offset=98) == [b"98", b"99"]


async def test_all_that_was_answered_is_known_at_the_slave(both: Pair, tmp_path: Path) -> None:
    master = await both.session("master")
    await master.call(UpdateAndCreateTopic("orders", 3, 3, 6))
    await master.call(UpdateAndCreateTopic("gone", 3, 3, 6))
    await both.send(b"x", "gone")
    await master.call(DeleteTopic("gone"))
    group = GroupConfig("workers", retry_max_times=7)
    await master.call(UpdateAndCreateSubscriptionGroup(), group.encode())
    await master.call(UpdateConsumerOffset("workers", "orders", 2, 7))
    found = slave_after_kill(both, tmp_path)
    assert found.width("orders") == 3 and "gone" not in found.topics and "gone" not in found.queues
    assert found.groups["workers"] == group and found.offsets["workers"] == {"orders": {2: 7}}
    await knows(both, lambda table: "orders" in table and "gone" not in table)
    query = QueryConsumerOffset("workers", "orders", 2)
    assert (await (await both.session("slave")).call(query)).header.offset == 7


async def test_a_slave_deletes_the_queues_of_a_topic_whose_deletion_a_full_log_could_not_take(
    both: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(store: MessageStore, *entries: object) -> None:
        raise DiskFull("no room")

    master = await both.session("master")
    await master.call(UpdateAndCreateTopic("gone", 3, 3, 6))
    await both.send(b"x", "gone")
    monkeypatch.setattr(MessageStore, "append", full)
    with pytest.raises(RemoteError, match="no room"):
        await master.call(DeleteTopic("gone"))
    monkeypatch.undo()
    await master.call(UpdateAndCreateTopic("orders", 3, 3, 6))
    found = slave_after_kill(both, tmp_path)
    assert found.width("orders") == 3
    assert "gone" not in found.topics
    assert "gone" not in found.queues


async def test_a_slave_knows_the_incarnation_of_each_topic(both: Pair, tmp_path: Path) -> None:
    master = await both.session("master")
    incarnations = []
    for _ in range(2):
        await master.call(UpdateAndCreateTopic("orders", 3, 3, 6))
        ask = GetMaxOffset("orders", 0, with_incarnation=True)
        incarnations.append((await master.call(ask)).header.incarnation or 0)
        await both.send(b"x", "orders")
        at_slave = slave_after_kill(both, tmp_path).incarnations["orders"]
        assert at_slave == incarnations[-1]
        await master.call(DeleteTopic("orders"))
        assert "orders" not in slave_after_kill(both, tmp_path).incarnations
    assert incarnations[0] < incarnations[1]


async def knows(both: Pair, holds: Callable[[dict[str, TopicConfig]], bool]) -> None:
    """Return when the slave's topics are as expected."""
    session = await both.session("slave")
    async with asyncio.timeout(20):
        while not holds(TopicConfigTable.decode((await session.call(GetAllTopicConfig())).body).topic_config_table):
            await asyncio.sleep(0.02)


async def test_a_slave_that_knows_more_than_a_snapshot_forgets_it(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        settings = both.slave_settings
        stale = Topics(settings.config_path / "topics.json", settings, SystemClock())
        stale.put(TopicConfig("stale", 1, 1))
        await stale.file.save()
        await both.start("master")
        await both.send(b"x")
        await both.start("slave", ha_master=f"127.0.0.1:{both.master_settings.port + 1}")
        await knows(both, lambda table: "stale" not in table and "orders" in table)


async def test_a_slave_asks_a_master_with_a_journal_for_nothing_that_the_log_brings(
    both: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_mirror, "PERIOD_S", 0.02)
    asked: list[str] = []
    for table in (Topics, Groups, Offsets):
        monkeypatch.setattr(table, "follow", lambda *_: asked.append("all of it"))
    await both.stop("slave")
    await both.start("slave")
    await knows(both, lambda table: "probe" in table)
    for number in range(20):
        await (await both.session("master")).call(UpdateConsumerOffset("workers", "probe", 0, number))
        await asyncio.sleep(0.01)
    assert asked == []


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_slave_that_began_empty_gives_no_offset_again_in_a_queue_whose_messages_are_deleted(
    tmp_path: Path, restarts: bool
) -> None:
    small = {"commit_log_file_bytes": 1 << 16}
    async with pair(tmp_path) as both:
        master = await both.start("master", **small)
        for _ in range(3):
            await both.send(b"old", "idle")
        while master.store.end < 3 << 16:
            await both.send(bytes(20_000), "busy")
        master.store.checkpoint()
        master.store._log.row.drop_first()  # as retention does
        master.store.retention.request(Cleaning.QUEUES)
        slave = await both.start("slave", **small)
        await both.same()
        async with asyncio.timeout(20):
            while slave.store.queues.max_offset("idle", 0) != 3:
                await asyncio.sleep(0.02)
        if restarts:
            await both.stop("slave")
            await both.start("slave", **small)
        await both.stop("slave")
        await both.stop("master")
        both.master_settings = replace(both.master_settings, store_path=both.slave_settings.store_path)
        next_master = await both.start("master", **small)
        await both.send(b"new", "idle")
        next_master.store.publish()
        assert next_master.store.queues.max_offset("idle", 0) == 4
        assert await both.bodies("master", "idle", offset=3) == [b"new"]
