"""The checker finds every planted fault, and puts what is no fault down to its cause."""

from collections.abc import Callable

import pytest

from tests.client.stress import checker
from tests.client.stress.checker import KINDS, Findings, check
from tests.client.stress.ledger import (
    CANCELLED,
    CUT_SHORT,
    DONE,
    FAILED,
    SKIPPED,
    Acknowledged,
    Begun,
    Decided,
    Doubted,
    Ended,
    Incident,
    Ledger,
    Left,
    Line,
    Place,
    Sent,
)

TOPICS = {"any": frozenset({"plain"}), "orderly": frozenset({"keyed"})}
ORDERED = frozenset({"orderly"})


class Book:
    """A ledger that is written by hand; each line a hundredth of a second after the one before."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.now = 100.0
        self._deliveries = 0

    def send(self, message: str, offset: int | None, key: str = "", sequence: int = 0) -> None:
        """Send it, to be stored at an offset of queue 0, or to be in doubt."""
        topic = "keyed" if key else "plain"
        self.lines.append(Sent(message, topic, self._tick(), key, sequence))
        if offset is None:
            self.lines.append(Doubted(message, "SendFailed", self._tick()))
        else:
            self.lines.append(Acknowledged(message, Place(topic, "a", 0, offset), self._tick()))

    def transact(self, message: str, is_committed: bool) -> None:
        self.lines.append(Sent(message, "plain", self._tick()))
        self.lines.append(Decided(message, Place("plain", "a", 0, -1), is_committed, self._tick()))

    def deliver(
        self,
        message: str,
        offset: int,
        member: str = "m1",
        *,
        topic: str = "plain",
        outcome: str | None = DONE,
        attempt: int = 0,
        is_owned: bool = True,
    ) -> None:
        self._deliveries += 1
        group, place = "orderly" if topic == "keyed" else "any", Place(topic, "a", 0, offset)
        number = self._deliveries
        self.lines.append(Begun(member, group, number, message, place, attempt, is_owned, self._tick()))
        if outcome is not None:
            self.lines.append(Ended(member, number, outcome, self._tick()))

    def happen(self, what: str, who: str) -> None:
        since = self._tick()
        self.lines.append(Incident(what, who, since, self._tick()))

    def leave(self, **remains: object) -> None:
        self.lines.append(Left("m1", **{"took_s": 0.1, **remains}))  # type: ignore[arg-type]

    def check(self) -> Findings:
        ledger = Ledger()
        for line in self.lines:
            ledger.add(line)
        return check(ledger, TOPICS, ORDERED, fixed=frozenset({"keyed"}))

    def _tick(self) -> float:
        self.now += 0.01
        return self.now


def honest() -> Book:
    """Two plain messages, one in doubt that was stored and one that was not, two of transactions, of which one is
    rolled back, and two of a key; all others handled once."""
    book = Book()
    book.send("p0", 0)
    book.send("p1", 1)
    book.send("kept", None)
    book.send("gone", None)
    book.transact("committed", True)
    book.transact("undone", False)
    book.send("k0", 0, "key", 0)
    book.send("k1", 1, "key", 1)
    for offset, message in enumerate(["p0", "p1", "kept", "committed"]):
        book.deliver(message, offset)
    for offset, message in enumerate(["k0", "k1"]):
        book.deliver(message, offset, topic="keyed")
    book.leave()
    return book


def test_an_honest_ledger_breaks_nothing():
    found = honest().check()
    assert found.violations == []
    assert not found.causes


def late(book: Book) -> None:
    book.send("k3", 3, "key", 3)
    book.send("k2", 4, "key", 2)
    book.deliver("k3", 3, topic="keyed")
    book.deliver("k2", 4, topic="keyed")


def moved(book: Book) -> None:
    place = Place("keyed", "b", 0, 2)
    book.lines.append(Sent("k2", "keyed", book.now, "key", 2))
    book.lines.append(Acknowledged("k2", place, book.now))
    book.deliver("k2", 2, topic="keyed")


def overtaken(book: Book) -> None:
    book.send("k2", 2, "key", 2)
    book.send("k3", 3, "key", 3)
    book.deliver("k3", 3, topic="keyed")
    book.deliver("k2", 2, topic="keyed")


def doubled_after_a_failure(book: Book) -> None:
    """One failure, two further deliveries: one given back, one from a commit before it."""
    book.send("p2", 3)
    book.deliver("p2", 3, outcome=FAILED)
    book.happen(checker.MEMBER_LEFT, "m1")
    book.deliver("p2", 0, "m2", topic="%RETRY%any", attempt=1)
    book.deliver("p2", 3, "m2")


def interrupted(outcome: str | None) -> Callable[[Book], object]:
    def plant(book: Book) -> None:
        book.send("p2", 3)
        book.deliver("p2", 3, outcome=outcome)

    return plant


def outlived(book: Book) -> None:
    book.happen(checker.MEMBER_JOINED, "m2")
    book.deliver("p0", 0, is_owned=False)


def waits_behind_a_failed_one(book: Book) -> None:
    """The failed one had been handled before; it came again because of the crash, and then no more."""
    book.happen(checker.MEMBER_CRASHED, "m1")
    book.deliver("p0", 0, "m2", outcome=CANCELLED)
    book.send("p2", 3)


def crash_long_ago(book: Book) -> None:
    book.happen(checker.MEMBER_CRASHED, "m1")
    book.now += 60
    book.send("p2", 3)
    book.deliver("p2", 3)
    book.deliver("p2", 3, "m2")


def crash_of_another(book: Book) -> None:
    book.happen(checker.MEMBER_CRASHED, "m3")
    book.deliver("k1", 1, "m2", topic="keyed")


def rebalanced_in_order(book: Book) -> None:
    book.happen(checker.MEMBER_JOINED, "m2")
    book.deliver("k1", 1, "m2", topic="keyed")


FAULTS: list[tuple[str, Callable[[Book], object]]] = [
    ("lost", lambda book: book.send("p2", 3)),
    ("lost", interrupted(None)),
    ("lost", interrupted(CUT_SHORT)),
    ("not handed back", interrupted(CANCELLED)),
    ("not handed back", waits_behind_a_failed_one),
    ("hung", lambda book: book.lines.append(Sent("p2", "plain", 1.0))),
    ("lost", lambda book: book.transact("another", True)),
    ("rolled back", lambda book: book.deliver("undone", 9)),
    ("phantom", lambda book: book.deliver("invented", 3)),
    ("doubled", lambda book: book.deliver("p0", 0)),
    ("doubled", lambda book: book.deliver("p0", 0, "m2")),
    ("doubled", lambda book: book.deliver("p0", 3)),
    ("doubled", lambda book: book.deliver("p0", 0, topic="%RETRY%any", attempt=1)),
    ("doubled", doubled_after_a_failure),
    ("doubled", crash_long_ago),
    ("doubled", crash_of_another),
    ("doubled", rebalanced_in_order),
    ("stale", outlived),
    ("moved", moved),
    ("stored out of order", late),
    ("handled out of order", overtaken),
    ("leaked", lambda book: book.leave(tasks=["task 'give back'"])),
    ("leaked", lambda book: book.leave(threads=["thread 'asyncio_0'"])),
    ("leaked", lambda book: book.leave(descriptors=["descriptor of socket:[1]"])),
    ("leaked", lambda book: book.leave(unanswered=1)),
    ("slow to leave", lambda book: book.leave(took_s=18.0)),
]


@pytest.mark.parametrize(("kind", "plant"), FAULTS)
def test_a_planted_fault_is_the_only_one_that_is_named(kind, plant):
    book = honest()
    plant(book)
    assert {violation.kind for violation in book.check().violations} == {kind}


EFFECTS: list[tuple[str, dict[str, int]]] = [
    ("effect doubled", {"p0": 2}),
    ("effect lost", {"p1": 0}),
    ("effect of nothing", {"undone": 1}),
]


@pytest.mark.parametrize(("kind", "count"), EFFECTS)
def test_a_wrong_effect_is_found(kind, count):
    ledger = Ledger()
    for line in honest().lines:
        ledger.add(line)
    right = {"p0": 1, "p1": 1, "kept": 1, "committed": 1}
    assert not list(checker.effects_of(ledger, "any", right))
    assert [found.kind for found in checker.effects_of(ledger, "any", {**right, **count})] == [kind]


def test_every_kind_of_violation_is_planted():
    assert {kind for kind, _ in [*FAULTS, *EFFECTS]} == set(KINDS)


def retried(book: Book) -> None:
    book.send("p2", 3)
    book.deliver("p2", 3, outcome=FAILED)
    book.deliver("p2", 0, topic="%RETRY%any", attempt=1)


def skipped_in_a_portion(book: Book) -> None:
    book.send("p2", 3)
    book.deliver("p2", 3, outcome=SKIPPED)
    book.deliver("p2", 0, topic="%RETRY%any", attempt=1)


def stored_twice(book: Book) -> None:
    book.lines.append(Sent("p2", "plain", book.now))
    book.happen(checker.BROKER_KILLED, "a")
    book.lines.append(Acknowledged("p2", Place("plain", "a", 0, 4), book.now))
    book.deliver("p2", 3)
    book.deliver("p2", 4)


def uncommitted(book: Book) -> None:
    book.happen(checker.MEMBER_CRASHED, "m1")
    book.deliver("k1", 1, "m2", topic="keyed")


def unsaved(book: Book) -> None:
    book.happen(checker.BROKER_MOVED, "a")
    book.deliver("p1", 1, "m2")


def routed_anew(book: Book) -> None:
    """A name server that came back knows the brokers one after the other."""
    book.happen(checker.NAME_SERVER_DOWN, "namesrv-0")
    book.now += checker.SETTLES_S
    book.deliver("p1", 1, "m2")


def handed_over(book: Book) -> None:
    book.send("p2", 3)
    book.deliver("p2", 3, outcome=CUT_SHORT)
    book.happen(checker.MEMBER_JOINED, "m2")
    book.deliver("p2", 3, "m2")


def handed_over_in_order(book: Book) -> None:
    book.send("k2", 2, "key", 2)
    book.deliver("k2", 2, topic="keyed", outcome=CUT_SHORT)
    book.happen(checker.MEMBER_LEFT, "m1")
    book.deliver("k2", 2, "m2", topic="keyed")


CAUSES: list[tuple[str, Callable[[Book], object]]] = [
    (checker.FAILED_HANDLER, retried),
    (checker.FAILED_HANDLER, skipped_in_a_portion),
    (checker.IN_DOUBT, stored_twice),
    (checker.CRASH, uncommitted),
    (checker.BROKER_DOWN, unsaved),
    (checker.REBALANCE, routed_anew),
    (checker.REBALANCE, handed_over),
    (checker.REBALANCE, handed_over_in_order),
]


@pytest.mark.parametrize(("cause", "repeat"), CAUSES)
def test_what_comes_again_is_put_down_to_its_cause(cause, repeat):
    book = honest()
    repeat(book)
    found = book.check()
    assert found.violations == []
    assert found.causes == {cause: 1}
