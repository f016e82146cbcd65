"""A page of metrics, read by Prometheus' own parser."""

import os

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparrowmq.metrics.page import OTHERS, Page
from sparrowmq.stats import Figures, Histogram


def read(page: Page) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Each sample's name, and its value by its labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(page.text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def topics(count: int) -> list[tuple[tuple[str, ...], float]]:
    return [((f"t{number:03}",), float(number)) for number in range(count)]


def test_each_sample_has_its_own_labels_and_those_of_the_page():
    page = Page({"cluster": "c"}, most=10)
    page.gauge("up", "it is", 1)
    page.counters("taken_total", "messages", ("topic",), [(("a",), 3), (('b"\n\\',), 4)])
    assert read(page) == {
        "up": {(("cluster", "c"),): 1},
        "taken_total": {
            (("cluster", "c"), ("topic", "a")): 3,
            (("cluster", "c"), ("topic", 'b"\n\\')): 4,
        },
    }


def test_fifty_thousand_topics_do_not_make_fifty_thousand_series():
    page = Page({}, most=200)
    page.gauges("lag", "messages", ("topic",), topics(50_000))
    found = read(page)
    assert len(found["lag"]) == 201
    assert sum(found["lag"].values()) == sum(range(50_000))
    assert found["sparrowmq_series_left_out"] == {(("family", "lag"),): 49_800}


def test_of_gauges_the_greatest_are_shown_and_of_counters_the_first_by_name():
    page = Page({}, most=2)
    page.gauges("lag", "messages", ("topic",), topics(5))
    page.counters("sent_total", "messages", ("topic",), topics(5))
    found = read(page)
    assert {dict(labels)["topic"] for labels in found["lag"]} == {"t004", "t003", OTHERS}
    assert {dict(labels)["topic"] for labels in found["sent_total"]} == {"t000", "t001", OTHERS}


def test_what_is_compared_with_another_family_is_shown_wherever_that_one_is():
    """260 groups with one member each: an alert on lag without members has none to tell."""
    groups = [f"g{number:03}" for number in range(260)]
    page = Page({}, most=200)
    lags = [((group, "t"), float(number)) for number, group in enumerate(groups)]
    page.gauges("lag", "messages", ("group", "topic"), lags)
    members = [
        ((group, language), 1.0 if language == "JAVA" else 2.0)
        for group in groups
        for language in ("GO", "JAVA")
    ]
    page.gauges("members", "members", ("group", "language"), members, along_with="lag")
    found = read(page)
    lagging, online = ({dict(labels)["group"] for labels in found[name]} for name in ("lag", "members"))
    assert len(found["lag"]) == len(found["members"]) == 201 and lagging <= online
    assert sum(found["members"].values()) == 260 * 3
    assert found["sparrowmq_series_left_out"][(("family", "members"),)] == 320


def test_as_many_as_allowed_are_all_shown():
    page = Page({}, most=5)
    page.gauges("lag", "messages", ("topic",), topics(5))
    assert len(read(page)["lag"]) == 5 and "sparrowmq_series_left_out" not in read(page)


def test_a_histogram_counts_all_that_is_at_most_each_bound():
    seen = Histogram()
    for microseconds in (50, 50, 2000, 5_000_000):
        seen.record(microseconds)
    page = Page({}, most=1)
    page.histogram("lag_seconds", "how late", seen, (100, 10_000), 1e-6)
    found = read(page)
    assert found["lag_seconds_bucket"] == {
        (("le", "0.0001"),): 2,
        (("le", "0.01"),): 3,
        (("le", "+Inf"),): 4,
    }
    assert found["lag_seconds_sum"] == {(): pytest.approx(5.0021)}


def test_histograms_are_told_apart_by_labels():
    page, seen = Page({"node": "n"}, most=1), {"a": Histogram(), "b": Histogram()}
    seen["a"].record(5)
    page.histograms("took", "how long", ("what",), [((what,), each) for what, each in seen.items()], (7,), 1)
    assert read(page)["took_count"] == {
        (("node", "n"), ("what", "a")): 1,
        (("node", "n"), ("what", "b")): 0,
    }


def test_a_servers_figures_are_told_with_what_they_mean():
    figures = Figures()
    figures.counter("messages_sent", "messages handed out").value = 7
    figures.family("behind", "bytes", ("slave",), lambda: [(("s1",), 9)])
    page = Page({}, most=10)
    page.figures(figures)
    assert read(page) == {
        "sparrowmq_messages_sent_total": {(): 7},
        "sparrowmq_behind": {(("slave", "s1"),): 9},
    }
    assert "# HELP sparrowmq_messages_sent_total messages handed out" in page.text().decode()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc here")
def test_the_process_tells_its_memory_and_descriptors():
    page = Page({}, most=10)
    page.process()
    assert read(page)["process_resident_memory_bytes"][()] > 1 << 20
    assert read(page)["process_open_fds"][()] > 2
