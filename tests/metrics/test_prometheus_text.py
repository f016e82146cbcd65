"""The text that Prometheus reads."""

import os

import pytest
from prometheus_client import ProcessCollector

from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.prometheus_text import page, process_series
from sparrowmq.metrics.series import series_of
from tests.metrics.test_series import parsed


def test_the_text_has_help_and_type_of_each_figure():
    figures = Figures()
    figures.counter("sparrowmq_messages_sent_total", "messages handed out").value = 7
    assert page(series_of(figures, {}, 1)).body == (
        b"# HELP sparrowmq_messages_sent_total messages handed out\n"
        b"# TYPE sparrowmq_messages_sent_total counter\n"
        b"sparrowmq_messages_sent_total 7.0\n"
    )


def test_a_gauge_keeps_the_ending_of_a_counter():
    figures = Figures()
    figures.gauge("put_total", "rocketmq-exporter's", lambda: 7)
    assert b"# TYPE put_total gauge\nput_total 7.0\n" in page(series_of(figures, {}, 1)).body


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc here")
def test_the_process_has_its_memory_and_descriptors():
    found = parsed(page(process_series()).body.decode())
    assert found["process_resident_memory_bytes"][()] > 1 << 20
    assert found["process_open_fds"][()] > 2
    assert found["process_cpu_seconds_total"][()] > 0


@pytest.mark.guards("prometheus_text.process_series: _PROCESS -> ProcessCollector(registry=None)")
def test_a_clock_that_was_set_is_no_restart_of_the_process(monkeypatch):
    before = parsed(page(process_series()).body.decode())["process_start_time_seconds"]
    monkeypatch.setattr(ProcessCollector, "_boot_time", lambda self: 0)
    assert parsed(page(process_series()).body.decode())["process_start_time_seconds"] == before
