"""The journal as a start reads it: from its newest whole snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq.broker.change_log import BEGIN, END, Change
from sparrowmq.broker.journal_records import read_changes, replay_journal
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    settings = StoreSettings(tmp_path, commit_log_file_size=1 << 16, consume_queue_file_entries=16)
    return MessageStore.open(settings)


def write(store: MessageStore, *wanted: Change) -> None:
    for change in wanted:
        store.append(change.entry(1, b"\0" * 8))
    store.publish()


def topic(name: str) -> Change:
    return Change(topics=[TopicConfig(name)])


def test_a_log_without_a_snapshot_has_no_state(store: MessageStore) -> None:
    assert replay_journal(store).begin is None
    write(store, topic("a"), Change(mark=BEGIN), topic("b"))
    assert replay_journal(store).begin is None and replay_journal(store).position == 0
    store.close()


def test_the_newest_whole_snapshot_counts_and_all_after_it(store: MessageStore) -> None:
    write(store, Change(mark=BEGIN), topic("old"), Change(mark=END))
    write(store, *[topic(f"t{number}") for number in range(50)])
    write(store, Change(mark=BEGIN), topic("new"), Change(mark=END), topic("later"))
    found = replay_journal(store)
    assert set(found.tables.topics) == {"new", "later"}
    assert (found.snapshot_position, found.position) == (53, 57)
    assert found.snapshot_bytes + found.changed_bytes == store.end - (found.begin or 0)
    write(store, Change(mark=BEGIN), topic("half"))
    found = replay_journal(store)
    assert set(found.tables.topics) == {"new", "later", "half"} and found.position == 59
    store.close()


def test_changes_between_the_records_of_a_snapshot_are_part_of_it(store: MessageStore) -> None:
    write(store, Change(mark=BEGIN), topic("a"), topic("b"), Change(no_topic="a"), Change(mark=END))
    assert set(replay_journal(store).tables.topics) == {"b"}
    store.close()


def test_a_damaged_journal_is_reported_and_has_no_state(
    store: MessageStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(store, Change(mark=BEGIN), topic("a"), Change(mark=END))
    (file,) = (tmp_path / "commitlog").iterdir()
    content = bytearray(file.read_bytes())
    content[content.index(b'{"topics"')] ^= 1
    file.write_bytes(content)
    found = replay_journal(store)
    assert found.begin is None and found.position == 3
    assert "the files in config are read instead" in caplog.text
    store.close()


def test_records_are_read_in_order_with_their_places(store: MessageStore) -> None:
    write(store, topic("a"), topic("b"), topic("c"))
    found = list(read_changes(store, 1))
    assert [(position, change.topics[0].topic_name) for position, _, _, change in found] == [
        (1, "b"),
        (2, "c"),
    ]
    assert found[0][1] + found[0][2] == found[1][1]
    store.close()
