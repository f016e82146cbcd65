"""The generator itself: its requests are well formed, its judge sees harm, and what it found can be repeated."""

from __future__ import annotations

from collections import Counter

import pytest

from sparrowmq.auth.user_check import UserCheck
from sparrowmq.broker.transactions.transactions import TransactionRights
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.messages.recalls import Recalls
from sparrowmq.protocol.requests.request_table import ROWS, Access, Role
from tests.fuzz.access.attacks import Case
from tests.fuzz.access.planted import ask_for_no_owner, check_no_permission
from tests.fuzz.access.play import ATTACKERS, Stage, live, rounds_of

SEED = 20261123


@pytest.mark.slow
async def test_requests_are_so_well_formed_that_an_administrator_may_send_most_of_them():
    """With accounts and with users, because a broker serves the requests about one kind only."""
    asked = {row.code for row in ROWS if row.served_by & (Role.BROKER | Role.NAMESRV)}
    done: set[int] = set()
    for users, identities in ((False, ("admin", "white")), (True, ("admin",))):
        played = await live(rounds_of(SEED, 0, identities, 1600), stage=Stage(users))
        assert played.faults == []
        assert {code for _, code in played.sent} == asked
        done |= {code for _, code, answer in played.answers if answer == 0}
    assert len(done) > 0.75 * len(asked), asked - done


@pytest.mark.parametrize(
    ("users", "codes"),
    [
        pytest.param(False, {1}, id="accounts", marks=pytest.mark.slow),
        pytest.param(True, {1, 16}, id="users", marks=pytest.mark.slow),
    ],
)
async def test_those_whom_the_broker_does_not_know_are_denied_everything(users, codes):
    """Name servers have accounts in both cases."""
    played = await live(rounds_of(SEED, 0, ("nobody", "unknown", "forger"), 400), stage=Stage(users))
    assert played.faults == []
    assert {answer for _, _, answer in played.answers} == codes


@pytest.mark.parametrize(
    "users", [pytest.param(False, id="accounts", marks=pytest.mark.slow), pytest.param(True, id="users")]
)
async def test_nothing_of_others_is_read_written_or_decided(users):
    """The short form of `./run fuzz --access`."""
    played = await live(rounds_of(SEED, 0, ATTACKERS, 1000), stage=Stage(users))
    assert played.faults == [], ",".join(str(case) for case in played.guilty)


async def test_harm_by_users_without_policies_is_seen(monkeypatch):
    monkeypatch.setattr(UserCheck, "authorise", lambda *_: None)
    assert (await live(rounds_of(SEED, 0, ("denied",), 400), stage=Stage(users=True))).faults


@pytest.mark.parametrize(
    "access",
    [Access.WRITE, *(pytest.param(each, marks=pytest.mark.slow) for each in (Access.READ, Access.ADMIN))],
)
async def test_harm_is_seen(monkeypatch, access):
    """As if access control let everybody do one kind of thing."""
    rows = {row.code for row in ROWS if row.access is access}
    played = await _without_guard(monkeypatch, rows)
    assert played.faults


async def _without_guard(monkeypatch, codes):
    from sparrowmq.auth.request_check import AccountCheck

    guarded = AccountCheck.__call__

    def lenient(self, peer, command, row, header):
        if row.code not in codes:
            guarded(self, peer, command, row, header)
        else:
            self.authenticate(peer, command)

    monkeypatch.setattr(AccountCheck, "__call__", lenient)
    return await live(rounds_of(SEED, 0, ("denied",), 1600))  # up to the first fault


@pytest.mark.slow
@pytest.mark.parametrize(
    ("identity", "codes", "found"),
    [
        ("publisher", {RequestCode.ACK_MESSAGE}, "its popped message: its handle is refused"),
        ("publisher", {RequestCode.PULL_MESSAGE}, "its state: groups: owner-producers"),
        ("subscriber", {RequestCode.CHANGE_MESSAGE_INVISIBLETIME}, "its popped message: b's3cr3t job"),
        ("subscriber", {RequestCode.UNLOCK_BATCH_MQ}, "its locks: they are free"),
        ("subscriber", {RequestCode.UPDATE_CONSUMER_OFFSET}, "offsets: orders@owners"),
        ("subscriber", {RequestCode.VIEW_MESSAGE_BY_ID}, "subscriber heard"),
        ("subscriber", {RequestCode.SEND_MESSAGE_V2}, "its messages"),
    ],
)
async def test_harm_by_an_account_with_a_right_on_the_topic_is_seen(monkeypatch, identity, codes, found):
    check_no_permission(monkeypatch, codes)
    faults = (await live(rounds_of(5, 0, (identity,), 1200))).faults
    assert any(found in fault for fault in faults)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "found"), [(TransactionRights, "lasting' is strange"), (Recalls, "timed' is missing")]
)
async def test_harm_by_an_account_that_may_send_to_the_topic_is_seen(monkeypatch, kind, found):
    ask_for_no_owner(monkeypatch, kind)
    faults = (await live(rounds_of(5, 0, ("publisher",), 800))).faults
    assert any(found in fault for fault in faults)


def test_the_same_seed_makes_the_same_cases():
    assert rounds_of(5, 1, ("denied",), 100) == rounds_of(5, 1, ("denied",), 100) != rounds_of(5, 2, ("denied",), 100)
    assert str(Case("denied", 17)) == "denied:17"
    assert Counter(len(cases) for cases in rounds_of(5, 1, ("denied",), 200)) == {80: 2, 40: 1}
