"""What of a ledger breaks a promise, and what each repetition was due to. Pure: the same ledger gives the same answer.

A message that is handled once more than needed has one of these causes, or it is a violation:

    failed handler      a handler failed before; one failure explains one more delivery
    send in doubt       it is stored twice: its broker was down while it was sent
    crash               whoever had handled it was killed before that was committed
    broker down         its broker was killed, and with it what it had not saved of the group's offsets
    rebalance           its queue changed hands while it was being handled, or waited for an older message to be done
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from tests.client.stress.ledger import SKIPPED, Acknowledged, Delivery, Incident, Ledger, Sent

FAILED_HANDLER: Final = "failed handler"
IN_DOUBT: Final = "send in doubt"
CRASH: Final = "crash"
BROKER_DOWN: Final = "broker down"
REBALANCE: Final = "rebalance"

# What an incident is called in the ledger.
MEMBER_JOINED: Final = "member joined"
MEMBER_LEFT: Final = "member left"
MEMBER_CRASHED: Final = "member crashed"
BROKER_KILLED: Final = "broker killed"
BROKER_MOVED: Final = "broker moved"
BROKER_RESTARTED: Final = "broker restarted"
NAME_SERVER_DOWN: Final = "name server down"

_BROKER: Final = (BROKER_KILLED, BROKER_MOVED, BROKER_RESTARTED)
_CLUSTER: Final = (*_BROKER, NAME_SERVER_DOWN)
_MEMBERS: Final = (MEMBER_JOINED, MEMBER_LEFT, MEMBER_CRASHED)

# Members commit every 5 s, brokers save offsets every 5 s, and an older message may hold the offset back for a while.
UNCOMMITTED_S: Final = 8.0
UNSAVED_S: Final = 5.0
# The queues of a group settle within this after somebody came or went, and so long may a message wait for an older one.
SETTLES_S: Final = 5.0
# Until every route is whole again: brokers register every 10 s, clients look for routes every 3 s (`HastyClock`). Till
# then a member may know less of the queues, or of the group, than others do.
ROUTED_S: Final = 20.0
LONGEST_S: Final = 120.0  # of an incident with all its effects
LEAVING_S: Final = 15.0


class Violation(NamedTuple):
    """A broken promise; `kind` is one of those of `KINDS`."""

    kind: str
    what: str


KINDS: Final = {
    "hung": "every send is answered or raises",
    "lost": "what was acknowledged is handled",
    "not handed back": "what a handler was cancelled with is handled again",
    "rolled back": "what a transaction took back is never handled",
    "phantom": "what is handled was sent",
    "doubled": "what is handled again has a cause",
    "stale": "what is handled is of a queue that is owned",
    "moved": "messages of a key in an ordered topic are in one queue",
    "stored out of order": "messages of a key are stored in the order of their sends",
    "handled out of order": "messages of a key are handled in their order, one after the other",
    "effect lost": "a message whose handling was committed has its effect",
    "effect doubled": "a message has its effect once, however often it was delivered",
    "effect of nothing": "a message that was taken back has no effect",
    "leaked": "a client that is left leaves nothing behind",
    "slow to leave": "leaving takes no longer than its limits",
}


@dataclass(slots=True)
class Findings:
    """What a check came to."""

    violations: list[Violation] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)


def check(
    ledger: Ledger,
    topics: Mapping[str, frozenset[str]],
    ordered: frozenset[str],
    fixed: frozenset[str] = frozenset(),
) -> Findings:
    """Everything that is wrong with a ledger whose processes have all ended.

    Args:
        topics: what each group consumes.
        ordered: the groups that handle the messages of a key in their order.
        fixed: the ordered topics. In other topics a key has an order in each of its queues.
    """
    found = Findings()
    found.violations += _hung(ledger)
    incidents = _Incidents(ledger.incidents)
    for group, consumed in topics.items():
        found.violations += _missed(ledger, group, consumed)
    for (group, message), deliveries in ledger.deliveries.items():
        deliveries.sort(key=lambda delivery: delivery.begun.at)
        if message not in ledger.sent:
            found.violations.append(Violation("phantom", f"{message} was never sent, {group} got it"))
        if message in ledger.rolled_back:
            found.violations.append(Violation("rolled back", f"{message}, {group} got it: {_told(deliveries[0])}"))
        _Repetitions(ledger, incidents, message, group in ordered, found).explain(deliveries)
    for messages in _keys(ledger).values():
        if messages[0][0].topic in fixed:
            found.violations += _moved(messages)
    for messages in _keys(ledger, fixed).values():
        found.violations += _stored_out_of_order(messages)
        for group in ordered:
            found.violations += _handled_out_of_order(ledger, group, messages)
    found.violations += _left_behind(ledger)
    return found


# Lost ---------------------------------------------------------------------------------------------------------------


def missing(ledger: Ledger, group: str, topics: frozenset[str]) -> list[str]:
    """What was acknowledged and the group has not handled yet."""
    done = ledger.done.get(group, set())
    return [m for m in ledger.acknowledged if m not in done and ledger.sent[m].topic in topics]


def _missed(ledger: Ledger, group: str, topics: frozenset[str]) -> Iterator[Violation]:
    """What is missing for want of a failed message that never came again, and what is for no reason.

    The queue of such a message stops: in order at once, else as soon as its window is full.
    """
    stopped = set(_stopped(ledger, group))
    for message in missing(ledger, group, topics):
        place = ledger.acknowledged[message].place
        history = "; ".join(map(_told, ledger.deliveries.get((group, message), []))) or "never delivered"
        kind = "not handed back" if place[:3] in stopped else "lost"
        yield Violation(kind, f"{message} at {_place(place)}, group {group}: {history}")


def _stopped(ledger: Ledger, group: str) -> Iterator[tuple[str, str, int]]:
    """Queues in which a message failed and never came again, be it one that was handled before."""
    for (whose, _), deliveries in ledger.deliveries.items():
        last = max(deliveries, key=lambda delivery: delivery.begun.at)
        if whose == group and last.has_failed:
            yield last.begun.place[:3]


def _hung(ledger: Ledger) -> Iterator[Violation]:
    answered = ledger.acknowledged.keys() | ledger.rolled_back | ledger.doubted.keys()
    for message, sent in ledger.sent.items():
        if message not in answered:
            yield Violation("hung", f"the send of {message} to {sent.topic} never returned")


# Effects ------------------------------------------------------------------------------------------------------------


def effects_of(ledger: Ledger, group: str, count: Mapping[str, int]) -> Iterator[Violation]:
    """What is wrong with the effects of a group whose handlers have an inbox.

    Args:
        count: how many effects each message of the ledger has, where it has any.
    """
    done = ledger.done.get(group, set())
    for message in ledger.sent:
        effects = count.get(message, 0)
        if effects > 1:
            yield Violation("effect doubled", f"{message} has {effects} effects in group {group}")
        elif effects and message in ledger.rolled_back:
            yield Violation("effect of nothing", f"{message} was rolled back, and has an effect in group {group}")
        elif not effects and message in done:
            yield Violation("effect lost", f"{message} was handled, and has no effect in group {group}")


# Repeated -----------------------------------------------------------------------------------------------------------


class _Incidents:
    """All incidents, for quick looks at those of some time."""

    def __init__(self, incidents: list[Incident]) -> None:
        self._all = sorted(incidents, key=lambda incident: incident.since)
        self._begins = [incident.since for incident in self._all]

    def between(self, start: float, end: float, what: tuple[str, ...]) -> list[Incident]:
        """Those of some kinds that began before `end` and may have had an effect still at `start`."""
        first = bisect_left(self._begins, start - LONGEST_S)
        return [each for each in self._all[first : bisect_right(self._begins, end)] if each.what in what]


class _Repetitions:
    """Puts down each delivery of one message to one group, after the first one, to its cause."""

    def __init__(self, ledger: Ledger, incidents: _Incidents, message: str, is_ordered: bool, found: Findings) -> None:
        self._ledger = ledger
        self._incidents = incidents
        self._message = message
        self._is_ordered = is_ordered
        self._found = found
        self._retried: list[Delivery] = []

    def explain(self, deliveries: list[Delivery]) -> None:
        """All deliveries in the order in which they began."""
        for index, delivery in enumerate(deliveries):
            if not delivery.begun.is_owned:
                self._violate("stale", delivery, deliveries)
                continue
            if not index:
                continue
            cause = self._cause(delivery, deliveries[:index])
            if cause is not None:
                self._found.causes[cause] += 1
            elif all(each.begun.is_owned for each in deliveries[: index + 1]):
                self._violate("doubled", delivery, deliveries)

    def _cause(self, delivery: Delivery, earlier: list[Delivery]) -> str | None:
        same = [each for each in earlier if each.begun.place == delivery.begun.place]
        if (failed := self._failure(delivery, earlier)) is not None:
            self._retried.append(failed)
            return FAILED_HANDLER
        if not same and not _is_retry(delivery):
            return IN_DOUBT if self._was_in_doubt(delivery, earlier) else None
        before = same or earlier
        if any(self._crashed(each, delivery) for each in before):
            return CRASH
        if any(self._broker_was_down(each, delivery) for each in before):
            return BROKER_DOWN
        if any(self._changed_hands(each, delivery) for each in before):
            return REBALANCE
        return None

    def _failure(self, delivery: Delivery, earlier: list[Delivery]) -> Delivery | None:
        """The failed delivery that this one makes good; each is made good once."""
        for each in earlier:
            if each.has_failed and each not in self._retried and each.begun.attempt < delivery.begun.attempt:
                return each
        return None

    def _was_in_doubt(self, delivery: Delivery, earlier: list[Delivery]) -> bool:
        """Whether a broker that has it was down between its send and the answer."""
        sent, answer = self._ledger.sent.get(self._message), self._answered_at()
        brokers = {each.begun.place.broker for each in (*earlier, delivery)}
        return sent is not None and any(
            incident.until >= sent.at
            for incident in self._incidents.between(sent.at, answer, _BROKER)
            if incident.who in brokers
        )

    def _answered_at(self) -> float:
        answer = self._ledger.acknowledged.get(self._message) or self._ledger.doubted.get(self._message)
        return answer.at if answer is not None else float("inf")

    def _crashed(self, before: Delivery, again: Delivery) -> bool:
        return any(
            incident.who == before.begun.member and _spoils(incident, before, again, UNCOMMITTED_S)
            for incident in self._between(before, again, (MEMBER_CRASHED,))
        )

    def _broker_was_down(self, before: Delivery, again: Delivery) -> bool:
        return any(
            incident.who == before.begun.place.broker and _spoils(incident, before, again, UNCOMMITTED_S + UNSAVED_S)
            for incident in self._between(before, again, _BROKER)
        )

    def _changed_hands(self, before: Delivery, again: Delivery) -> bool:
        """Whether its queue may have gone to another member while it, or an older one, was being handled."""
        if self._is_ordered and before.is_done:
            return False  # A queue whose messages are in order is given up between two of them.
        return any(
            _spoils(incident, before, again, SETTLES_S)
            for incident in self._between(before, again, _MEMBERS + _CLUSTER)
            if not (before in self._retried and incident.what == MEMBER_LEFT)
        )

    def _between(self, before: Delivery, again: Delivery, what: tuple[str, ...]) -> list[Incident]:
        return self._incidents.between(before.begun.at, again.begun.at, what)

    def _violate(self, kind: str, delivery: Delivery, deliveries: list[Delivery]) -> None:
        history = "; ".join(map(_told, deliveries))
        self._found.violations.append(Violation(kind, f"{self._message}, group {delivery.begun.group}: {history}"))


def _spoils(incident: Incident, before: Delivery, again: Delivery, reach_s: float) -> bool:
    """Whether what was handled up to `reach_s` before an incident, or while it settled, came again after it."""
    ended = before.ended_at if before.ended_at is not None else float("inf")
    settled = incident.until + (ROUTED_S if incident.what in _CLUSTER else SETTLES_S)
    return incident.since - reach_s <= ended and before.begun.at <= settled and again.begun.at >= incident.since


def _is_retry(delivery: Delivery) -> bool:
    return delivery.begun.place.topic.startswith("%RETRY%")


# Out of order -------------------------------------------------------------------------------------------------------


def _keys(
    ledger: Ledger, fixed: frozenset[str] | None = None
) -> dict[tuple[object, ...], list[tuple[Sent, Acknowledged]]]:
    """The acknowledged messages of each key, in the order in which they were sent; in topics not `fixed` by queue."""
    keys: dict[tuple[object, ...], list[tuple[Sent, Acknowledged]]] = {}
    for message, answer in ledger.acknowledged.items():
        sent = ledger.sent[message]
        if sent.key:
            queue = () if fixed is None or sent.topic in fixed else answer.place[:3]
            keys.setdefault((sent.topic, sent.key, *queue), []).append((sent, answer))
    for messages in keys.values():
        messages.sort(key=lambda pair: pair[0].sequence)
    return keys


def _moved(messages: list[tuple[Sent, Acknowledged]]) -> Iterator[Violation]:
    for (_, before), (sent, answer) in pairwise(messages):
        if before.place[:3] != answer.place[:3]:
            yield Violation(
                "moved",
                f"{sent.message} of key {sent.key} is at {_where(answer)}, the one before it at {_where(before)}",
            )


def _stored_out_of_order(messages: list[tuple[Sent, Acknowledged]]) -> Iterator[Violation]:
    before = None
    for sent, answer in messages:
        if before is not None and before.place[:3] == answer.place[:3] and before.place > answer.place:
            yield Violation(
                "stored out of order",
                f"{sent.message} lies at {_where(answer)}, before {before.message} at {_where(before)}",
            )
        else:
            before = answer


def _handled_out_of_order(ledger: Ledger, group: str, messages: list[tuple[Sent, Acknowledged]]) -> Iterator[Violation]:
    """Each must begin after all before it in its queue were done; by their places, however they were sent."""
    all_done_at, slowest = 0.0, ""
    for sent, _ in sorted(messages, key=lambda pair: pair[1].place):
        deliveries = ledger.deliveries.get((group, sent.message), [])
        for delivery in deliveries:
            if delivery.begun.at < all_done_at and delivery.outcome != SKIPPED:
                yield Violation(
                    "handled out of order",
                    f"{sent.message} of key {sent.key} before {slowest} was done, group {group}: {_told(delivery)}",
                )
        done = [each.ended_at for each in deliveries if each.is_done and each.ended_at is not None]
        if done and min(done) > all_done_at:
            all_done_at, slowest = min(done), sent.message


# Left behind --------------------------------------------------------------------------------------------------------


def _left_behind(ledger: Ledger) -> Iterator[Violation]:
    for left in ledger.left:
        remains = [*left.tasks, *left.threads, *left.descriptors]
        if left.unanswered:
            remains.append(f"{left.unanswered} places in the window")
        if remains:
            yield Violation("leaked", f"{left.who}: {', '.join(remains)}")
        if left.took_s > LEAVING_S:
            yield Violation("slow to leave", f"{left.who} took {left.took_s:.1f} s, at most {LEAVING_S:g} are due")


# For people ---------------------------------------------------------------------------------------------------------


def _where(answer: Acknowledged) -> str:
    return _place(answer.place)


def _place(place: tuple[str, str, int, int]) -> str:
    topic, broker, queue_id, offset = place
    return f"{topic}/{broker}/{queue_id}/{offset}"


def _told(delivery: Delivery) -> str:
    begun = delivery.begun
    ended = f" - {delivery.ended_at:.2f}" if delivery.ended_at is not None else ""
    stale = "" if begun.is_owned else ", not its own any more,"
    return (
        f"{begun.member} at {begun.at:.2f}{ended}{stale} from {_place(begun.place)}, attempt {begun.attempt}: "
        f"{delivery.outcome or 'not ended'}"
    )
