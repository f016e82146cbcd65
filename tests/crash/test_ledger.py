"""The checker finds every planted fault: a checker that cannot fail proves nothing."""

from collections.abc import Callable

import pytest

from tests.crash.ledger import Ledger


def honest() -> Ledger:
    """Two queues, five acknowledged messages, one unknown that was kept, one unknown that was not."""
    ledger, now = Ledger(), 0
    for queue_id, bodies in ((0, [b"a", b"b", b"c"]), (1, [b"d", b"e"])):
        for offset, body in enumerate(bodies):
            entry = ledger.send(body, queue_id, now)
            entry.returned_ns, entry.offset, now = now + 1, offset, now + 2
    ledger.send(b"maybe", 1, now)
    ledger.send(b"never", 1, now)
    assert [*ledger.show(0, 0, [b"a", b"b", b"c"]), *ledger.show(1, 0, [b"d", b"e", b"maybe"])] == []
    return ledger


def test_an_honest_history_breaks_nothing() -> None:
    assert list(honest().violations()) == []
    assert honest().acked == 5


FAULTS: list[tuple[str, Callable[[Ledger], object]]] = [
    ("lost", lambda ledger: ledger.shown[0].pop()),
    ("lost", lambda ledger: ledger.shown.pop(1)),
    ("lost", lambda ledger: ledger.shown[0].__setitem__(1, b"never")),
    ("lost", lambda ledger: ledger.shown[0].insert(0, b"never")),
    ("phantom", lambda ledger: ledger.shown[1].append(b"invented")),
    ("phantom", lambda ledger: ledger.shown[0].__setitem__(2, b"c, one bit off")),
    ("misplaced", lambda ledger: ledger.shown[0].append(b"never")),
    ("doubled", lambda ledger: ledger.shown[1].append(b"maybe")),
    ("doubled", lambda ledger: ledger.shown[0].append(b"a")),
    ("disorder", lambda ledger: ledger.shown[0].reverse()),
    ("disorder", lambda ledger: ledger.shown[1].__setitem__(slice(0, 2), [b"e", b"d"])),
]


@pytest.mark.parametrize(("word", "plant"), FAULTS)
def test_a_planted_fault_is_named(word: str, plant: Callable[[Ledger], object]) -> None:
    ledger = honest()
    plant(ledger)
    assert any(violation.startswith(word) for violation in ledger.violations())


def test_an_offset_that_changes_its_message_is_named() -> None:
    assert list(honest().show(0, 1, [b"x", b"c"])) == ["queue 0 offset 1 showed b'b' and now b'x'"]


def test_a_queue_that_shrinks_or_has_a_hole_is_named() -> None:
    assert list(honest().show(0, 0, [b"a"])) == ["queue 0 had 3 messages and now has 1"]
    assert list(honest().show(0, 5, [b"z"])) == ["queue 0: offsets 3 to 4 are missing"]


def test_what_was_acknowledged_long_before_a_power_cut_is_not_forgotten() -> None:
    ledger = honest()
    late_ns = ledger.sent[b"e"].returned_ns
    assert late_ns is not None
    assert ledger.forget(1, 0, since_ns=late_ns) == [late_ns]
    assert ledger.shown[1] == []
    assert [violation.split(":")[0] for violation in ledger.violations()] == ["lost"]  # d, not e


def test_what_is_still_there_after_a_power_cut_is_not_forgotten() -> None:
    ledger = honest()
    assert ledger.forget(1, 3, since_ns=0) == []
    assert ledger.acked == 5


def test_what_had_to_go_with_a_full_disk_is_not_lost_and_what_follows_is() -> None:
    ledger = honest()
    ledger.delete(0, 2)
    assert list(ledger.violations()) == []
    ledger.shown[0].pop()
    assert [violation.split(":")[0] for violation in ledger.violations()] == ["lost"]


def test_what_was_sent_since_a_moment_is_known() -> None:
    ledger = honest()
    since_ns = ledger.sent[b"d"].invoked_ns
    assert [entry.body for entry in ledger.sent_since(since_ns)] == [b"never", b"maybe", b"e", b"d"]
