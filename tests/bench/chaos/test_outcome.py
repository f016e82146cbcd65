"""The line that a rig says: what was promised and not kept is counted by its kind."""

import json

from bench.chaos.outcome import Outcome


def test_broken_promises_are_counted_by_their_kind():
    outcome = Outcome("kill", 7, rounds=300, acked=5)
    outcome.note(["lost: a", "lost: b", "misplaced: c", "disorder: d", "doubled: e", "the broker did not stop"])
    outcome.more = {"points_hit": 31}
    line = json.loads(outcome.line())
    kinds = ("lost", "phantom", "reordered", "doubled", "other")
    assert [line[kind] for kind in kinds] == [2, 1, 1, 1, 1]
    assert (line["rig"], line["seed"], line["rounds"], line["acked"], line["points_hit"]) == (
        "kill",
        7,
        300,
        5,
        31,
    )


def test_the_bound_is_that_of_so_many_rounds_without_a_failure():
    assert json.loads(Outcome("kill", 7, rounds=300).line())["bound"] == 0.01
