from datetime import datetime, timedelta

import click
import pytest

from sparrowmq.cli.terminal.arguments import parse_time


def test_times_are_given_as_such_or_as_how_long_ago():
    assert parse_time(None, None, "2026-03-04T05:06") == datetime(2026, 3, 4, 5, 6)
    since = parse_time(None, None, "1.5h")
    assert since is not None
    ago = datetime.now().astimezone() - since
    assert abs(ago - timedelta(hours=1.5)) < timedelta(seconds=5)
    for wrong in ("", "h", "9" * 30 + "d", "0001-01-01"):
        with pytest.raises(click.BadParameter):
            parse_time(None, None, wrong)
