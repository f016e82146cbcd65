"""Checks what is over and forgets it, so that a run of hours needs the memory of some minutes.

    ledger ── sent, answered, handled long ago ──> part ── check ──> findings
                                                    ^
                 the last message of each key ──────┘  so that the order is seen across two parts

A message that comes again after it was forgotten is a violation: nothing explains it so late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from tests.client.stress.checker import Findings, Violation
from tests.client.stress.ledger import Acknowledged, Delivery, Ledger, Sent

SETTLED_S: Final = 300.0  # longer than any cause of a repetition has an effect

Kept = tuple[Sent, Acknowledged, dict[str, Delivery]]


class Settling:
    """What was found so far.

    Args:
        check: finds the violations of a ledger.
        groups: the groups that consume a topic.
    """

    def __init__(self, check: Callable[[Ledger], Findings], groups: Callable[[str], list[str]]) -> None:
        self.found = Findings()
        self._check = check
        self._groups = groups
        self._forgotten: set[int] = set()
        self._last: dict[tuple[object, ...], Kept] = {}

    def settle(self, ledger: Ledger, before: float) -> int:
        """Check and forget all messages that were over before that time; return how many."""
        part = Ledger(incidents=ledger.incidents)
        over = [message for message in ledger.sent if self._is_over(ledger, message, before)]
        for message in over:
            ledger.take(message, part)
        self._check_part(part)
        self._remember(part, over)
        self._refuse_late(ledger)
        return len(over)

    def finish(self, ledger: Ledger) -> Findings:
        """Check the rest; the findings of all."""
        self._refuse_late(ledger)
        self._check_part(ledger)
        return self.found

    def _is_over(self, ledger: Ledger, message: str, before: float) -> bool:
        sent = ledger.sent[message]
        if sent.at >= before:
            return False
        groups = self._groups(sent.topic)
        last = [each for group in groups for each in ledger.deliveries.get((group, message), ())]
        if any(each.ended_at is None or each.ended_at >= before for each in last):
            return False
        answer = ledger.acknowledged.get(message)
        if answer is None:
            return message in ledger.doubted or message in ledger.rolled_back
        return answer.at < before and all(message in ledger.done.get(group, ()) for group in groups)

    def _check_part(self, part: Ledger) -> None:
        for sent, answer, deliveries in self._last.values():
            part.sent[sent.message], part.acknowledged[sent.message] = sent, answer
            for group, delivery in deliveries.items():
                part.deliveries[group, sent.message] = [delivery]
                part.done.setdefault(group, set()).add(sent.message)
        found = self._check(part)
        self.found.violations += found.violations
        self.found.causes += found.causes

    def _remember(self, part: Ledger, over: list[str]) -> None:
        self._forgotten.update(map(hash, over))
        for message in over:
            sent, answer = part.sent[message], part.acknowledged.get(message)
            if answer is None or not sent.key:
                continue
            where = (sent.topic, sent.key, *answer.place[:3])
            if where not in self._last or self._last[where][0].sequence < sent.sequence:
                self._last[where] = sent, answer, self._first_done(part, sent)

    def _first_done(self, part: Ledger, sent: Sent) -> dict[str, Delivery]:
        found = {}
        for group in self._groups(sent.topic):
            done = [each for each in part.deliveries.get((group, sent.message), ()) if each.is_done]
            first = min(done, key=lambda each: each.begun.at)
            begun = msgspec.structs.replace(first.begun, is_owned=True)
            found[group] = Delivery(begun, first.ended_at, first.outcome)
        return found

    def _refuse_late(self, ledger: Ledger) -> None:
        """A forgotten message was delivered again."""
        for group, message in [key for key in ledger.deliveries if key[1] not in ledger.sent]:
            if hash(message) in self._forgotten:
                del ledger.deliveries[group, message]
                self.found.violations.append(
                    Violation("doubled", f"{message} came to {group} again, {SETTLED_S:g} s after all was over")
                )
