import io
import time
from datetime import UTC, datetime

import pytest

from examples.flights import screen
from examples.flights.results import Results
from examples.flights.screen import Screen
from examples.flights.stages import Stages


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def stages():
    stages = Stages()
    stages.replay.total = 1000
    stages.replay.reach(250)
    return stages


@pytest.fixture
def results(stages):
    results = Results(stages.results)
    hour = datetime(2013, 7, 4, 21, tzinfo=UTC)
    results._latest[("JFK", hour)] = {
        "origin": "JFK",
        "hour": hour,
        "flights": 30,
        "cancelled": 0,
        "mean_dep_delay_min": 123.4,
    }
    return results


def test_a_terminal_shows_bars_and_the_worst_hours(stages, results, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    with Screen(stages, results, file) as shown:
        shown.refresh()
    text = file.getvalue()
    assert "flights sent and acknowledged" in text
    assert "250" in text
    assert "JFK" in text and "04 Jul 21:00" in text and "123" in text


def test_a_file_gets_a_plain_line_now_and_then(stages, results, monkeypatch):
    file = io.StringIO()
    with Screen(stages, results, file) as shown:
        shown.refresh()
        assert file.getvalue() == ""
        later = time.monotonic() + screen.LINE_EVERY_S
        monkeypatch.setattr("examples.flights.screen.time.monotonic", lambda: later)
        shown.refresh()
        shown.refresh()
    assert file.getvalue() == "replay 250 of 1000, table 0, statistics 0, results 0\n"


def test_a_terminal_shows_what_bars_wait_for_that_stand_still(stages, results, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    with Screen(stages, results, file) as shown:
        stages.waits = "Spark is starting"
        shown.refresh()
    assert "Spark is starting" in file.getvalue()


def test_a_file_is_told_once_what_is_waited_for_and_when_that_is_over(stages, results):
    file = io.StringIO()
    with Screen(stages, results, file) as shown:
        for waits in ("Spark is starting", "Spark is starting", ""):
            stages.waits = waits
            shown.refresh()
    assert file.getvalue() == "Spark is starting\nrows have arrived in both tables\n"


def test_what_is_said_stays_as_it_is(stages, results):
    file = io.StringIO()
    Screen(stages, results, file).say("files in [/tmp/x]")
    assert file.getvalue() == "files in [/tmp/x]\n"


def test_the_last_picture_stays_when_something_fails(stages, results, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    with pytest.raises(ZeroDivisionError), Screen(stages, results, file):
        stages.replay.reach(777)
        _ = 1 / 0
    assert "777" in file.getvalue()
