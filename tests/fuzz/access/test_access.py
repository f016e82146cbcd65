"""The generator itself: its requests are well formed, its judge sees harm, and what it found can be repeated."""

from __future__ import annotations

from collections import Counter

import pytest

from sparrowmq.protocol.requests.request_table import ROWS, Access, Role
from tests.fuzz.access.attacks import Case
from tests.fuzz.access.play import ATTACKERS, live, rounds_of

SEED = 20261123


async def test_requests_are_so_well_formed_that_an_administrator_may_send_most_of_them():
    played = await live(rounds_of(SEED, 0, ("admin", "white"), 1200))
    assert played.faults == []
    done = {code for _, code, answer in played.answers if answer == 0}
    asked = {row.code for row in ROWS if row.served_by & (Role.BROKER | Role.NAMESRV)}
    assert {code for _, code in played.sent} == asked
    assert len(done) > 0.75 * len(asked), asked - done


async def test_those_whom_the_broker_does_not_know_are_denied_everything():
    played = await live(rounds_of(SEED, 0, ("nobody", "unknown", "forger"), 400))
    assert played.faults == []
    assert {answer for _, _, answer in played.answers} == {1}


async def test_nothing_of_others_is_read_written_or_decided():
    """The short form of `./run fuzz --access`."""
    played = await live(rounds_of(SEED, 0, ATTACKERS, 1000))
    assert played.faults == [], ",".join(str(case) for case in played.guilty)


@pytest.mark.parametrize("access", [Access.WRITE, Access.READ, Access.ADMIN])
async def test_harm_is_seen(monkeypatch, access):
    """As if access control let everybody do one kind of thing."""
    rows = {row.code for row in ROWS if row.access is access}
    played = await _without_guard(monkeypatch, rows)
    assert played.faults


async def _without_guard(monkeypatch, codes):
    from sparrowmq.auth.request_check import Guard

    guarded = Guard.__call__

    def lenient(self, peer, command, row, header):
        if row.code not in codes:
            guarded(self, peer, command, row, header)
        elif self._accounts is not None:
            self._accounts.authenticate(peer, command, header)

    monkeypatch.setattr(Guard, "__call__", lenient)
    return await live(rounds_of(SEED, 0, ("denied",), 400))


def test_the_same_seed_makes_the_same_cases():
    assert (
        rounds_of(5, 1, ("denied",), 100)
        == rounds_of(5, 1, ("denied",), 100)
        != rounds_of(5, 2, ("denied",), 100)
    )
    assert str(Case("denied", 17)) == "denied:17"
    assert Counter(len(cases) for cases in rounds_of(5, 1, ("denied",), 200)) == {80: 2, 40: 1}
