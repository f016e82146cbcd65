"""Which connection waits for an answer."""

from typing import Any

import pytest

from sparrowmq.broker import clients as module
from sparrowmq.broker.clients import ReplyWaiters
from sparrowmq.protocol.messages.properties import Properties, render


class Somebody:
    """A connection of an account."""

    def __init__(self, account=None):
        self.principal: Any = None if account is None else self
        self.access_key, self.is_admin, self.colleagues = account, False, ()


def asks(correlation="c-1", client_id="asker", **more):
    return Properties(render({"CORRELATION_ID": correlation, "REPLY_TO_CLIENT": client_id, **more}))


@pytest.fixture
def askers(clock):
    return ReplyWaiters(clock)


def test_the_connection_that_asked_is_found_by_both_its_ids(askers):
    one: Any = Somebody()
    askers.note("prices", asks(), one)
    assert askers.find("c-1", "asker").peer is one
    assert askers.find("c-1", "another") is None
    assert askers.find("c-2", "asker") is None
    assert askers.find(None, "asker") is None


def test_an_answer_asks_for_none(askers):
    askers.note("DefaultCluster_REPLY_TOPIC", asks(), Somebody())
    assert askers.find("c-1", "asker") is None


@pytest.mark.parametrize(("ttl", "seconds"), [("3000", 3), ("99999999", 600), ("soon", 30), ("9" * 40, 30)])
async def test_a_request_may_be_answered_as_long_as_its_sender_waits(askers, clock, ttl, seconds):
    askers.note("prices", asks(TTL=ttl), Somebody())
    await clock.advance(seconds - 0.5)
    assert askers.find("c-1", "asker") is not None
    await clock.advance(0.5)
    assert askers.find("c-1", "asker") is None


async def test_no_other_account_takes_a_correlation_id_over(askers, clock):
    owner, thief, again = Somebody("owner"), Somebody("thief"), Somebody("owner")
    askers.note("prices", asks(TTL="3000"), owner)
    askers.note("prices", asks(TTL="3000"), thief)
    assert askers.find("c-1", "asker").peer is owner
    askers.note("prices", asks(TTL="3000"), again)
    assert askers.find("c-1", "asker").peer is again, "it was sent again, perhaps on a new connection"
    await clock.advance(3)
    askers.note("prices", asks(TTL="3000"), thief)
    assert askers.find("c-1", "asker").peer is thief


async def test_the_oldest_requests_make_room(askers, clock, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITERS", 3)
    askers.note("prices", asks("expired", TTL="1000"), Somebody())
    await clock.advance(2)
    for number in range(4):
        askers.note("prices", asks(f"c-{number}"), Somebody())
    assert [askers.find(f"c-{number}", "asker") is None for number in range(4)] == [True, False, False, False]
    askers.note("prices", asks("x" * 1000), Somebody())
    assert askers.find("x" * 1000, "asker") is None
