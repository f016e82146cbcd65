import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.stats import Counter, Histogram, Rate


def rate_after(per_second, seconds):
    rate = Rate(Counter())
    for second in range(seconds + 1):
        rate.sample(float(second))
        if second < seconds:
            rate.counter.value += per_second
    return rate


def test_a_steady_stream_has_the_same_rate_over_every_window():
    assert rate_after(100, 900).per_second(900.0) == pytest.approx((100, 100, 100))


def test_a_burst_shows_in_the_short_window_first_and_longest_in_the_long_one():
    rate = rate_after(0, 600)
    rate.counter.value += 6000
    ten, minute, ten_minutes = rate.per_second(601.0)
    assert ten > minute > ten_minutes > 0
    for second in range(601, 700):
        rate.sample(float(second))
    ten, minute, ten_minutes = rate.per_second(700.0)
    assert ten == minute == 0 and ten_minutes == pytest.approx(10, rel=0.12)


def test_a_young_rate_speaks_of_its_whole_life():
    assert rate_after(50, 3).per_second(3.0) == pytest.approx((50, 50, 50))


def test_without_two_moments_there_is_no_rate():
    rate = Rate(Counter())
    assert rate.per_second(1.0) == (0, 0, 0)
    rate.sample(1.0)
    assert rate.per_second(1.0) == (0, 0, 0)


def test_sampling_more_often_changes_nothing():
    rate = Rate(Counter(), windows_s=(10,))
    for tenth in range(2000):
        rate.sample(tenth / 10)
        rate.counter.value += 1
    assert rate.per_second(199.9) == pytest.approx((10,), rel=0.02)


def histogram_of(values):
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


def test_a_value_may_be_counted_many_times_at_once():
    once, many = histogram_of([5, 900, 900, 900]), Histogram()
    many.record(5)
    many.record(900, 3)
    assert (many.count, many.total, many.greatest) == (once.count, once.total, once.greatest) == (4, 2705, 900)
    assert many.at_most([7, 1000]) == once.at_most([7, 1000]) == [1, 4]


def test_an_empty_histogram_says_zero():
    histogram = Histogram()
    assert (histogram.count, histogram.mean, histogram.quantile(0.99), histogram.greatest) == (0, 0.0, 0, 0)


def test_small_values_are_exact():
    histogram = histogram_of([1, 2, 3, 4, 5, 6, 7, 0, -3])
    assert [histogram.quantile(share) for share in (0.01, 0.5, 1)] == [0, 3, 7]
    assert (histogram.count, histogram.total) == (9, 28)


def test_values_up_to_bounds_are_counted():
    assert histogram_of([1, 5, 7, 15, 1000]).at_most([0, 1, 7, 15, 2000]) == [0, 1, 3, 4, 5]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.floats(0.01, 1))
def test_a_quantile_is_never_too_low_and_at_most_an_eighth_too_high(values, share):
    values.sort()
    exact = next(value for rank, value in enumerate(values, 1) if rank >= share * len(values))
    found = histogram_of(values).quantile(share)
    assert exact <= found <= exact * 1.125
