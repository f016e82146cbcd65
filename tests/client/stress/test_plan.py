"""A plan is repeated by its seed, and leaves nothing out."""

from itertools import pairwise

from tests.client.stress.ledger import CANCELLED, DONE, FAILED, TIMED_OUT
from tests.client.stress.plan import (
    BROKERS,
    CLUSTER,
    KILLS,
    MEMBERS,
    NAME_SERVERS,
    ORDERED,
    PAUSE_S,
    Act,
    fate,
    pause_for,
    plan,
    rounds,
)


def test_the_same_seed_makes_the_same_plan():
    acts = (*MEMBERS, *CLUSTER)
    assert plan(7, 60, acts, can_wait=True) == plan(7, 60, acts, can_wait=True)
    assert plan(7, 60, acts, can_wait=True) != plan(8, 60, acts, can_wait=True)


def test_each_act_comes_before_any_of_them_comes_again():
    acts = (*MEMBERS, *CLUSTER)
    steps = plan(1, (len(acts) + 1) * PAUSE_S[1], acts, can_wait=True)
    assert {step.act for step in steps[: len(acts)]} == set(acts)


def test_steps_are_in_order_and_within_the_time():
    times = [step.at_s for step in plan(2, 30, MEMBERS, can_wait=True)]
    assert times == sorted(times)
    assert len(times) > 10
    assert times[-1] < 30


def test_a_round_kills_one_of_each_and_comes_as_often_as_it_is_wanted():
    steps = rounds(5, 50)
    assert [step.act for step in steps] == [Act.ONE_OF_EACH] * 50
    assert {step.on for step in steps} == set(BROKERS)
    assert {int(step.pick * NAME_SERVERS) for step in steps} == set(range(NAME_SERVERS))
    assert all(after.at_s - before.at_s > before.down_s for before, after in pairwise(steps))


def test_brokers_are_killed_about_as_often_as_it_is_wanted():
    acts = (*MEMBERS, *CLUSTER)
    steps = plan(4, 4 * 3600, acts, can_wait=True, pause_s=pause_for(200, 4 * 3600, acts))
    assert 180 <= sum(step.act in KILLS for step in steps) <= 220


def test_members_in_order_crash_only_where_their_locks_can_be_waited_for():
    def crashed(can_wait: bool) -> set[str]:
        return {step.on for step in plan(3, 200, MEMBERS, can_wait) if step.act is Act.CRASH}

    assert crashed(can_wait=False).isdisjoint(ORDERED)
    assert crashed(can_wait=True) >= ORDERED


def test_every_fate_befalls_some_messages_and_the_third_attempt_goes_well():
    messages = [f"plain-{number}" for number in range(2000)]
    assert {fate(1, each, 0, False) for each in messages} == {DONE, FAILED, TIMED_OUT, CANCELLED}
    assert {fate(1, each, 2, False) for each in messages} == {DONE}
    failing = [sum(fate(1, each, 0, is_ordered) != DONE for each in messages) for is_ordered in (False, True)]
    assert failing[0] > 4 * failing[1] > 0
