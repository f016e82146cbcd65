"""The findings of an examination, the conditions that brokers report, and the health that they make.

healthy     nothing is wrong
degraded    something is wrong, and at least one broker takes messages
down        no name server answers, or no broker takes messages

Findings follow from others. The cause comes first, and its consequences come after it:

    disk_full at slave 1 ──> master_not_followed at slave 1 ──> no_slave at the master ──> slave_gone at the master

A broker names the cause if that is a condition of its own (metrics/condition_kinds.py). The rules here join the signs
of several servers. Some of them are no conditions, because a server that does not answer reports none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from sparrowmq.errors import SparrowError
from sparrowmq.metrics.condition_kinds import Severity
from sparrowmq.protocol.requests.bodies import CONDITION, ReportedCondition

# The conditions in which a broker takes no messages, as its /readyz says.
STOPPING: Final = frozenset({"store_failed", "disk_full", "unregistered"})
_NOTICE: Final = Severity.NOTICE.value
T = TypeVar("T")
NO_ANSWER: Final = "no_answer"  # a server does not answer
DIED: Final = "missing"  # a broker is not registered any more
HEADLESS: Final = "headless"  # only slaves of a name are registered


class Verdict(Enum):
    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Sign:
    """Something that is wrong.

    Attributes:
        name: of the condition, or one of those above.
        broker: the name of the broker that it is about; "" for a name server.
        address: of the server; "" if it is about all brokers of the name.
        what: the facts, in one sentence.
        told_cause: the name of another condition of the same server, from which it follows as the server says.
    """

    name: str
    broker: str
    address: str
    is_master: bool
    what: str
    told_cause: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        what: the result.
        check: the way it was found.
        mend: the solution; "" where none is needed.
        broker: the name of the broker that it is about; "" where it is about none.
        stops: whether this broker takes no messages because of it.
        sign: what the rules of causes read of it.
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


ELECTION_ADVICE: Final = (
    "its members elect one within seconds; if they do not, each one's PROBLEM in `sparrowmq "
    "cluster` says what it waits for (docs/operate/failover.md)"
)


def elects_master(status: Mapping[str, str]) -> bool:
    """Whether a brokerStatus is that of a member of a group that elects its master."""
    return "memberId" in status


def reported_conditions(status: Mapping[str, str]) -> dict[str, ReportedCondition]:
    """Return the conditions in a brokerStatus that ask for an action, by their names; others are left out."""
    return {name: condition for name, condition in _all_conditions(status).items() if condition.severity != _NOTICE}


def _all_conditions(status: Mapping[str, str]) -> dict[str, ReportedCondition]:
    conditions = {}
    for key, value in status.items():
        if key.startswith(CONDITION):
            try:
                conditions[key.removeprefix(CONDITION)] = ReportedCondition.decode(value.encode())
            except SparrowError:
                continue
    return conditions


def condition_findings(
    server: str, status: Mapping[str, str], broker: str = "", address: str = "", is_master: bool = True
) -> list[Finding]:
    """Return a finding for each condition in which a server does less than people expect."""
    findings = []
    for name, condition in _all_conditions(status).items():
        since = datetime.fromtimestamp(condition.since_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds")
        result = f"{server}: {condition.what} ({name}, since {since}, {condition.severity})"
        check = f"{CONDITION}{name} of its brokerStatus"
        sign = Sign(name, broker, address, is_master, condition.what, condition.cause or "")
        stops = is_master and name in STOPPING
        verdict = Verdict.WARNING if condition.severity == _NOTICE else Verdict.WRONG
        findings.append(Finding(verdict, result, check, condition.remedy, broker, stops, sign))
    return findings


def causes_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings, each cause before what follows from it, which names the cause."""
    return [
        finding if cause is None else replace(finding, cause=cause.what)
        for tree in with_causes(findings, lambda finding: finding.sign)
        for finding, cause in tree
    ]


def health_of(findings: Iterable[Finding]) -> Health:
    all_findings = list(findings)
    brokers = {finding.broker for finding in all_findings if finding.broker}
    stopped = {finding.broker for finding in all_findings if finding.stops}
    if brokers <= stopped:
        return Health.DOWN
    if any(finding.verdict is Verdict.WRONG for finding in all_findings):
        return Health.DEGRADED
    return Health.HEALTHY


_NO_SIGN: Final = Sign("", "", "", False, "")


class _CauseServer(Enum):
    """The server with the cause, as seen from the server with the consequence."""

    HERE = "the same"
    MASTER = "the master of the same name"
    SLAVE = "a slave of the same name"
    MEMBER = "any of the same name"
    NAMED = "one whose address the text of the consequence has"


class _Rule(NamedTuple):
    consequences: tuple[str, ...]
    where: _CauseServer
    causes: tuple[str, ...]


_RULES: Final = (
    _Rule(("clock", "busy"), _CauseServer.HERE, ("clock_wrong", "disk_hangs")),
    _Rule(
        ("no_slave", "slave_gone", "slave_behind"),
        _CauseServer.SLAVE,
        (NO_ANSWER, DIED, "master_not_followed", "disk_full", "store_failed", "disk_hangs", "process_paused"),
    ),
    _Rule(("master_not_followed",), _CauseServer.MASTER, (NO_ANSWER, DIED, HEADLESS, "log_damaged")),
    _Rule((HEADLESS, "no_master"), _CauseServer.MEMBER, (DIED, NO_ANSWER)),
    _Rule((HEADLESS,), _CauseServer.MEMBER, ("no_master",)),
    _Rule(("name_server_away", "unregistered"), _CauseServer.NAMED, (NO_ANSWER,)),
)


def with_causes(items: Sequence[T], sign_of: Callable[[T], Sign | None]) -> list[list[tuple[T, T | None]]]:
    """Return the items in trees, each with its cause; the cause comes first. Without a sign an item has no cause."""
    cause_positions = causes([sign_of(item) or _NO_SIGN for item in items])
    pairs = [
        (item, None if cause is None else items[cause]) for item, cause in zip(items, cause_positions, strict=True)
    ]
    return [[pairs[position] for position in tree] for tree in trees(cause_positions)]


def causes(signs: Sequence[Sign]) -> list[int | None]:
    """Return for each sign the position of the one from which it follows; None if it follows from no other. Servers may
    name causes in a circle. Its first sign follows from no other then, or none would show.
    """
    positions = [_cause(sign, signs) for sign in signs]
    for position in range(len(positions)):
        chain, cause = {position}, positions[position]
        while cause is not None and cause not in chain:
            chain.add(cause)
            cause = positions[cause]
        if cause == position:
            positions[position] = None
    return positions


def trees(causes: Sequence[int | None]) -> Iterator[list[int]]:
    """Yield the positions of each cause and what follows from it, the cause first, and otherwise as they are."""

    def from_here(position: int) -> list[int]:
        effects = [effect for effect, cause in enumerate(causes) if cause == position]
        return [position, *(descendant for effect in effects for descendant in from_here(effect))]

    return (from_here(position) for position, cause in enumerate(causes) if cause is None)


def _cause(sign: Sign, signs: Sequence[Sign]) -> int | None:
    for position, other in enumerate(signs):
        if sign.told_cause == other.name and _is_at(_CauseServer.HERE, sign, other):
            return position
    for rule in _RULES:
        if sign.name in rule.consequences:
            for name in rule.causes:
                for position, other in enumerate(signs):
                    if other.name == name and _is_at(rule.where, sign, other):
                        return position
    return None


def _is_at(where: _CauseServer, sign: Sign, other: Sign) -> bool:
    if where is _CauseServer.NAMED:
        return other.address != sign.address and other.address in sign.what
    if where is _CauseServer.HERE:
        return other.address == sign.address != ""
    is_another = other.broker == sign.broker != "" and other.address != sign.address
    return is_another and (where is _CauseServer.MEMBER or other.is_master is (where is _CauseServer.MASTER))
