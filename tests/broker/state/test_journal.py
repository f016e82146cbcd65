"""What a master has answered about topics, groups and offsets is in its log: a kill right after that loses nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker import journal
from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.broker.change_log import ChangeLog
from sparrowmq.errors import DiskFull, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.names import STATE_TOPIC
from sparrowmq.protocol.requests.admin_headers import (
    DeleteSubscriptionGroup,
    DeleteTopic,
    GetAllTopicConfig,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndCreateTopic,
)
from sparrowmq.protocol.requests.bodies import GroupConfig, TopicConfigTable
from sparrowmq.protocol.requests.headers import QueryConsumerOffset, UpdateConsumerOffset
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import Flush
from tests.broker.live import COMMIT, SUBSCRIPTION, Live, live_broker
from tests.broker.replication.slaves import slave_at
from tests.broker.state.dead import killed
from tests.broker.state.kept import Kept, kept

Act = Callable[[Live], Awaitable[object]]


def of(live: Live) -> Kept:
    return kept(live.broker.settings)


async def after_kill(live: Live, tmp_path: Path) -> Kept:
    """What a broker knows that starts on the store as a kill leaves it now, without files in `config`."""
    path = killed(live.broker.settings.store_path, tmp_path / "killed")
    for file in (path / "config").glob("*.json*"):
        file.unlink()
    return kept(replace(live.broker.settings, store_path=path))


def _full(store: MessageStore, *entries: object) -> None:
    raise DiskFull("no room")


async def make(live: Live) -> None:
    await live.session.call(UpdateAndCreateTopic("made", 3, 3, perm=6))


async def widen(live: Live) -> None:
    await make(live)
    await live.session.call(UpdateAndCreateTopic("made", 9, 9, perm=6))


async def delete(live: Live) -> None:
    await make(live)
    await live.send(topic="made")
    await live.session.call(DeleteTopic("made"))


async def change_group(live: Live) -> None:
    await live.session.call(UpdateAndCreateSubscriptionGroup(), GroupConfig("workers", retry_max_times=7).encode())


async def delete_group(live: Live) -> None:
    await change_group(live)
    await live.session.call(DeleteSubscriptionGroup("workers"))


async def commit(live: Live) -> None:
    await make(live)
    await live.session.call(UpdateConsumerOffset("workers", "made", 2, 7))


@pytest.mark.parametrize("flush", [Flush.SYNC, Flush.ASYNC])
@pytest.mark.parametrize(
    ("act", "has"),
    [
        (make, lambda found: found.width("made") == 3),
        (widen, lambda found: found.width("made") == 9),
        (delete, lambda found: found.width("made") == 0 and "made" not in found.queues),
        (change_group, lambda found: found.groups["workers"].retry_max_times == 7),
        (delete_group, lambda found: "workers" not in found.groups),
        (commit, lambda found: found.offsets["workers"]["made"][2] == 7),
    ],
    ids=["make", "widen", "delete", "group", "no group", "commit"],
)
async def test_an_answered_change_survives_a_kill_at_once(
    tmp_path: Path, act: Act, has: Callable[[Kept], bool], flush: Flush
) -> None:
    async with live_broker(tmp_path / "live", flush=flush) as live:
        await act(live)
        assert has(await after_kill(live, tmp_path))


async def test_offsets_of_pulls_are_in_the_log_within_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "PERIOD_S", 0.05)
    async with live_broker(tmp_path / "live") as live:
        await live.send()
        await live.pull(sys_flag=SUBSCRIPTION | COMMIT, commit_offset=1)
        before = len(await changes_of(live))
        async with asyncio.timeout(10):
            while (await after_kill(live, tmp_path)).offsets != {"consumers": {"orders": {0: 1}}}:
                await asyncio.sleep(0.05)
        assert len(await changes_of(live)) <= before + 1
        await live.pull(sys_flag=SUBSCRIPTION | COMMIT, commit_offset=1)
        await asyncio.sleep(0.2)
        assert len(await changes_of(live)) <= before + 1, "what did not change is not written again"


async def test_many_offsets_are_written_in_several_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "PERIOD_S", 0.05)
    monkeypatch.setattr(journal, "_OFFSETS_AT_ONCE", 1)
    async with live_broker(tmp_path / "live") as live:
        await make(live)
        before = len(await changes_of(live))
        for queue_id in range(3):
            live.session.tell(UpdateConsumerOffset("workers", "made", queue_id, 7))
        async with asyncio.timeout(10):
            while (await after_kill(live, tmp_path)).offsets.get("workers") != {"made": {0: 7, 1: 7, 2: 7}}:
                await asyncio.sleep(0.05)
        assert len(await changes_of(live)) >= before + 3


@pytest.mark.parametrize("request_", [DeleteSubscriptionGroup("others"), UpdateConsumerOffset("workers", "made", 0, 8)])
async def test_an_answer_waits_for_many_offsets_that_are_written_in_several_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_: Any
) -> None:
    monkeypatch.setattr(journal, "PERIOD_S", 60)
    async with live_broker(tmp_path / "live") as live:
        await live.session.call(UpdateAndCreateTopic("made", 100, 100, perm=6))
        for queue_id in range(100):
            live.session.tell(UpdateConsumerOffset("workers", "made", queue_id, 7))
        await live.session.call(QueryConsumerOffset("workers", "made", 99))
        before = len(await changes_of(live))
        monkeypatch.setattr(journal, "_OFFSETS_AT_ONCE", 10)
        await live.session.call(request_)
        assert len(await changes_of(live)) >= before + 10
        assert len((await after_kill(live, tmp_path)).offsets["workers"]["made"]) == 100


async def changes_of(live: Live) -> list[bytes]:
    found = live.broker.store.read(STATE_TOPIC, 0, 0, 10_000, 1 << 24)
    return [bytes(record.decode(each).body) for view in found.views for each in record.walk(view)]


async def has_snapshots(live: Live, count: int) -> None:
    async with asyncio.timeout(10):
        while (await changes_of(live)).count(b'{"mark":"end"}') < count:
            await asyncio.sleep(0.02)


async def test_commits_of_one_turn_are_one_record(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await make(live)
        before = len(await changes_of(live))
        commits = [UpdateConsumerOffset("workers", "made", number, 7) for number in range(3)]
        await asyncio.gather(*[live.session.call(each) for each in commits])
        assert len(await changes_of(live)) == before + 1


async def test_a_commit_without_an_answer_waits_for_the_next_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "PERIOD_S", 60)
    async with live_broker(tmp_path / "live") as live:
        await make(live)
        before = len(await changes_of(live))
        live.session.tell(UpdateConsumerOffset("workers", "made", 0, 7))
        asked = await live.session.call(QueryConsumerOffset("workers", "made", 0))
        assert asked.header.offset == 7 and len(await changes_of(live)) == before
        await live.session.call(UpdateConsumerOffset("workers", "made", 1, 8))
        assert (await after_kill(live, tmp_path)).offsets["workers"]["made"] == {0: 7, 1: 8}


async def test_a_master_that_waits_for_slaves_answers_nothing_that_no_slave_has(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"role": BrokerRole.SYNC_MASTER, "slave_timeout_ms": 200}
    async with live_broker(tmp_path, **settings) as live, slave_at(live.broker.ha_address) as slave:
        slave.report(0)
        await slave.piece()
        with pytest.raises(RemoteError, match="topic made is set and in effect here, but not yet safe") as told:
            await make(live)
        assert told.value.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        table = TopicConfigTable.decode((await live.session.call(GetAllTopicConfig())).body)
        assert "made" in table.topic_config_table


async def test_a_master_without_a_slave_has_nothing_to_wait_for(tmp_path: Path) -> None:
    async with live_broker(tmp_path / "live", role=BrokerRole.SYNC_MASTER) as live:
        await make(live)
        await live.session.call(UpdateConsumerOffset("workers", "made", 0, 7))
        found = await after_kill(live, tmp_path)
        assert found.width("made") and found.offsets["workers"]["made"] == {0: 7}


async def test_what_a_full_log_could_not_take_is_told_once_and_comes_as_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with live_broker(tmp_path / "live") as live:
        await make(live)

        monkeypatch.setattr(MessageStore, "append", _full)
        for _ in range(2):
            await live.session.call(UpdateAndCreateTopic("second", 2, 2, perm=6))
            assert caplog.text.count("the log lacks a change") == 1
        assert (await after_kill(live, tmp_path)).width("second") == 0
        path = killed(live.broker.settings.store_path, tmp_path / "with files")
        mark = json.loads((path / "config" / "topics.json").read_bytes())["journal"]
        assert mark["isAhead"]
        monkeypatch.undo()
        assert kept(replace(live.broker.settings, store_path=path)).width("second") == 2
        await change_group(live)
        found = await after_kill(live, tmp_path)
        assert found.width("second") == 2 and "workers" in found.groups


async def test_a_large_state_comes_in_steps_after_a_full_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "PERIOD_S", 0.3)
    monkeypatch.setattr(ChangeLog, "max_record_bytes", 512)
    monkeypatch.setattr(journal, "_MIN_GROWTH_BYTES", 1000)
    async with live_broker(tmp_path / "live") as live:
        for number in range(100):
            await live.session.call(UpdateAndCreateTopic(f"topic{number}", 1, 1, perm=6))
        await has_snapshots(live, 2)
        records = live.broker.store.queues.get(STATE_TOPIC, 0)
        assert records is not None
        with monkeypatch.context() as patch:
            patch.setattr(MessageStore, "append", _full)
            await change_group(live)
        before = records.next_offset
        await live.session.call(UpdateAndCreateTopic("second", 2, 2, perm=6))
        assert records.next_offset == before
        await has_snapshots(live, 3)
        found = await after_kill(live, tmp_path)
        assert found.width("second") == 2 and "workers" in found.groups


async def test_nothing_is_safe_before_the_end_of_the_snapshot_that_brings_what_was_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "PERIOD_S", 60)
    async with live_broker(tmp_path / "live", role=BrokerRole.SYNC_MASTER) as live:
        await live.session.call(UpdateAndCreateTopic("made", 3, 3, perm=6), accept=range(300))
        kept_in = live.broker.journal
        assert kept_in is not None
        with monkeypatch.context() as patch:
            patch.setattr(MessageStore, "append", _full)
            with pytest.raises(RemoteError, match="no room"):
                await change_group(live)
        writing = kept_in._write_snapshot_in_steps()
        next(writing)
        with pytest.raises(RemoteError, match="The broker tries again by itself"):
            await kept_in.wait_until_safe("the topic is changed")
        for _ in writing:
            pass
        assert await kept_in.wait_until_safe("the topic is changed")


async def test_a_new_snapshot_comes_when_changes_take_more_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "PERIOD_S", 0.05)
    monkeypatch.setattr(journal, "_MIN_GROWTH_BYTES", 2000)
    async with live_broker(tmp_path / "live") as live:
        await make(live)
        async with asyncio.timeout(20):
            for number in range(1000):
                await live.session.call(UpdateConsumerOffset("workers", "made", 2, number))
                bodies = await changes_of(live)
                if bodies.count(b'{"mark":"end"}') > 1:
                    break
        found = await after_kill(live, tmp_path)
        assert found.width("made") == 3 and found.offsets["workers"]["made"][2] == number


async def test_the_log_keeps_a_snapshot_in_its_last_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "PERIOD_S", 0.02)
    async with live_broker(tmp_path / "live", commit_log_file_bytes=1 << 16) as live:
        await make(live)
        for _ in range(12):
            await live.send(bytes(30_000), topic="made")
            await asyncio.sleep(0.05)
        found = await after_kill(live, tmp_path)
        assert found.snapshot_begin > live.broker.store.end - (3 << 16) and found.width("made") == 3


async def test_a_restart_knows_all_and_saves_it_for_other_brokers(tmp_path: Path) -> None:
    async with live_broker(tmp_path / "live") as live:
        await widen(live)
        settings = replace(live.broker.settings, store_path=killed(live.broker.settings.store_path, tmp_path / "k"))
    for file in (tmp_path / "k" / "config").glob("topics.json*"):
        file.unlink()
    async with Broker(replace(settings, port=0)):
        pass
    saved = json.loads((tmp_path / "k" / "config" / "topics.json").read_bytes())
    assert saved["topicConfigTable"]["made"]["readQueueNums"] == 9


async def test_offsets_that_change_while_others_are_written_wait_for_the_next_time(tmp_path, monkeypatch):
    """A client may commit more offsets in each turn of the loop than one step writes."""
    written: list[list[str]] = []
    async with live_broker(tmp_path) as live:
        log = live.broker.journal
        assert log is not None
        offsets = log._tables.offsets

        def note(change):
            written.append(sorted(change.offsets or ()))
            for number in range(600):
                offsets.commit(f"late {len(written)} {number}", "made", 0, 1)

        for number in range(1_200):
            offsets.commit(f"early {number:04}", "made", 0, 1)
        monkeypatch.setattr(log, "note", note)
        await log.write_changes()
        monkeypatch.undo()
    keys = [key for piece in written for key in piece]
    assert len([key for key in keys if "early" in key]) == 1_200
    assert max(map(len, written)) <= 500 and len(keys) <= 1_500
