from datetime import datetime, timedelta

import click
import pytest

from sparrowmq.cli.terminal.arguments import moment


def test_times_are_given_as_such_or_as_how_long_ago():
    assert moment(None, None, "2026-03-04T05:06") == datetime(2026, 3, 4, 5, 6)
    since = moment(None, None, "1.5h")
    assert since is not None
    ago = datetime.now().astimezone() - since
    assert abs(ago - timedelta(hours=1.5)) < timedelta(seconds=5)
    for wrong in ("", "h", "9" * 30 + "d", "0001-01-01"):
        with pytest.raises(click.BadParameter):
            moment(None, None, wrong)
