from datetime import datetime

import pytest

from sparrowmq.console.message_body import parse_time


def test_times_are_local_and_others_are_an_error():
    assert parse_time("2026-11-20 08:00", "since") == datetime(2026, 11, 20, 8).astimezone()
    assert parse_time("", "since") is parse_time(None, "since") is None
    for text in ("x", "0001-01-01 00:00", "9999-12-31T23:59:59-23:00"):
        with pytest.raises(ValueError, match=f"since: '{text}' is not a time"):
            parse_time(text, "since")
