"""A rolling restart that cannot go on stops, with at most one broker away; test_operations.py has one that goes on."""

import json
from dataclasses import replace

import pytest

from sparrowmq.admin.rolling_restart import (
    BrokerNow,
    RollingRestart,
    StepTimeouts,
    broker_now_of,
    missing_brokers,
    plan_of,
)
from sparrowmq.errors import ChangeFailed, NotBack
from sparrowmq.loop.clock import SystemClock

HASTY = StepTimeouts(settle_s=0.1, quiet_s=0.0, noise_s=0.1, back_s=0.5)


@pytest.fixture
def rolling(admin):
    def rolling(begin=None):
        return RollingRestart(admin.servers, SystemClock(), None, HASTY, lambda line: None, begin)

    return rolling


async def test_it_stops_at_the_first_broker_that_does_not_come_back(admin, rolling):
    await admin.create_topic("orders")
    asked = []

    async def begin(target):
        asked.append(target.broker)

    run = rolling(begin)
    plan = await run.plan(since_ms=2**53)
    assert [step.description for step in plan.steps] == ["drain, restart, undrain"] * 2
    with pytest.raises(ChangeFailed, match="it has not begun again") as failed:
        await run.run(plan)
    (error,) = failed.value.failures.values()
    assert isinstance(error, NotBack) and failed.value.done == []
    assert asked == ["broker-0"]
    assert {each.broker: each.is_drained for each in await run.poll()} == {
        "broker-0": True,
        "broker-1": False,
    }


async def test_a_broker_inside_another_program_refuses_and_says_so(admin, rolling):
    await admin.create_topic("orders")
    run = rolling()
    with pytest.raises(ChangeFailed, match="runs inside another program"):
        await run.run(await run.plan(since_ms=2**53))


async def test_no_broker_is_touched_while_another_one_is_away(two, admin, rolling):
    await admin.create_topic("orders")
    asked = []

    async def begin(target):
        asked.append(target)

    run = rolling(begin)
    plan = await run.plan(since_ms=2**53)
    await two.brokers[1].__aexit__(None, None, None)
    with pytest.raises(ChangeFailed, match="broker-1 0 is away"):
        await run.run(plan)
    assert asked == []


def test_members_of_a_group_are_there_whichever_of_them_leads():
    before = [
        BrokerNow("a", 0, "h:1"),
        *(BrokerNow("b", number, "h", member=number or 1) for number in (0, 2, 3)),
    ]
    led_by_2 = [
        BrokerNow("a", 0, "h:1"),
        *(BrokerNow("b", number, "h", member=number or 2) for number in (0, 1, 3)),
    ]
    assert missing_brokers(before, led_by_2) == []
    assert missing_brokers(before, led_by_2[1:3]) == ["a 0 is away", "b lacks 1 of its members"]


async def test_another_member_in_the_place_of_the_restarted_one_is_not_taken_for_it(admin, monkeypatch):
    first = [BrokerNow("b", 0, "h:1", 1, member=1), BrokerNow("b", 2, "h:2", 2, member=2)]
    looks = [
        first,
        [replace(first[1], broker_id=0)],
        [replace(first[1], broker_id=0), replace(first[0], broker_id=1, began_ms=9)],
    ]
    told: list[str] = []
    run = RollingRestart(admin.servers, SystemClock(), None, StepTimeouts(back_s=60), told.append)

    async def look():
        return looks.pop(0) if len(looks) > 1 else looks[0]

    monkeypatch.setattr(run, "poll", look)
    await run._until_back(first[0], 0, {"h:1", "h:2"})
    assert told == ["b (master, h:1): it has not begun again"] * 2 and len(looks) == 1


async def test_no_member_restarts_before_all_members_are_in_sync(admin, monkeypatch):
    master = BrokerNow("b", 0, "h:1", 1, member=1, in_sync=frozenset({1, 2, 3}))
    group = [master, *(BrokerNow("b", number, f"h:{number}", 1, member=number) for number in (2, 3, 4))]
    looks = [
        [replace(master, in_sync=frozenset({1, 3})), *group[1:]],
        [replace(master, in_sync=frozenset()), *group[1:]],
        group,
    ]
    told: list[str] = []
    run = RollingRestart(admin.servers, SystemClock(), None, StepTimeouts(back_s=60), told.append)

    async def look():
        return looks.pop(0)

    monkeypatch.setattr(run, "poll", look)
    plan = plan_of(group, {}, since_ms=0)
    assert plan.problems == ("b: member 4 is not in sync",)
    await run._until_well(group, plan, group[1])
    assert looks == [] and told == [
        "b (slave 2, h:2): b: member 2 is not in sync",
        "b (slave 2, h:2): b: member 1 is not in sync; b: member 2 is not in sync; b: member 3 is not in sync",
    ]


async def test_a_condition_of_before_may_say_something_else_afterwards(admin, monkeypatch):
    """`--yes` restarts brokers with a condition. With another text for the same one it waited in vain."""
    broker = BrokerNow("b", 0, "h:1", 1, problems=("2 open, no producer is online (transactions_open)", "slow"))
    looks = [
        [replace(broker, problems=("no room (disk_full)", "slow"))],
        [replace(broker, problems=("2 open, no producer ends them (transactions_open)", "slow"))],
    ]
    told: list[str] = []
    run = RollingRestart(admin.servers, SystemClock(), None, StepTimeouts(back_s=60), told.append)

    async def look():
        return looks.pop(0)

    monkeypatch.setattr(run, "poll", look)
    await run._until_well([broker], plan_of([broker], {}, since_ms=0), broker)
    assert looks == [] and told == ["b (master, h:1): b (master, h:1): no room (disk_full)"]


async def test_an_interrupted_restart_goes_on_where_it_was(admin, rolling):
    await admin.create_topic("orders")
    await admin.drain("broker-0")
    run = rolling()
    plan = await run.plan(since_ms=0)
    assert [(step.target.broker, step.description) for step in plan.steps] == [("broker-0", "undrain")]
    assert await run.run(plan) == [str(plan.steps[0].target)]
    assert not any(each.is_drained for each in await run.poll())
    assert not (await run.plan(since_ms=0)).steps


def test_what_a_broker_says_of_itself_is_read_and_a_drain_is_no_problem():
    def condition(what):
        return json.dumps({"severity": "warning", "what": what, "sinceMs": 0, "remedy": ""})

    figures = {"bootTimestamp": "7", "commitLogMaxOffset": "9", "putMessageTimesTotal": "3"}
    told = {"condition.drained": condition("closed"), "replicationProblem": "no master"}
    found = broker_now_of("broker-a", 0, "h:1", figures | told, {"drained": "true", "sparrowmqVersion": "1"})
    assert (found.began_ms, found.log_end, found.received, found.is_drained) == (7, 9, 3, True)
    assert (found.version, found.problems) == ("1", ("no master",))
    assert not found.is_member and not found.in_sync and found.role_ms == 7


def test_a_new_master_is_no_restart_of_a_member():
    figures = {"bootTimestamp": "70", "memberId": "2", "memberBootTimestamp": "7", "inSyncMembers": "1,2"}
    found = broker_now_of("broker-a", 1, "h:1", figures, {})
    assert (found.began_ms, found.role_ms, found.is_member) == (7, 70, True)
    assert (found.member, found.in_sync) == (2, frozenset({1, 2}))


def test_a_new_master_has_no_member_in_sync_before_its_epoch_is_settled():
    figures = {"memberId": "2", "inSyncMembers": "1,2", "epochSettled": "false"}
    assert broker_now_of("broker-a", 0, "h:1", figures, {}).in_sync == frozenset()
    assert broker_now_of("broker-a", 0, "h:1", figures | {"epochSettled": "true"}, {}).in_sync == frozenset({1, 2})
