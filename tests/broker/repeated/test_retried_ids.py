"""The ids of repeated sends are kept for two minutes at most, and an account has its own."""

from __future__ import annotations

import tracemalloc

import pytest

from sparrowmq.broker import repeated_sends
from sparrowmq.broker.repeated_sends import GENERATION_S, RetriedIds
from sparrowmq.testing.clock import ManualClock


async def test_an_id_is_kept_for_one_to_two_generations() -> None:
    clock = ManualClock(0)
    await clock.advance(1000)
    ids = RetriedIds(clock)
    ids.add("alice", "orders", "a", 7)
    assert ids.topics == {"orders"}
    await clock.advance(GENERATION_S - 1)
    assert ids.offset("alice", "orders", "a") == 7
    await clock.advance(2)
    assert ids.offset("alice", "orders", "a") == 7 and ids.topics == {"orders"}
    await clock.advance(GENERATION_S)
    assert ids.offset("alice", "orders", "a") is None
    assert (ids.topics, len(ids)) == (set(), 0)


async def test_a_long_silence_forgets_all() -> None:
    clock = ManualClock(0)
    ids = RetriedIds(clock)
    await clock.advance(1000)
    ids.add(None, "orders", "a", 7)
    await clock.advance(3 * GENERATION_S)
    assert ids.offset(None, "orders", "a") is None and not ids.topics


def test_the_id_of_another_account_or_topic_is_another() -> None:
    ids = RetriedIds(ManualClock(0))
    ids.add("alice", "orders", "a", 7)
    ids.add("mallory", "orders", "a", 8)
    assert ids.offset("alice", "orders", "a") == 7
    assert ids.offset(None, "orders", "a") is None
    assert ids.offset("alice", "bills", "a") is None


def test_a_flood_displaces_no_other_id_and_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_sends, "MAX_IDS_OF_ACCOUNT", 20)
    monkeypatch.setattr(repeated_sends, "MAX_IDS", 50)
    ids = RetriedIds(ManualClock(0))
    ids.add("alice", "orders", "a", 7)
    for number in range(100):
        ids.add("mallory", "orders", str(number), number)
    assert len(ids) == 21 and ids.offset("alice", "orders", "a") == 7
    for number in range(100):
        ids.add(f"account-{number}", "orders", "x", number)
    assert len(ids) == 50


def test_an_id_takes_about_200_bytes() -> None:
    ids = RetriedIds(ManualClock(0))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(10_000):
            ids.add("alice", "orders", f"7F000001000100000001{number:012X}", 1_000_000_000 + number)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    each = (after - before) / 10_000
    assert 100 < each < 350, each
    print(each)
