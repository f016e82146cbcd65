"""A healthy hour raises no alarm, and past metrics raise the alerts that a Prometheus would have raised."""

from __future__ import annotations

import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest

from tests.examples.live_prometheus import needs_prometheus
from tests.simulation.day import Day
from tests.simulation.past_alerts import SCRAPE_S, Wanted, pasts, runs
from tests.simulation.world import BEGIN_MS

BEGIN = BEGIN_MS / 1000


def test_rows_of_times_end_at_gaps() -> None:
    assert runs([0.0, 15.0, 30.0, 60.0], 15.0) == [(0.0, 30.0), (60.0, 0.0)]


def test_series_are_chosen_by_the_selectors_of_the_rules() -> None:
    wanted = Wanted()
    assert wanted.has("up", 'job="rocketmq",instance="i"')
    assert not wanted.has("up", 'job="node"')
    assert wanted.has("rocketmq_rpc_latency_milliseconds_count", 'request_code="send_batch"')
    assert not wanted.has("rocketmq_rpc_latency_milliseconds_count", 'request_code="heart_beat"')
    assert not wanted.has("sparrowmq_build_info", "")


@needs_prometheus
def test_alerts_of_the_past_are_pending_or_firing_as_long_as_they_were_true(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    up = 'up{job="rocketmq",instance="%s"} %d %d\n'
    with metrics.open("w") as sink:
        for at in range(0, 1200, SCRAPE_S):
            sink.write(up % ("down", at < 300 or at >= 600, BEGIN + at))
            sink.write(up % ("missed-one", at != 900, BEGIN + at))
        sink.write("# EOF\n")
    found = [
        (each.name, each.labels["instance"], each.begin - BEGIN, each.length_s, each.is_firing)
        for each in pasts(metrics, BEGIN, 1 / 3)
    ]
    assert sorted(found) == [
        ("BrokerDown", "down", 300, 285, True),
        ("BrokerDown", "missed-one", 900, 0, False),
    ]


@pytest.mark.slow
def test_a_day_does_not_depend_on_figures_of_the_real_process() -> None:
    traces = []
    for _ in range(2):
        day = Day(1, 0.005, 3.0, StringIO())
        day.run()
        traces.append(day.world.scheduler.trace_hash)
    assert traces[0] == traces[1]


@pytest.mark.slow
@pytest.mark.timeout(600)
@needs_prometheus
def test_a_healthy_hour_with_slaves_raises_no_alarm() -> None:
    # A process of its own: its hash seed is 0, and no thread of another test is in it.
    command = (sys.executable, "-m", "tests.simulation.day", "--hours", "1", "--pause", "3")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {name: int(count) for name, count in re.findall(r"'(\w+)': (\d+)", done.stdout)}
    assert counts["scrapes"] > 1400 and counts["readyz"] > 280 and counts["doctor"] > 10
