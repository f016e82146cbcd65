from sparrowmq.broker.metrics.traffic import Spans


def grown(spans: Spans[str], key: str, now_s: float) -> tuple[int, ...] | None:
    found = spans.of(key, now_s)
    return None if found is None else tuple(amount.sum for amount in found)


def feed(spans: Spans[str], until_s: int, per_second: int) -> None:
    """Sample every ten seconds while one counter rises evenly."""
    for now_s in range(0, until_s + 1, 10):
        spans.sample([("k", now_s * per_second)], now_s)


def test_what_was_there_at_the_first_look_is_not_counted() -> None:
    spans = Spans[str](0.0)
    spans.sample([("old", 1000)], 0.0)
    spans.sample([("old", 1003), ("new", 5)], 10.0)
    assert grown(spans, "old", 10.0) == (3, 3, 3)
    assert grown(spans, "new", 10.0) == (5, 5, 5)
    assert spans.of("never", 10.0) is None


def test_a_minute_an_hour_and_a_day_are_told_apart() -> None:
    spans = Spans[str](0.0)
    feed(spans, 7200, 2)
    found = spans.of("k", 7200)
    assert found is not None
    minute, hour, day = found
    assert (minute.sum, minute.per_second) == (120, 2.0)
    assert (hour.sum, hour.per_second) == (7200, 2.0)
    assert day.sum == 14400


def test_what_is_older_than_the_span_is_forgotten() -> None:
    spans = Spans[str](0.0)
    feed(spans, 600, 2)
    for now_s in range(610, 4300, 10):
        spans.sample([("k", 1200)], now_s)
    assert grown(spans, "k", 4300) == (0, 0, 1200)
    for now_s in range(4300, 95_000, 10):
        spans.sample([("k", 1200)], now_s)
    assert spans.of("k", 95_000) is None


def test_a_counter_that_is_lower_than_before_began_anew() -> None:
    spans = Spans[str](0.0)
    spans.sample([("k", 50)], 0.0)
    spans.sample([("k", 4)], 10.0)
    assert grown(spans, "k", 10.0) == (4, 4, 4)
    spans.sample([], 20.0)
    spans.sample([("k", 6)], 30.0)
    assert grown(spans, "k", 30.0) == (10, 10, 10)


def test_a_first_burst_is_no_pace_of_a_moment() -> None:
    spans = Spans[str](0.0)
    spans.sample([], 0.0)
    spans.sample([("k", 20)], 0.5)
    amounts = spans.of("k", 0.5)
    assert amounts is not None and amounts[0].per_second == 2.0
