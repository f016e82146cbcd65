"""The figures of one moment, read by Prometheus' own parser."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparrowmq.core.stats import Histogram
from sparrowmq.loop.slices import at_once
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.metrics_page import page
from sparrowmq.metrics.series_limit import OTHERS, all_series, series_of

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def read(figures: Figures, common: dict[str, str] | None = None, most: int = 10) -> Samples:
    """Each sample's name, and its value by its labels."""
    return parsed(at_once(page(series_of(figures, common or {}, most))).body.decode())


def parsed(text: str) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def topics(count: int) -> list[tuple[tuple[str, ...], float]]:
    return [((f"t{number:03}",), float(number)) for number in range(count)]


def test_each_sample_has_its_own_labels_and_the_common_ones():
    figures = Figures()
    figures.gauge("up", "it is", lambda: 1)
    figures.counters("taken_total", "messages", ("topic",), lambda: [(("a",), 3), (('b"\n\\',), 4)])
    assert read(figures, {"cluster": "c"}) == {
        "up": {(("cluster", "c"),): 1},
        "taken_total": {
            (("cluster", "c"), ("topic", "a")): 3,
            (("cluster", "c"), ("topic", 'b"\n\\')): 4,
        },
    }


def test_fifty_thousand_topics_do_not_make_fifty_thousand_series():
    figures = Figures()
    figures.gauges("lag", "messages", ("topic",), lambda: topics(50_000))
    found = read(figures, most=200)
    assert len(found["lag"]) == 201
    assert sum(found["lag"].values()) == sum(range(50_000))
    assert found["sparrowmq_series_left_out"] == {(("family", "lag"),): 49_800}


def test_of_gauges_the_greatest_are_shown_and_of_counters_the_first_by_name():
    figures = Figures()
    figures.gauges("lag", "messages", ("topic",), lambda: topics(5))
    figures.counters("sent_total", "messages", ("topic",), lambda: topics(5))
    found = read(figures, most=2)
    assert {dict(labels)["topic"] for labels in found["lag"]} == {"t004", "t003", OTHERS}
    assert {dict(labels)["topic"] for labels in found["sent_total"]} == {"t000", "t001", OTHERS}


def test_labels_that_another_figure_shows_are_shown_first():
    """260 groups with one member each: an alert on lag without members reports no group."""
    groups = [f"g{number:03}" for number in range(260)]
    figures = Figures()
    lags = [((group, "t"), float(number)) for number, group in enumerate(groups)]
    figures.gauges("lag", "messages", ("group", "topic"), lambda: lags)
    members = [
        ((group, language), 1.0 if language == "JAVA" else 2.0) for group in groups for language in ("GO", "JAVA")
    ]
    figures.gauges("members", "members", ("group", "language"), lambda: members, along_with="lag")
    found = read(figures, most=200)
    lagging, online = ({dict(labels)["group"] for labels in found[name]} for name in ("lag", "members"))
    assert len(found["lag"]) == len(found["members"]) == 201 and lagging <= online
    assert sum(found["members"].values()) == 260 * 3
    assert found["sparrowmq_series_left_out"][(("family", "members"),)] == 320


def test_as_many_as_allowed_are_all_shown():
    figures = Figures()
    figures.gauges("lag", "messages", ("topic",), lambda: topics(5))
    found = read(figures, most=5)
    assert len(found["lag"]) == 5 and "sparrowmq_series_left_out" not in found


def test_a_histogram_counts_all_that_is_at_most_each_bound():
    seen = Histogram()
    for microseconds in (50, 50, 2000, 5_000_000):
        seen.record(microseconds)
    figures = Figures()
    figures.histograms("lag_seconds", "how late", (), lambda: [((), seen)], (100, 10_000), 1e-6)
    found = read(figures)
    assert found["lag_seconds_bucket"] == {
        (("le", "0.0001"),): 2,
        (("le", "0.01"),): 3,
        (("le", "+Inf"),): 4,
    }
    assert found["lag_seconds_count"] == {(): 4}
    assert found["lag_seconds_sum"] == {(): pytest.approx(5.0021)}


def test_histograms_have_labels():
    seen = {"a": Histogram(), "b": Histogram()}
    seen["a"].record(5)
    figures = Figures()
    figures.histograms("took", "how long", ("what",), lambda: [((what,), each) for what, each in seen.items()], (7,), 1)
    assert read(figures, {"node": "n"})["took_count"] == {
        (("node", "n"), ("what", "a")): 1,
        (("node", "n"), ("what", "b")): 0,
    }


def test_new_figures_may_come_between_two_steps():
    figures = Figures()
    for number in range(10):
        figures.gauge(f"n{number}", "a number", lambda: 1.0)
    steps = all_series(figures, {}, 10)
    for _ in range(5):
        next(steps)
    figures.gauge("late", "a number", lambda: 1.0)
    assert sum(1 for _ in steps) >= 5


def test_a_step_reads_some_rows_of_a_figure():
    read = iter(range(1000))
    figures = Figures()
    figures.gauges("lag", "a number", ("group",), lambda: (((str(each),), each) for each in read))
    steps = all_series(figures, {}, 10)
    for _ in range(5):
        next(steps)
    assert 1 < next(read) <= 500
