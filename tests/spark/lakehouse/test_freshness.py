"""sparrowmq.spark.lakehouse.lake_table: the age of the oldest message that a table lacks."""

from __future__ import annotations

from sparrowmq.spark.lakehouse.lake_table import Freshness


def test_a_table_that_has_all_is_fresh():
    freshness = Freshness()
    freshness.note_check(10, 10, 100.0)
    assert freshness.age_s(200.0) == 0


def test_the_age_counts_from_the_look_before_the_one_that_saw_the_message():
    freshness = Freshness()
    freshness.note_check(10, 10, 100.0)
    freshness.note_check(15, 10, 105.0)
    freshness.note_check(20, 10, 110.0)
    assert freshness.age_s(112.0) == 12
    freshness.note_progress(15)
    assert freshness.age_s(112.0) == 7
    freshness.note_progress(20)
    assert freshness.age_s(112.0) == 0


def test_a_backlog_at_the_start_is_as_old_as_the_first_look():
    freshness = Freshness()
    freshness.note_check(1000, 0, 100.0)
    assert freshness.age_s(103.0) == 3


def test_a_table_that_is_behind_for_long_keeps_few_looks_and_the_oldest():
    freshness = Freshness()
    freshness.note_check(0, 0, 0.0)
    for look in range(1, 5001):
        freshness.note_check(look, 0, float(look))
    assert len(freshness._unread_checks) <= 513
    assert freshness.age_s(5000.0) == 5000
    freshness.note_progress(4999)
    assert freshness.age_s(5000.0) == 1


def test_a_topic_that_was_made_again_leaves_no_age():
    freshness = Freshness()
    freshness.note_check(1000, 0, 100.0)
    freshness.note_check(5, 0, 105.0)
    freshness.note_progress(5)
    assert freshness.age_s(200.0) == 0
