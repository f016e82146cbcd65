"""Which state counts at a start: random histories, with files saved at any moment and a crash at any other."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.broker_state import BrokerState
from sparrowmq.broker.journal import Journal, JournalRules
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.requests.bodies import GroupConfig, TopicConfig
from sparrowmq.store.message_store import MessageStore
from tests.broker.state.kept import Kept, kept
from tests.store.stores import put


class Master:
    """The state of a master over its store, without ports."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.store = MessageStore.open(settings.store(1))

    async def lead(self) -> Master:
        self.state = await BrokerState.of_master(self.store, self.settings, SystemClock(), True, Turn(), JournalRules())
        assert self.state.journal is not None
        self.journal: Journal = self.state.journal
        return self

    async def save(self, *names: str) -> None:
        for name in names or ("topics", "groups", "offsets"):
            await getattr(self.state, name).file.save()

    def write(self) -> None:
        """Let the log have all that was noted, as the end of a turn does."""
        self.journal.note_offsets()
        self.store.publish()

    def seen(self) -> tuple[object, ...]:
        state = self.state
        offsets = {group: topics for group, topics in state.offsets.table.items() if any(topics.values())}
        return dict(state.topics.table), dict(state.groups.table), json.loads(json.dumps(offsets))


def seen(found: Kept) -> tuple[object, ...]:
    offsets = {group: topics for group, topics in found.offsets.items() if any(topics.values())}
    return found.topics, found.groups, json.loads(json.dumps(offsets))


def settings_at(path: Path) -> BrokerSettings:
    return BrokerSettings(name="broker-a", store_path=path, commit_log_file_bytes=1 << 20, index=False)


@pytest.fixture
def settings(tmp_path: Path) -> BrokerSettings:
    return settings_at(tmp_path / "live")


def delete(master: Master, name: str) -> None:
    master.state.topics.delete(name)
    master.store.delete_topic(name)
    master.state.offsets.delete_topic(name)


def step(master: Master, chance: random.Random) -> None:
    """One change."""
    name, state = chance.choice("abcd"), master.state
    steps: list[Callable[[], object]] = [
        lambda: state.topics.put(TopicConfig(name, chance.randrange(1, 9), 3)),
        lambda: state.topics.ensure_for_send(name, "TBW102", 4, "peer"),
        lambda: delete(master, name),
        lambda: state.groups.put(GroupConfig(name, retry_max_times=chance.randrange(9))),
        lambda: state.groups.delete(name),
        lambda: state.offsets.delete_group(name),
        *[lambda: state.offsets.commit(chance.choice("abcd"), name, chance.randrange(3), chance.randrange(99))] * 4,
        lambda: master.journal.write_snapshot(),
        lambda: put(master.store, b"x", "other"),
    ]
    chance.choice(steps)()


@pytest.mark.parametrize("seed", range(40))
async def test_the_log_makes_the_same_state_over_files_of_any_moment(
    settings: BrokerSettings, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    master = await Master(settings).lead()
    for _ in range(chance.randrange(60)):
        step(master, chance)
        if chance.random() < 0.2:
            await master.save(chance.choice(["topics", "groups", "offsets"]))
    master.write()
    shutil.copytree(settings.store_path, tmp_path / "killed")
    found = kept(settings_at(tmp_path / "killed"))
    assert seen(found) == master.seen()
    for file in (tmp_path / "killed" / "config").glob("*"):
        file.unlink()
    assert seen(kept(settings_at(tmp_path / "killed"))) == master.seen() or not found.is_from_log
    master.store.close()


async def test_a_store_without_a_journal_has_its_state_in_files_and_gets_a_snapshot(
    settings: BrokerSettings,
) -> None:
    config = settings.config_path
    config.mkdir(parents=True)
    topics = {"topicConfigTable": {"made": {"topicName": "made", "readQueueNums": 5, "writeQueueNums": 5, "perm": 6}}}
    (config / "topics.json").write_text(json.dumps(topics | {"dataVersion": {"counter": 3, "timestamp": 1}}))
    (config / "consumerOffset.json").write_text('{"offsetTable":{"made@g":{0:1}}}')
    with MessageStore.open(settings.store(1)) as store:
        put(store, b"x", "made")
    assert kept(settings).width("made") == 5
    master = await Master(settings).lead()
    await master.journal.write_what_is_due()
    master.store.close()
    for file in config.glob("*"):
        file.unlink()
    found = kept(settings)
    assert found.is_from_log and found.width("made") == 5 and found.offsets == {"g": {"made": {0: 1}}}


async def test_files_that_another_broker_has_changed_count(settings: BrokerSettings) -> None:
    master = await Master(settings).lead()
    master.state.topics.put(TopicConfig("made", 3, 3))
    for _ in range(9):
        put(master.store, b"x", "made")
    master.state.groups.put(GroupConfig("kept"))
    master.state.offsets.commit("g", "made", 0, 5)
    master.write()
    await master.save()
    master.store.close()
    path = settings.config_path / "topics.json"
    saved = json.loads(path.read_bytes())
    saved["topicConfigTable"]["made"]["readQueueNums"] = 7
    saved["dataVersion"]["counter"] += 1
    del saved["journal"], saved["checksum"]
    path.write_text(json.dumps(saved))
    (settings.config_path / "consumerOffset.json").write_text('{"offsetTable":{"made@g":{0:9}}}')
    found = kept(settings)
    assert found.width("made") == 7 and "kept" in found.groups and found.offsets == {"g": {"made": {0: 9}}}
    again = await Master(settings).lead()
    again.state.topics.put(TopicConfig("second", 1, 1))
    again.write()
    again.store.close()
    for file in settings.config_path.glob("*"):
        file.unlink()
    found = kept(settings)
    assert found.width("made") == 7 and found.offsets == {"g": {"made": {0: 9}}} and found.width("second") == 1


async def test_an_edit_by_hand_counts_if_its_checksum_is_taken_off(settings: BrokerSettings) -> None:
    master = await Master(settings).lead()
    master.state.offsets.commit("g", "made", 0, 5)
    master.write()
    await master.save()
    master.store.close()
    path = settings.config_path / "consumerOffset.json"
    saved = json.loads(path.read_bytes())
    del saved["checksum"]
    saved["offsetTable"]["made@g"]["0"] = 3
    path.write_text(json.dumps(saved))
    assert kept(settings).offsets == {"g": {"made": {0: 3}}}


@pytest.mark.parametrize("trusts_files", [True, False])
async def test_a_file_that_is_ahead_of_its_log_counts_at_a_single_broker_only(
    settings: BrokerSettings, tmp_path: Path, trusts_files: bool
) -> None:
    master, before = await changed_once_more(settings, tmp_path)
    await master.save()
    master.store.close()
    lose_tail(settings, before)
    assert kept(settings, trusts_files).width("made") == (5 if trusts_files else 3)


async def changed_once_more(settings: BrokerSettings, tmp_path: Path) -> tuple[Master, Path]:
    """Return a master whose topic has got 3 queues and then 5, and a copy of its log with 3."""
    master = await Master(settings).lead()
    master.state.topics.put(TopicConfig("made", 3, 3))
    master.write()
    before = shutil.copytree(settings.store_path / "commitlog", tmp_path / "commitlog")
    master.state.topics.put(TopicConfig("made", 5, 5))
    master.write()
    return master, before


def lose_tail(settings: BrokerSettings, before: Path) -> None:
    """Bring back the log of an earlier moment, as a power cut does."""
    for file in before.iterdir():
        shutil.copy(file, settings.store_path / "commitlog" / file.name)
    for folder in ("consumequeue", "ends"):
        shutil.rmtree(settings.store_path / folder, ignore_errors=True)
    (settings.store_path / "checkpoint").unlink()
    (settings.store_path / "abort").touch()


async def test_the_file_of_a_slave_that_is_ahead_of_its_log_does_not_count(
    settings: BrokerSettings, tmp_path: Path
) -> None:
    master, before = await changed_once_more(settings, tmp_path)
    master.store.close()
    slave = Master(settings)
    slave.state = BrokerState.of_slave(slave.store, settings, SystemClock())
    slave.state.topics.file.touch()
    await slave.save("topics")
    slave.store.close()
    lose_tail(settings, before)
    assert kept(settings, trusts_files=False).width("made") == 3


async def test_the_last_offsets_are_in_the_log_when_the_journal_is_closed(
    settings: BrokerSettings, tmp_path: Path
) -> None:
    master = await Master(settings).lead()
    master.write()
    master.state.offsets.commit("g", "made", 0, 5)
    await master.journal.close()
    shutil.copytree(settings.store_path, tmp_path / "killed")
    master.store.close()
    found = kept(settings_at(tmp_path / "killed"))
    assert found.is_from_log and found.offsets == {"g": {"made": {0: 5}}}


@pytest.mark.parametrize("content", [b"", b"{", b'{"offsetTable":{},"checksum":"00000000"}'])
async def test_a_damaged_file_is_made_again_from_the_log(settings: BrokerSettings, content: bytes) -> None:
    master = await Master(settings).lead()
    master.state.offsets.commit("g", "made", 0, 5)
    master.write()
    await master.save()
    master.store.close()
    for name in ("consumerOffset.json", "topics.json", "subscriptionGroup.json"):
        (settings.config_path / name).write_bytes(content)
    assert kept(settings).offsets == {"g": {"made": {0: 5}}}


async def test_a_topic_that_only_the_store_knows_to_be_wider_gets_its_queues(
    settings: BrokerSettings,
) -> None:
    master = await Master(settings).lead()
    master.state.topics.put(TopicConfig("made", 3, 3))
    await master.save()
    master.store.publish()
    await asyncio.sleep(0.01)
    put(master.store, b"x", "made", 8)
    master.store.publish()
    master.state.topics.saved_ms = master.state.topics.version.timestamp
    master.state._adopt_queues(master.store)
    assert master.state.topics.table["made"].read_queue_nums == 9
    master.state.topics.put(TopicConfig("made", 2, 2))
    master.state.topics.saved_ms = master.state.topics.version.timestamp + 1
    master.state._adopt_queues(master.store)
    assert master.state.topics.table["made"].read_queue_nums == 2, "it was made narrower on purpose"
    master.store.close()


async def test_queues_of_a_topic_that_was_deleted_before_the_newest_snapshot_go_at_the_start(
    settings: BrokerSettings,
) -> None:
    """A slave may have both in its log, and end before it has applied either."""
    master = await Master(settings).lead()
    master.state.topics.put(TopicConfig("gone", 2, 2))
    put(master.store, b"x", "gone", 0)
    master.state.topics.delete("gone")
    assert master.journal.write_snapshot()
    for name in ("kept", "young"):
        master.state.topics.put(TopicConfig(name, 2, 2))
        put(master.store, b"x", name, 0)
    master.state.topics.table.pop("young")  # as if the log could not take it
    master.write()
    master.store.close()
    found = kept(replace(settings))
    assert "gone" not in found.queues and {"kept", "young"} <= set(found.queues)


async def test_queues_of_a_deleted_topic_that_came_back_go_at_the_start(settings: BrokerSettings) -> None:
    master = await Master(settings).lead()
    for name in ("gone", "again"):
        master.state.topics.put(TopicConfig(name, 2, 2))
        put(master.store, b"x", name, 0)
        put(master.store, b"x", name, 1)
        master.state.topics.delete(name)  # and the broker ends before it deletes the queues
    master.state.topics.put(TopicConfig("again", 2, 2))
    master.write()
    master.store.close()
    found = kept(replace(settings))
    assert "gone" not in found.queues and "again" not in found.queues
