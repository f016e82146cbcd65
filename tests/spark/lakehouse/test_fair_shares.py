"""sparrowmq.spark.lakehouse.lake_loop: who waits for little gets it all, and the rest is shared."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.spark.lakehouse.lake_loop import Pace, fair_shares


def test_a_large_backlog_leaves_the_others_what_they_need():
    assert fair_shares({"a": 10, "b": 500, "c": 100_000}, 1000) == {"a": 10, "b": 495, "c": 495}
    assert fair_shares({"a": 10, "b": 20}, 1000) == {"a": 10, "b": 20}
    assert fair_shares({}, 10) == {}


@given(st.dictionaries(st.text(), st.integers(1, 10**6)), st.integers(1, 10**6))
def test_shares_are_fair_within_the_budget_and_leave_nothing_unused(waiting, budget):
    shares = fair_shares(waiting, budget)
    assert shares.keys() == waiting.keys()
    assert all(1 <= shares[name] <= waiting[name] for name in waiting)
    assert sum(shares.values()) <= max(budget, len(waiting))
    cut = [shares[name] for name in waiting if shares[name] < waiting[name]]
    if cut:
        assert sum(shares.values()) >= min(budget, sum(waiting.values()))
        assert max(shares.values()) - min(cut) <= 1  # no table has more than one that was cut, but for rounding


def test_rounds_get_smaller_on_a_slow_machine_and_larger_again():
    pace = Pace(100_000, 5)
    pace.note(100_000, 50)
    assert pace.budget == 55_000
    for _ in range(20):
        pace.note(pace.budget, 5 * pace.budget / 10_000)
    assert 9_900 < pace.budget < 10_600
    for _ in range(20):
        pace.note(pace.budget, pace.budget / 100_000)
    assert pace.budget > 95_000


def test_a_small_round_says_nothing_about_the_pace():
    pace = Pace(100_000, 5)
    pace.note(10, 1)
    assert pace.budget == 100_000
    pace.note(10, 600)
    assert pace.budget == 50_000
