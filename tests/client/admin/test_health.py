import pytest

from sparrowmq.client.admin.findings import Finding, Verdict
from sparrowmq.client.admin.health import Health, health_of

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
