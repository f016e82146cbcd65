"""The health of a cluster in one word, from the findings of doctor.

healthy     nothing is wrong
degraded    something is wrong, and at least one broker takes messages
down        no name server answers, or no broker takes messages
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from sparrowmq.client.admin.findings import Finding, Verdict


class Health(Enum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    DOWN = "down"


def health_of(findings: Iterable[Finding]) -> Health:
    found = list(findings)
    brokers = {each.broker for each in found if each.broker}
    stopped = {each.broker for each in found if each.stops}
    if brokers <= stopped:
        return Health.DOWN
    if any(each.verdict is Verdict.WRONG for each in found):
        return Health.DEGRADED
    return Health.HEALTHY
