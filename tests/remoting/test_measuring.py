"""Requests are measured where somebody wants to know, and nobody looks at a clock where none does."""

import asyncio

import pytest

from sparrowmq.core.logs import LogSettings
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.requests.request_table import Role
from sparrowmq.remoting.request_dispatch import Dispatcher, LatencySwitch
from sparrowmq.testing.clock import ManualClock


@pytest.mark.parametrize(
    ("slow_ms", "always", "is_on"), [(0, False, False), (0, True, True), (1, False, True), (1000, True, True)]
)
async def test_it_is_measured_while_metrics_are_read_or_slow_requests_told(
    slow_ms: int, always: bool, is_on: bool
) -> None:
    dispatcher, turn = Dispatcher(Role.NOBODY, [], asyncio.ensure_future), Turn()
    measuring = LatencySwitch(LogSettings(slow_request_ms=slow_ms), ManualClock(), always=always, turn=turn)
    measuring.begin(dispatcher)
    assert (dispatcher.latencies is measuring.latencies) is is_on
    assert (turn.now is not None) is is_on


async def test_it_changes_with_the_setting() -> None:
    dispatcher, turn = Dispatcher(Role.NOBODY, [], asyncio.ensure_future), Turn()
    measuring = LatencySwitch(LogSettings(), ManualClock(), always=False, turn=turn)
    measuring.begin(dispatcher)
    assert measuring.latencies.add(310, 0, 1.0)
    measuring.apply_settings(LogSettings(slow_request_ms=2000))
    assert not measuring.latencies.add(310, 0, 1.999)
    measuring.apply_settings(LogSettings(slow_request_ms=0))
    assert dispatcher.latencies is None and turn.now is None
