"""What a broker tells by its conditions becomes findings."""

import pytest

from sparrowmq.admin.findings import (
    STOPPING,
    Finding,
    Health,
    Verdict,
    causes_first,
    condition_findings,
    health_of,
    reported_conditions,
)
from sparrowmq.metrics.condition_kinds import KINDS

TOLD = {
    "condition.drained": (
        '{"severity":"warning","what":"it takes no messages","sinceMs":1767225600000,"remedy":"undrain"}'
    ),
    "condition.of_another": "no JSON",
    "putTps": "0",
}


def test_a_condition_is_a_finding_with_its_begin_and_its_remedy():
    assert list(reported_conditions(TOLD)) == ["drained"]
    (found,) = condition_findings("broker a", TOLD)
    assert found.verdict is Verdict.WRONG and found.mend == "undrain"
    assert found.what == "broker a: it takes no messages (drained, since 2026-01-01 00:00:00+00:00, warning)"


def test_a_notice_is_a_warning_and_leaves_the_cluster_healthy():
    status = {"condition.secret_missing": '{"severity":"notice","what":"no slave is let in"}'}
    (found,) = condition_findings("broker a", status, "a")
    assert found.verdict is Verdict.WARNING and health_of([found]) is Health.HEALTHY
    assert reported_conditions(status) == {}


def test_the_conditions_in_which_a_broker_takes_nothing_are_those_of_its_readyz():
    assert {kind.name for kind in KINDS if kind.is_unready} == STOPPING


def test_an_effect_names_its_cause_and_comes_after_it():
    slave = {
        "condition.master_not_followed": '{"what":"no room","cause":"disk_full"}',
        "condition.disk_full": '{"what":"no room"}',
    }
    master = {"condition.no_slave": '{"what":"no slave follows"}'}
    well = Finding(Verdict.OK, "broker b answers", "asked")
    found = causes_first(
        [well, *condition_findings("a", master, "a", "h:1"), *condition_findings("s", slave, "a", "h:2", False)]
    )
    assert [each.sign.name if each.sign else "" for each in found] == [
        "",
        "disk_full",
        "master_not_followed",
        "no_slave",
    ]
    assert [each.cause for each in found] == ["", "", found[1].what, found[2].what]
    assert not found[1].stops, "a slave takes no messages anyway"


WELL = [Finding(Verdict.OK, "answers", "asked", broker=name) for name in ("a", "b")]


def wrong(broker: str = "", stops: bool = False) -> Finding:
    return Finding(Verdict.WRONG, "it is wrong", "looked", "fix it", broker, stops)


@pytest.mark.parametrize(
    ("findings", "health"),
    [
        (WELL, Health.HEALTHY),
        ([*WELL, Finding(Verdict.WARNING, "a little", "looked", broker="a")], Health.HEALTHY),
        ([*WELL, wrong()], Health.DEGRADED),
        ([*WELL, wrong("a", True)], Health.DEGRADED),
        ([*WELL, wrong("a", True), wrong("b")], Health.DEGRADED),
        ([*WELL, wrong("a", True), wrong("b", True)], Health.DOWN),
        ([wrong()], Health.DOWN),
        ([], Health.DOWN),
    ],
)
def test_the_word_says_whether_messages_are_taken(findings: list[Finding], health: Health) -> None:
    assert health_of(findings) is health
