"""What consumers may read of a member's log: by its term, and by what its master says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrowmq.broker.failover.group_state import Leader
from sparrowmq.broker.failover.term import NO_FAILOVER, Term
from sparrowmq.broker.replication.ha_slave import HaSlave, HaSlaveRules
from sparrowmq.broker.replication.role import HighWatermark
from sparrowmq.metrics.figures import Figures
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.testing import ManualClock
from tests.store.stores import bodies, put

OLD = Leader(member=2, epoch=3, store="s", address="a:1", shipping="a:2")
NEW = Leader(member=2, epoch=3, store="s", address="a:1", shipping="a:2", tells_shown=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    store = MessageStore.open(StoreSettings(path=tmp_path, index=False), clock=ManualClock())
    put(store, b"before")
    store.publish()
    yield store
    store.close()


def follower(store: MessageStore, leader: Leader, *, is_full: bool = False) -> tuple[HighWatermark, HaSlave]:
    """A slave whose log is proved to be the beginning of its master's."""
    shown = HighWatermark(store, Term(1, 3, leader, is_shared=True), is_full=is_full)
    replica = HaSlave(store, ManualClock(), HaSlaveRules(), Figures())
    shown.follow(replica)
    return shown, replica


def test_a_broker_without_failover_shows_all_and_a_member_without_a_master_nothing(
    store: MessageStore,
) -> None:
    assert not HighWatermark(store, NO_FAILOVER, is_full=False).is_hidden
    assert HighWatermark(store, Term(1, 3), is_full=False).is_hidden


def test_a_slave_shows_what_its_master_says_once_that_has_all_from_before(store: MessageStore) -> None:
    shown, replica = follower(store, NEW)
    changes: list[bool] = []
    shown.on_change = lambda: changes.append(shown.is_hidden)
    replica._on_visible(store.end - 1)
    assert shown.is_hidden
    replica._on_visible(store.end)
    assert changes == [False]
    end = store.end
    put(store, b"after")
    store.publish()
    assert bodies(store) == [b"before"]
    replica._on_visible(end + 1)
    assert bodies(store) == [b"before"]
    replica._on_visible(store.end)
    assert bodies(store) == [b"before", b"after"]
    assert changes == [False]


def test_a_slave_of_an_older_master_or_without_room_shows_all_that_is_proved(store: MessageStore) -> None:
    for shown, _ in (follower(store, OLD), follower(store, NEW, is_full=True)):
        assert not shown.is_hidden
    put(store, b"after")
    store.publish()
    assert bodies(store) == [b"before", b"after"]


def test_a_log_without_a_proof_is_shown_once_an_older_master_is_found_to_have_it(store: MessageStore) -> None:
    shown = HighWatermark(store, Term(1, 3, OLD), is_full=False)
    assert shown.is_hidden
    shown.note_equal_logs()
    assert not shown.is_hidden
