import logging

import pytest

from sparrowmq.remoting.log_limit import LINES, LogLimit
from sparrowmq.testing.clock import ManualClock

log = logging.getLogger(__name__)


async def test_a_peer_causes_some_lines_a_minute_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture):
    clock = ManualClock()
    limit = LogLimit(clock)
    for number in range(LINES + 30):
        limit.log(log, logging.WARNING, "closing %d", number)
        if number == 0:
            limit.log(log, logging.WARNING, "another kind")
    assert len(caplog.records) == LINES + 1
    await clock.advance(minutes=1)
    limit.log(log, logging.WARNING, "closing %d", 99)
    limit.log(log, logging.WARNING, "closing %d", 100)
    assert [record.getMessage() for record in caplog.records[-2:]] == [
        "closing 99 (30 more such lines were left out before)",
        "closing 100",
    ]


async def test_lines_of_another_package_are_limited_by_a_filter(caplog: pytest.LogCaptureFixture):
    clock = ManualClock()
    limit, other = LogLimit(clock), logging.getLogger("another.package")
    other.addFilter(limit)
    for number in range(LINES + 30):
        other.warning("100%% of %d", number)
    await clock.advance(minutes=1)
    other.warning("100%% of %d", 99)
    other.warning("no arguments, 100%")
    other.removeFilter(limit)
    assert len(caplog.records) == LINES + 2
    assert caplog.records[-2].getMessage() == "100% of 99 (30 more such lines were left out before)"
