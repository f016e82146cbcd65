"""The page of all metrics. tests/examples/test_monitoring.py compares it with the metrics that are served."""

from tools.metrics_page import Row, declared, metrics_page

SOURCE = """
LABELS: Final = ("group", "topic")
figures.counter("a_total", "messages")
figures.gauges("b", "bytes", LABELS, read)
figures.histograms("c", "time", ("kind",), read, bounds, 1)
figures.gauge(name, "not a literal", read)
"""


def test_declarations_are_read_with_their_labels():
    assert list(declared(SOURCE)) == [
        Row("a_total", "counter", "", "messages"),
        Row("b", "gauge", "group, topic", "bytes"),
        Row("c", "histogram", "kind", "time"),
    ]


def test_a_second_name_has_a_row():
    assert "| `rocketmq_half_messages` | gauge |  | open transactions |" in metrics_page()
