"""Attacks by gRPC: nothing of others is read, written or decided, and the judge sees harm."""

from __future__ import annotations

import pytest

from sparrowmq.broker.grpc_port import LocalLink
from sparrowmq.broker.transactions.transactions import TransactionRights
from sparrowmq.grpc.statuses import Status
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.messages.recalls import Recalls
from tests.fuzz.access.attacks import OWN, Case
from tests.fuzz.access.grpc_attacks import methods
from tests.fuzz.access.grpc_play import GrpcLife
from tests.fuzz.access.grpc_sound import fitting, grpc_attack, sound_call
from tests.fuzz.access.planted import ask_for_no_owner, check_no_permission
from tests.fuzz.access.play import ATTACKERS, Stage, live, rounds_of, scene

SEED = 20261129
ACCOUNTS = Stage(port="grpc")
USERS = Stage(users=True, port="grpc")
MQPROXY = Stage(users=True, port="mqproxy")
NOTHING_NEW = ("ReceiveMessage", frozenset({Status.MESSAGE_NOT_FOUND}))
STAGES = [
    pytest.param(ACCOUNTS, 1, id="accounts"),
    pytest.param(ACCOUNTS, 6, id="accounts-more", marks=pytest.mark.slow),
    pytest.param(USERS, 4, id="users", marks=pytest.mark.slow),
    pytest.param(MQPROXY, 4, id="mqproxy", marks=pytest.mark.slow),
]


def cases(identities, count=150, seed=SEED):
    return rounds_of(seed, 0, identities, count, count)


@pytest.mark.parametrize("stage, seeds", STAGES)
async def test_nothing_of_others_is_read_written_or_decided_by_grpc(stage, seeds):
    """The short form of `./run fuzz --access --port grpc`."""
    for seed in range(SEED, SEED + seeds):
        played = await live(cases(ATTACKERS, seed=seed), stage=stage)
        assert played.faults == [], ",".join(str(case) for case in played.guilty)


@pytest.mark.parametrize(
    "stage, seeds",
    [
        pytest.param(ACCOUNTS, 1, id="accounts"),
        pytest.param(USERS, 3, id="users", marks=pytest.mark.slow),
        pytest.param(MQPROXY, 3, id="mqproxy", marks=pytest.mark.slow),
    ],
)
async def test_every_sound_call_succeeds_for_the_account_that_has_the_right(stage, seeds):
    """Otherwise a refusal would not show access control."""
    refused = []
    async with scene(stage) as it:
        assert isinstance(it.life, GrpcLife)
        await it.victim.prepare()
        for method in methods():
            for seed in range(seeds):
                await it.life.prepare()
                for identity, targets in (("owner", it.victim.targets), ("other", OWN)):
                    for name in fitting(method, targets):
                        now_s = it.clock.now_ms() // 1000
                        call = sound_call(method, targets[name], "owner@1", seed, now_s)
                        codes = await it.life.answered(identity, call)
                        if codes != {Status.OK} and (method.name, codes) != NOTHING_NEW:
                            refused.append(f"{identity} gets {sorted(codes)} for {name}: {call}")
    assert refused == []


@pytest.mark.parametrize(
    "found, codes",
    [
        ("the acknowledgement of", {RequestCode.ACK_MESSAGE}),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("is visible before its consumer is done", {RequestCode.CHANGE_MESSAGE_INVISIBLETIME}),
                ("its state: offsets", {RequestCode.POP_MESSAGE}),
                ("is strange", {RequestCode.SEND_MESSAGE_V2}),
                ("topics: %DLQ%poppers", {RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.ACK_MESSAGE}),
                ("learns", {RequestCode.RECALL_MESSAGE}),
                ("learns", {RequestCode.CHECK_CLIENT_CONFIG}),
                ("learns", {RequestCode.GET_MIN_OFFSET}),
            )
        ),
    ],
)
async def test_harm_by_a_port_that_checks_no_permission_for_one_request_is_found(monkeypatch, found, codes):
    check_no_permission(monkeypatch, codes)
    faults = (await live(cases(("denied", "other")), stage=ACCOUNTS)).faults
    assert any(found in fault for fault in faults)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [TransactionRights, Recalls])
async def test_harm_by_an_account_that_may_only_send_to_the_topic_is_found(monkeypatch, kind):
    ask_for_no_owner(monkeypatch, kind)
    assert (await live(cases(("publisher",)), stage=ACCOUNTS)).faults


@pytest.mark.slow
async def test_a_port_that_answers_about_any_topic_is_found(monkeypatch):
    async def allow(*_):
        """As the port did before."""

    monkeypatch.setattr(LocalLink, "check_topic_access", allow)
    played = await live(cases(("denied", "other")), stage=ACCOUNTS)
    assert any("learns" in fault for fault in played.faults)


def test_the_same_seed_makes_the_same_call():
    targets = {"popped": {"topic": "jobs", "group": "poppers", "receipt_handle": "handle"}}
    made = [[str(grpc_attack(Case("other", seed), targets, 0)) for seed in range(50)] for _ in "12"]
    assert made[0] == made[1]
    assert any('receipt_handle: "handle"' in each for each in made[0])
