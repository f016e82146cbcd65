"""The text that Prometheus reads."""

import os
from time import thread_time

import pytest
from prometheus_client import ProcessCollector

from sparrowmq.core.stats import Histogram
from sparrowmq.loop.slices import at_once
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.metrics_page import page, process_series
from sparrowmq.metrics.series_limit import series_of
from tests.metrics.test_series import parsed


def test_the_text_has_help_and_type_of_each_figure():
    figures = Figures()
    figures.counter("sparrowmq_messages_sent_total", "messages handed out").value = 7
    assert at_once(page(series_of(figures, {}, 1))).body == (
        b"# HELP sparrowmq_messages_sent_total messages handed out\n"
        b"# TYPE sparrowmq_messages_sent_total counter\n"
        b"sparrowmq_messages_sent_total 7.0\n"
    )


def test_a_gauge_keeps_the_ending_of_a_counter():
    figures = Figures()
    figures.gauge("put_total", "rocketmq-exporter's", lambda: 7)
    assert b"# TYPE put_total gauge\nput_total 7.0\n" in at_once(page(series_of(figures, {}, 1))).body


def test_no_step_of_a_long_page_keeps_the_event_loop_from_others():
    figures, labels, seen = Figures(), [(f"topic-{number:04}",) for number in range(2000)], Histogram()
    seen.record(5)
    figures.gauges("lag", "of each", ("topic",), lambda: [(each, 7) for each in labels])
    figures.histograms("took", "each", ("topic",), lambda: [(each, seen) for each in labels[:200]], [1, 10], 1)
    steps, longest_s, text = page(series_of(figures, {}, 5000)), 0.0, ""
    try:
        while True:
            before_s = thread_time()
            next(steps)
            longest_s = max(longest_s, thread_time() - before_s)
    except StopIteration as end:
        text = end.value.body.decode()
    assert longest_s < 0.005
    assert text.count("# HELP") == 2 and text.index("topic-0009") < text.index("topic-0010")
    found = parsed(text)
    assert (len(found["lag"]), len(found["took_bucket"]), len(found["took_count"])) == (2000, 600, 200)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc here")
def test_the_process_has_its_memory_and_descriptors():
    found = parsed(at_once(page(process_series())).body.decode())
    assert found["process_resident_memory_bytes"][()] > 1 << 20
    assert found["process_open_fds"][()] > 2
    assert found["process_cpu_seconds_total"][()] > 0


def test_a_clock_that_was_set_is_no_restart_of_the_process(monkeypatch):
    before = parsed(at_once(page(process_series())).body.decode())["process_start_time_seconds"]
    monkeypatch.setattr(ProcessCollector, "_boot_time", lambda self: 0)
    assert parsed(at_once(page(process_series())).body.decode())["process_start_time_seconds"] == before
