"""The registry: each figure is declared once, and read by its name."""

import pytest

from sparrowmq.metrics.figures import Figures


def test_a_figure_is_read_by_its_name():
    figures, level = Figures(), {"1": 5, "2": 7}
    received = figures.counter("received_total", "messages stored")
    figures.gauge("end", "where the log ends", lambda: 4096)
    figures.gauges("delivered", "delayed messages", ("level",), lambda: [((k,), v) for k, v in level.items()])
    received.value += 3
    assert (figures.value("received_total"), figures.value("end")) == (3, 4096)
    assert figures.values("delivered") == {("1",): 5, ("2",): 7}
    assert [(each.name, each.labels) for each in figures] == [
        ("received_total", ()),
        ("end", ()),
        ("delivered", ("level",)),
    ]


def test_only_counters_have_rates():
    figures = Figures()
    received = figures.counter("received_total", "messages stored")
    figures.gauge("end", "where the log ends", lambda: 4096)
    for second in range(11):
        figures.sample(float(second))
        received.value += 100
    assert figures.rates("received_total", 10.0)[0] == pytest.approx(110)
    with pytest.raises(KeyError, match="no counter"):
        figures.rates("end", 10.0)


def test_a_name_is_given_once():
    figures = Figures()
    figures.counter("received_total", "messages stored")
    with pytest.raises(ValueError, match="two figures are called received_total"):
        figures.gauge("received_total", "again", lambda: 0)


def test_a_second_name_has_the_same_number():
    figures = Figures()
    figures.counter("ours_total", "messages").value = 3
    figures.add_alias("theirs_total", "ours_total")
    assert figures.value("theirs_total") == figures.value("ours_total") == 3
