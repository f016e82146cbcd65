"""Where a server's log goes, how it looks, and how much is said."""

import json
import logging

import pytest

from sparrowmq.core import logs
from sparrowmq.core.logs import Form, JsonLines, Level, LogSettings


@pytest.fixture
def log():
    """`log(FILE, FORM, SIZE, KEEP)`: a logger that writes there; as it was, afterwards."""
    logger, ours = logging.getLogger("sparrowmq.x"), logging.getLogger("sparrowmq")
    before, made = ours.level, []

    def begin(*how):
        made.append(logs.handler(*how))
        logger.addHandler(made[-1])
        logs.apply_settings(LogSettings())
        return logger

    yield begin
    for handler in made:
        logger.removeHandler(handler)
        handler.close()
    ours.setLevel(before)


def test_lines_of_json_have_what_machines_look_for(log, tmp_path):
    said = log(str(tmp_path / "log"), Form.JSON, None, 5)
    said.warning("slow: %s", "ü\n2")
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        said.exception("it failed")
    first, second = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert (first["level"], first["logger"], first["message"]) == ("WARNING", "sparrowmq.x", "slow: ü\n2")
    assert first["time"].endswith("Z") and "error" not in first
    assert second["error"].startswith("Traceback") and "ZeroDivisionError" in second["error"]


def test_values_are_fields_by_the_word_in_front_of_them(log, tmp_path):
    said = log(str(tmp_path / "log"), Form.JSON, None, 5)
    said.info("group %s is deleted by %s", "billing", "10.0.0.1:4711")
    said.info("the log is damaged from offset %d to %d: %s", 7, 9, "why")
    said.info("the master at %s has %d of 100%% from %d on", "10.0.0.1:10912", 5, 6)
    said.info("nothing in it")
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    usual = {"time", "level", "logger", "message"}
    assert [{key: line[key] for key in line.keys() - usual} for line in lines] == [
        {"event": "group %s is deleted by %s", "group": "billing", "peer": "10.0.0.1:4711"},
        {"event": "the log is damaged from offset %d to %d: %s", "offset": "7"},
        {"event": "the master at %s has %d of 100%% from %d on", "address": "10.0.0.1:10912"},
        {},
    ]


def test_a_moment_is_told_in_utc_with_milliseconds():
    record = logging.LogRecord("x", logging.INFO, "", 0, "m", None, None)
    record.created = 1_700_000_000.25
    assert json.loads(JsonLines().format(record))["time"] == "2023-11-14T22:13:20.250Z"


def test_a_file_of_that_size_is_followed_by_another_and_the_oldest_go(log, tmp_path):
    said = log(str(tmp_path / "log"), Form.TEXT, 2000, 2)
    for number in range(200):
        said.info("line %d of many", number)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "log.1", "log.2"]
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
    assert "line 199 of many" in (tmp_path / "log").read_text()


def test_a_file_that_was_moved_away_is_begun_anew(log, tmp_path):
    said = log(str(tmp_path / "log"), Form.TEXT, None, 5)
    said.info("before")
    (tmp_path / "log").rename(tmp_path / "old")
    said.info("after")
    assert "before" in (tmp_path / "old").read_text() and "after" in (tmp_path / "log").read_text()


def test_so_much_is_said_as_the_setting_wants_from_now_on(log, tmp_path):
    said = log(str(tmp_path / "log"), Form.TEXT, None, 5)
    for level in (Level.WARNING, Level.DEBUG):
        logs.apply_settings(LogSettings(log_level=level))
        said.info("at %s", level.value)
    assert "at WARNING" not in (tmp_path / "log").read_text() and "at DEBUG" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("form", list(Form))
def test_a_message_is_one_line_whatever_a_peer_put_into_it(log, tmp_path, form):
    file = tmp_path / "out.log"
    log(str(file), form, None, 0).warning("group %s", "a\nERROR forged \x1b[31m\u2028\x9b")
    text = file.read_text("utf-8")
    assert text.count("\n") == 1 and text.rstrip("\n").isprintable()
    assert "ERROR forged" in text and "1b" in text
