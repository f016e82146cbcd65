"""sparrowmq.spark.worker: rows pass at a rate."""

import pyarrow as pa
import pytest

from sparrowmq.spark.worker import Pace, limit_rate


class Watch:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now_s = 100.0

    def sleep(self, pause_s):
        self.now_s += pause_s

    def pace(self, rows_per_s):
        return Pace(rows_per_s, self.sleep, lambda: self.now_s)


def batch(rows):
    return pa.RecordBatch.from_pydict({"n": list(range(rows))})


def test_rows_pass_at_the_rate_in_small_portions():
    watch = Watch()
    portions = watch.pace(100).portions(iter([batch(250), batch(0), batch(50)]))
    seen = [(watch.now_s - 100, portion.num_rows) for portion in portions]
    assert [rows for _, rows in seen] == [25] * 12
    assert [at for at, _ in seen] == [number / 4 for number in range(12)]


def test_single_things_pass_at_the_rate():
    watch = Watch()
    pace = watch.pace(10)
    for _ in range(21):
        pace.wait()
        pace.count_rows(1)
    assert watch.now_s == pytest.approx(102.0)


def test_a_pause_is_not_made_up_for():
    watch = Watch()
    portions = watch.pace(4).portions([batch(8)])
    next(portions)
    watch.now_s += 60
    next(portions)
    next(portions)
    assert watch.now_s == 160.25


def test_without_a_rate_batches_pass_as_they_are():
    given = iter([batch(3)])
    assert limit_rate(given, None) is given
    assert [part.num_rows for part in limit_rate(iter([batch(3)]), 1)][:1] == [1]
