"""What is over is checked once and forgotten, and the order is seen across two parts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.client.stress import checker
from tests.client.stress.ledger import Ledger
from tests.client.stress.settling import Settling
from tests.client.stress.test_checker import ORDERED, TOPICS, Book, honest

FIXED = frozenset({"keyed"})


def later(book: Book) -> None:
    book.send("k2", 2, "key", 2)
    book.deliver("k2", 2, topic="keyed")


def moved(book: Book) -> None:
    later(book)
    book.lines[-3].place = book.lines[-3].place._replace(broker="b")  # type: ignore[union-attr]


def stored_before(book: Book) -> None:
    book.send("k2", 0, "key", 2)
    book.deliver("k2", 0, topic="keyed")


def again(book: Book) -> None:
    book.deliver("p0", 0)


def lost(book: Book) -> None:
    book.send("p2", 5)


def run(end: Callable[[Book], None], parts: int = 2) -> tuple[Ledger, Settling]:
    """Settle an honest ledger, go on with it, and finish."""
    book, ledger = honest(), Ledger()
    settling = Settling(
        lambda part: checker.check(part, TOPICS, ORDERED, FIXED),
        lambda topic: [group for group, topics in TOPICS.items() if topic in topics],
    )
    for _ in range(parts):
        for line in book.lines:
            ledger.add(line)
        book.lines.clear()
        book.now += 1000
        settling.settle(ledger, book.now)
    end(book)
    for line in book.lines:
        ledger.add(line)
    return ledger, settling


def test_what_is_over_takes_no_memory_and_breaks_nothing():
    ledger, settling = run(later)
    assert set(ledger.sent) == {"k2"} and ledger.counts["Sent"] == 9
    found = settling.finish(ledger)
    assert (found.violations, dict(found.causes)) == ([], {})


@pytest.mark.parametrize(
    ("kinds", "end"),
    [
        ({"moved"}, moved),
        ({"stored out of order"}, stored_before),
        ({"doubled"}, again),
        ({"lost"}, lost),
    ],
)
def test_a_fault_after_that_is_found(kinds, end):
    ledger, settling = run(end)
    found = {violation.kind for violation in settling.finish(ledger).violations}
    assert kinds <= found


def test_what_is_not_over_stays():
    book, ledger = Book(), Ledger()
    book.send("open", 0)
    book.deliver("open", 0, outcome=None)
    for line in book.lines:
        ledger.add(line)
    settling = Settling(lambda part: checker.Findings(), lambda topic: ["any"])
    assert settling.settle(ledger, book.now + 1000) == 0 and set(ledger.sent) == {"open"}
