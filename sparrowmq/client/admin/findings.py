"""The findings of an examination, those that a broker tells by its conditions, and the health that they make.

healthy     nothing is wrong
degraded    something is wrong, and at least one broker takes messages
down        no name server answers, or no broker takes messages
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from sparrowmq.client.admin.consequences import Sign, with_causes
from sparrowmq.errors import SparrowError
from sparrowmq.metrics.condition_kinds import Severity
from sparrowmq.protocol.requests.bodies import CONDITION, ReportedCondition

# The conditions in which a broker takes no messages, as its /readyz says.
STOPPING: Final = frozenset({"store_failed", "disk_full", "unregistered"})
_NOTICE: Final = Severity.NOTICE.value


class Verdict(Enum):
    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        what: the result.
        check: the way it was found.
        mend: the solution; "" where none is needed.
        broker: the name of the broker that it is about; "" where it is about none.
        stops: whether this broker takes no messages because of it.
        sign: what the rules of consequences.py read of it.
        cause: the result of the finding from which this one follows; "" if it follows from none.
    """

    verdict: Verdict
    what: str
    check: str
    mend: str = ""
    broker: str = ""
    stops: bool = False
    sign: Sign | None = None
    cause: str = ""


class Health(Enum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    DOWN = "down"


ELECTION: Final = (
    "its members elect one within seconds; if they do not, each one's PROBLEM in `sparrowmq "
    "cluster` says what it waits for (docs/operate/failover.md)"
)


def elects(status: Mapping[str, str]) -> bool:
    """Whether a brokerStatus is that of a member of a group that elects its master."""
    return "memberId" in status


def told_conditions(status: Mapping[str, str]) -> dict[str, ReportedCondition]:
    """Return the conditions in a brokerStatus that ask for an action, by their names; others are left out."""
    return {name: each for name, each in _with_notices(status).items() if each.severity != _NOTICE}


def _with_notices(status: Mapping[str, str]) -> dict[str, ReportedCondition]:
    found = {}
    for key, value in status.items():
        if key.startswith(CONDITION):
            try:
                found[key.removeprefix(CONDITION)] = ReportedCondition.decode(value.encode())
            except SparrowError:
                continue
    return found


def of_conditions(
    server: str, status: Mapping[str, str], broker: str = "", address: str = "", is_master: bool = True
) -> list[Finding]:
    """Return a finding for each condition in which a server does less than people expect."""
    found = []
    for name, each in _with_notices(status).items():
        since = datetime.fromtimestamp(each.since_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
        what = f"{server}: {each.what} ({name}, since {since}, {each.severity})"
        check = f"{CONDITION}{name} of its brokerStatus"
        sign = Sign(name, broker, address, is_master, each.what, each.cause or "")
        stops = is_master and name in STOPPING
        verdict = Verdict.WARNING if each.severity == _NOTICE else Verdict.WRONG
        found.append(Finding(verdict, what, check, each.remedy, broker, stops, sign))
    return found


def causes_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, each cause before what follows from it, which names the cause."""
    return [
        each if cause is None else replace(each, cause=cause.what)
        for tree in with_causes(findings, lambda each: each.sign)
        for each, cause in tree
    ]


def health_of(findings: Iterable[Finding]) -> Health:
    found = list(findings)
    brokers = {each.broker for each in found if each.broker}
    stopped = {each.broker for each in found if each.stops}
    if brokers <= stopped:
        return Health.DOWN
    if any(each.verdict is Verdict.WRONG for each in found):
        return Health.DEGRADED
    return Health.HEALTHY
