"""The demo as people run it: a process of its own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from examples.flights.__main__ import main
from sparrowmq.client import blocking_client as sync

ROOT = Path(__file__).parents[3]
COUNT = 5000
STOPPED_WITHIN = 0.5  # of the time of the start: a busy machine slows both

# A busy machine needs a minute for what takes 15 s otherwise.
pytestmark = pytest.mark.timeout(300)


@contextmanager
def start(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The demo in a session of its own, as a terminal would run it; its temporary files are below `folder`."""
    command = [sys.executable, "-m", "examples.flights", *arguments]
    environment = dict(os.environ, TMPDIR=str(folder))
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=pipe, stderr=pipe, env=environment, start_new_session=True
    ) as demo:
        try:
            yield demo
        finally:
            with suppress(ProcessLookupError):
                os.killpg(demo.pid, signal.SIGKILL)


@pytest.mark.slow
def test_what_comes_out_is_what_went_in_and_the_cluster_can_be_kept(tmp_path):
    with start(tmp_path, "--limit", str(COUNT), "--out", str(tmp_path / "out"), "--keep") as demo:
        *lines, report = until_the_report(demo)
        check(json.loads(report))
        check_words("".join(lines), json.loads(report))
        [address] = re.findall(r"export NAMESRV_ADDR=(\S+)", "".join(lines))
        with (
            sync.connect(address) as mq,
            mq.subscribe("flights", group="late", start="earliest") as flights,
        ):
            assert next(iter(flights)).json().keys() >= {"sequence", "origin", "dest"}
        os.killpg(demo.pid, signal.SIGINT)
        assert demo.communicate(timeout=60) == ("", "")
    assert demo.returncode == 0
    kept = ["flights_table", "statistics_table", "store"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == kept


def until_the_report(demo: subprocess.Popen[str]) -> list[str]:
    assert demo.stdout is not None and demo.stderr is not None
    lines = []
    for line in demo.stdout:
        lines.append(line)
        if line.startswith("{"):
            return lines
    pytest.fail("".join(lines) + demo.stderr.read())


def check(report) -> None:
    assert [report[name] for name in ("sent", "stored", "table_rows")] == [COUNT] * 3
    assert [report[name] for name in ("lost", "doubled", "out_of_order")] == [0] * 3
    assert report["results"] == report["statistics"] > 100
    assert report["faults"] == []
    assert 0 < report["first_row_seconds"] < report["seconds"]
    assert set(report["stages"]) == {"replay", "table", "statistics", "results"}
    assert all(stage["messages_per_s"] > 0 for stage in report["stages"].values())
    assert pq.read_table(report["flights_table"]).num_rows == COUNT
    assert pq.read_table(report["statistics_table"]).num_rows == report["statistics"]


def check_words(said: str, report) -> None:
    """What people read: why bars stand still, and why more results came than there are hours."""
    assert said.index("Spark is starting") < said.index("comparing every row")
    results, received = report["results"], report["stages"]["results"]["messages"]
    assert f"received {received:,} messages about {results:,} rows" in said
    assert f"{received - results:,} messages correct an earlier one" in said
    assert f"first row in Spark after {report['first_row_seconds']:.1f} s" in said


def test_a_folder_with_tables_is_refused_at_once(tmp_path, capsys):
    (tmp_path / "flights_table").mkdir()
    assert main(["--out", str(tmp_path)]) == 2
    assert "choose another folder with --out" in capsys.readouterr().err


def test_a_wrong_command_line_is_told(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--limit", "0"])
    assert ended.value.code == 2
    assert "--limit" in capsys.readouterr().err


def some_flights_are_sent(demo: subprocess.Popen[str]) -> None:
    wait_for(demo, r"replay [1-9]\d* of 336776")


def the_table_grows(demo: subprocess.Popen[str]) -> None:
    wait_for(demo, r"table [1-9]\d* of 336776")


def wait_for(demo: subprocess.Popen[str], pattern: str) -> None:
    assert demo.stdout is not None
    for line in demo.stdout:
        if re.search(pattern, line):
            return
    pytest.fail(f"the demo ended without a line like {pattern}")


@pytest.mark.slow
@pytest.mark.parametrize("moment", [some_flights_are_sent, pytest.param(the_table_grows, marks=pytest.mark.nightly)])
def test_ctrl_c_ends_everything_soon_and_quietly(tmp_path, moment):
    started = time.monotonic()
    with start(tmp_path) as demo:
        moment(demo)
        others = psutil.Process(demo.pid).children(recursive=True)
        assert any("java" in other.name() for other in others)
        begun = time.monotonic()
        os.killpg(demo.pid, signal.SIGINT)
        _, err = demo.communicate(timeout=60)
        took_s = time.monotonic() - begun
    assert (demo.returncode, err) == (130, "demo: stopped\n")
    print(f"started in {begun - started:.1f} s, stopped in {took_s:.1f} s")
    assert took_s < STOPPED_WITHIN * (begun - started)
    assert alive_after(others, 5) == []
    assert list(tmp_path.iterdir()) == []


def alive_after(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that still do something; an orphan that nobody has collected yet does not."""
    deadline = time.monotonic() + seconds
    while True:
        alive = [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
        if not alive or time.monotonic() > deadline:
            return alive
        psutil.wait_procs(alive, timeout=0.1)


@pytest.mark.nightly
def test_the_console_shows_it_and_stays_for_as_long_as_was_said(tmp_path):
    words = ("--limit", str(COUNT), "--out", str(tmp_path / "out"), "--console", "--seconds", "3")
    with start(tmp_path, *words) as demo:
        *lines, report = until_the_report(demo)
        check(json.loads(report))
        [address] = re.findall(r"the console is at (\S+)", "".join(lines))
        assert f"{address.rstrip('/')}/topics/flights" in "".join(lines)
        asked = urllib.request.Request(address, headers={"accept": "text/html"})
        with urllib.request.urlopen(asked, timeout=30) as page:
            assert page.status == 200
        out, _ = demo.communicate(timeout=60)
    assert (demo.returncode, out) == (0, "")
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=5)
