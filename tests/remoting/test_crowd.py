"""The connections of one port: above the limit, the oldest that has asked for nothing gives its place."""

import pytest

from sparrowmq.remoting.crowd import Crowd
from sparrowmq.testing.clock import ManualClock


@pytest.fixture
def known() -> set[str]:
    return set()


@pytest.fixture
def crowd(known: set[str]) -> Crowd[str]:
    return Crowd(2, ManualClock(), known.__contains__, "doors")


def test_there_is_room_up_to_the_limit(crowd: Crowd[str]):
    assert [crowd.add("first"), crowd.add("second")] == [None, None]
    assert list(crowd.sessions) == ["first", "second"]


def test_the_oldest_stranger_gives_its_place(crowd: Crowd[str], known: set[str]):
    for name in ("first", "second"):
        crowd.add(name)
    known.add("first")
    assert crowd.add("third") == "second"


def test_a_new_connection_goes_where_all_have_asked_for_something(crowd: Crowd[str], known: set[str]):
    for name in ("first", "second"):
        crowd.add(name)
    known.update(("first", "second"))
    assert crowd.add("third") == "third"


def test_one_that_is_to_end_is_not_chosen_again(crowd: Crowd[str]):
    for name in ("first", "second"):
        crowd.add(name)
    assert [crowd.add("third"), crowd.add("fourth")] == ["first", "second"]


@pytest.mark.guards("Crowd.discard: drop self.sessions.pop(session, None)")
def test_one_that_has_ended_leaves_its_place(crowd: Crowd[str]):
    for name in ("first", "second"):
        crowd.add(name)
    crowd.discard("first")
    assert crowd.add("third") is None


@pytest.mark.guards(
    "Crowd.add: drop self._full.note", "Crowd.problem: len(self.sessions) >= self._most -> False"
)
async def test_a_full_port_says_so_until_there_is_room_again(known: set[str]):
    clock = ManualClock()
    crowd = Crowd[str](1, clock, known.__contains__, "doors")
    assert crowd.problem == ""
    crowd.add("first")
    assert crowd.problem == "1 doors are open, and no more may be: others are closed"
    crowd.discard(crowd.add("second") or "")
    crowd.discard("second")
    assert crowd.problem == "doors above 1 were closed a moment ago"
    await clock.advance(minutes=1)
    assert crowd.problem == ""
