"""The number of frames that a peer may send."""

from __future__ import annotations

from sparrowmq.http2.allowance import Allowance


def test_a_bucket_empties_and_fills_with_time():
    bucket = Allowance(3, 2.0)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(101.0) for _ in range(2)] == [True, False]


def test_a_bucket_holds_no_more_than_its_size():
    bucket = Allowance(2, 1.0)
    assert [bucket.take(1000.0) for _ in range(3)] == [True, True, False]


def test_useful_work_fills_it_too():
    bucket = Allowance(2, 0.0)
    bucket.take(1.0)
    bucket.take(1.0)
    bucket.earn(1)
    assert [bucket.take(1.0) for _ in range(2)] == [True, False]
    bucket.earn(100)
    assert [bucket.take(1.0) for _ in range(3)] == [True, True, False]
