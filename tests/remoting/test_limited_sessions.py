"""The connections of one port: above the limit, the oldest that has asked for nothing gives its place."""

import pytest

from sparrowmq.remoting.listener import LimitedSessions
from sparrowmq.testing.clock import ManualClock


@pytest.fixture
def known() -> set[str]:
    return set()


@pytest.fixture
def limited(known: set[str]) -> LimitedSessions[str]:
    return LimitedSessions(2, ManualClock(), known.__contains__, "doors")


def test_there_is_room_up_to_the_limit(limited: LimitedSessions[str]):
    assert [limited.add("first"), limited.add("second")] == [None, None]
    assert list(limited.sessions) == ["first", "second"]


def test_the_oldest_stranger_gives_its_place(limited: LimitedSessions[str], known: set[str]):
    for name in ("first", "second"):
        limited.add(name)
    known.add("first")
    assert limited.add("third") == "second"


def test_a_new_connection_goes_where_all_have_asked_for_something(limited: LimitedSessions[str], known: set[str]):
    for name in ("first", "second"):
        limited.add(name)
    known.update(("first", "second"))
    assert limited.add("third") == "third"


def test_one_that_is_to_end_is_not_chosen_again(limited: LimitedSessions[str]):
    for name in ("first", "second"):
        limited.add(name)
    assert [limited.add("third"), limited.add("fourth")] == ["first", "second"]


def test_one_that_has_ended_leaves_its_place(limited: LimitedSessions[str]):
    for name in ("first", "second"):
        limited.add(name)
    limited.discard("first")
    assert limited.add("third") is None


async def test_a_full_port_says_so_until_there_is_room_again(known: set[str]):
    clock = ManualClock()
    limited = LimitedSessions[str](1, clock, known.__contains__, "doors")
    assert limited.problem == ""
    limited.add("first")
    assert limited.problem == "1 doors are open, which is the limit: others are closed"
    limited.discard(limited.add("second") or "")
    limited.discard("second")
    assert limited.problem == "doors above 1 were closed a moment ago"
    await clock.advance(minutes=1)
    assert limited.problem == ""


def test_a_full_port_says_from_where_most_come(known: set[str]):
    hosts = {"first": "10.0.0.7", "second": "10.0.0.8", "third": "10.0.0.7"}
    limited = LimitedSessions[str](3, ManualClock(), known.__contains__, "doors", host_of=hosts.__getitem__)
    for name in hosts:
        limited.add(name)
    assert limited.problem.endswith("others are closed; 2 of them come from 10.0.0.7")
