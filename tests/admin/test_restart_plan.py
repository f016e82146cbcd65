"""The plan of a rolling restart, from what brokers say."""

from dataclasses import replace

import pytest

from sparrowmq.admin.rolling_restart import BrokerNow, plan_of

A = BrokerNow("broker-a", 0, "10.0.0.1:10911", began_ms=100, version="1")
A1 = BrokerNow("broker-a", 1, "10.0.0.2:10911", began_ms=100, version="1")
B = BrokerNow("broker-b", 0, "10.0.0.3:10911", began_ms=100, version="1")
BOTH = {"broker-a": ["orders"], "broker-b": ["orders"]}


def steps(plan):
    return [(*step.target.place, step.description) for step in plan.steps]


def test_slaves_come_before_masters_which_are_drained():
    plan = plan_of([A, A1, B], BOTH, since_ms=200)
    whole = "drain, restart, undrain"
    assert steps(plan) == [("broker-a", 1, "restart"), ("broker-a", 0, whole), ("broker-b", 0, whole)]
    assert (plan.done, plan.problems, plan.risks) == ((), (), ())


SYNC = replace(A, waits_for_slave=True)


def test_a_master_whose_sends_wait_for_a_slave_is_drained_while_its_slaves_restart():
    plan = plan_of([SYNC, A1, replace(A1, broker_id=2), B], BOTH, since_ms=200)
    assert steps(plan) == [
        ("broker-a", 1, "drain its master, restart"),
        ("broker-a", 2, "restart"),
        ("broker-a", 0, "restart, undrain"),
        ("broker-b", 0, "drain, restart, undrain"),
    ]


def test_a_slave_alone_that_restarts_again_drains_and_opens_its_master():
    plan = plan_of([replace(SYNC, began_ms=300), A1, B], BOTH, since_ms=200)
    assert steps(plan)[0] == ("broker-a", 1, "drain its master, restart, undrain its master")
    drained = replace(SYNC, began_ms=300, is_drained=True)
    plan = plan_of([drained, A1], {"broker-b": ["orders"]}, since_ms=200)
    assert steps(plan) == [("broker-a", 1, "drain its master, restart"), ("broker-a", 0, "undrain")]


def test_a_slave_whose_master_alone_has_a_topic_is_a_risk():
    plan = plan_of([SYNC, A1], {"broker-a": ["orders"]}, since_ms=200)
    assert steps(plan) == [("broker-a", 1, "restart"), ("broker-a", 0, "restart")]
    assert (
        len(plan.risks) == 2 and "no other broker has orders; sends to these say SLAVE_NOT_AVAILABLE" in plan.risks[0]
    )


def test_a_restart_continues_with_brokers_that_have_not_begun_again():
    interrupted = [replace(A1, began_ms=300), replace(A, began_ms=300, is_drained=True), B]
    plan = plan_of(interrupted, BOTH, since_ms=200)
    assert steps(plan) == [("broker-a", 0, "undrain"), ("broker-b", 0, "drain, restart, undrain")]
    assert [each.place for each in plan.done] == [("broker-a", 1)]


def test_an_upgrade_leaves_out_brokers_that_run_the_version():
    plan = plan_of([A, replace(B, version="2")], BOTH, since_ms=2**63, version="2")
    assert [step.target for step in plan.steps] == [A]
    assert steps(plan_of([replace(A, version=None)], {}, since_ms=2**63, version="2"))


def test_a_master_that_alone_has_a_topic_is_not_drained_and_that_is_a_risk():
    plan = plan_of([A, B], {"broker-a": ["orders", "steps"], "broker-b": ["orders"]}, since_ms=200)
    assert steps(plan) == [("broker-a", 0, "restart"), ("broker-b", 0, "drain, restart, undrain")]
    assert len(plan.risks) == 1 and "no other broker has steps" in plan.risks[0]


LEADS = replace(A, member=1, in_sync=frozenset({1, 2}))


def test_a_member_that_is_not_in_sync_is_a_problem():
    plan = plan_of([LEADS, replace(A1, member=3), B], {}, since_ms=200)
    assert plan.problems == ("broker-a: member 3 is not in sync",)


def test_an_elected_master_hands_over_by_itself_and_is_not_drained():
    plan = plan_of([LEADS, replace(A1, member=2)], {}, since_ms=200)
    assert steps(plan) == [("broker-a", 1, "restart"), ("broker-a", 0, "restart")] and not plan.risks


@pytest.mark.parametrize(
    ("brokers", "problem"),
    [
        (
            [replace(A, began_ms=None, problems=("no answer",)), B],
            "broker-a (master, 10.0.0.1:10911): no answer",
        ),
        ([A1, B], "broker-a: no broker is the master"),
    ],
)
def test_what_is_wrong_in_the_cluster_is_a_problem(brokers, problem):
    assert plan_of(brokers, BOTH, since_ms=200).problems == (problem,)


def test_a_broker_that_does_not_answer_is_never_done():
    away = replace(A, began_ms=None)
    assert [step.target for step in plan_of([away], {}, since_ms=0).steps] == [away]
