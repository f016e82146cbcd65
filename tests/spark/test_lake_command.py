"""sparrowmq.spark.lake_command: what a user types, and a lake that is killed in the middle of its work."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

import psutil

from sparrowmq.spark.lake_command import lake
from sparrowmq.spark.lakehouse.lake_settings import (
    LakeSettings,
    TableSettings,
    settings_in_files,
    settings_of,
)
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.lakehouse.lakes import place, rows_of, send
from tests.spark.lakehouse.test_rounds import numbers
from tests.spark.pipelines.killing import START_LIMIT_S, environment

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "lake.md").read_text(encoding="utf-8")
FILE = """
name_server = "{namesrv}"
metrics = "127.0.0.1:{port}"
master = "local[2]"
every = "1s"
new_topics_every = "1s"
rows_per_round = 2000

[defaults]
to = "{folder}/{{topic}}"

[tables."k-.*"]
mode = "json"
"""


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster.namesrv


@pytest.fixture
def write(tmp_path, namesrv):
    def write(text=FILE, **given):
        path = tmp_path / "lake.toml"
        path.write_text(text.format(**{"namesrv": namesrv, "port": 0, "folder": tmp_path / "lake", **given}))
        return path

    return write


def run(*args):
    return CliRunner().invoke(lake, [str(each) for each in args])


def test_check_says_what_the_file_does_and_what_is_wrong(namesrv, write, tmp_path):
    send(namesrv, {"c-check": [b"{}"]})
    found = run("check", write(FILE.replace("k-.*", "c-.*")))
    assert (
        found.exit_code == 0
        and f"c-check: begins parquet at {tmp_path}/lake/c-check, mode json" in found.output
    )
    found = run("check", write(FILE.replace("every =", "evry =", 1)))
    assert found.exit_code == 1 and "there is no setting evry; did you mean every" in found.output
    found = run("check", tmp_path / "absent.toml")
    assert found.exit_code == 1 and "cannot be read" in found.output


def test_the_file_of_the_page_is_right_and_the_page_names_each_setting(namesrv, tmp_path):
    send(namesrv, {"orders-page": [b"{}"], "tmp-page": [b"{}"]})
    block, *parts = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    for part in parts:
        given = {
            "defaults": {"to": "/lake/{topic}", "format": "delta"},
            "tables": {".*": {}},
            **tomllib.loads(part),
        }
        settings_of({"name_server": namesrv, **given}, "lake.md")
    path = tmp_path / "lake.toml"
    path.write_text(block.replace("127.0.0.1:9876", namesrv).replace("/lake/", f"{tmp_path}/lake/"))
    found = run("check", path)
    assert found.exit_code == 0, found.output
    assert f"orders-page: begins delta at {tmp_path}/lake/orders-page, mode json" in found.output
    assert "tmp-page:" not in found.output
    for kind in (LakeSettings, TableSettings):
        for name in settings_in_files(kind):
            assert f"| `{name}` |" in PAGE, name


def test_status_without_a_lake_says_how_to_start_it(write):
    found = run("status", write(port=9))
    assert found.exit_code == 1 and "no lake answers at 127.0.0.1:9" in found.output
    assert "sparrowmq lake run" in found.output
    found = run("status", write(FILE.replace("metrics =", "master =").replace('master = "local[2]"', "", 1)))
    assert found.exit_code == 1 and "has no address to ask" in found.output


def test_a_wrong_file_ends_a_run_before_spark_starts(write):
    found = run("run", write(FILE.replace('mode = "json"', 'mode = "yaml"')), "--once")
    assert found.exit_code == 1 and "must be one of raw, json, schema" in found.output


class Running:
    """A lake in a process of its own, with its Java and its workers."""

    def __init__(self, path, folder):
        self.log = folder / f"log-{len(list(folder.glob('log-*')))}"
        command = [sys.executable, "-m", "sparrowmq", "lake", "run", str(path)]
        with open(self.log, "w") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=out, env=environment(folder), start_new_session=True
            )

    def address(self):
        return self.until(lambda: re.findall(r"status page at (http://\S+)/\n", self.said())[-1:])[0]

    def said(self):
        return self.log.read_text()

    def until(self, look):
        deadline = time.monotonic() + START_LIMIT_S
        while not (found := look()):
            assert self.process.poll() is None, self.said()[-5000:]
            assert time.monotonic() < deadline, self.said()[-5000:]
            time.sleep(0.1)
        return found

    def kill(self):
        """Kill it with all that it started."""
        family = [each.pid for each in psutil.Process(self.process.pid).children(recursive=True)]
        for pid in [self.process.pid, *family]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(30)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_lake_that_is_killed_in_the_middle_gives_each_message_one_row(namesrv, write, tmp_path):
    topics = [f"k-{at}" for at in range(5)]
    chance = random.Random(7)
    path, count = write(), 600
    send(namesrv, {topic: numbers(count) for topic in topics})
    running = Running(path, tmp_path)
    try:
        running.until(
            lambda: [each for each in topics if (tmp_path / "lake" / f"{each}.state" / "lake.json").exists()]
        )
        time.sleep(chance.uniform(0.2, 1.5))
        running.kill()
        running = Running(path, tmp_path)
        send(namesrv, {topic: [*numbers(20, count), b"bad"] for topic in [*topics, "k-new"]})
        running.address()

        def done():
            with urllib.request.urlopen(f"{running.address()}/status", timeout=10) as answer:
                tables = json.load(answer)["tables"]
            return len(tables) == 6 and all(table["state"] == "kept" for table in tables)

        running.until(done)
        time.sleep(2)
        running.until(done)
        with urllib.request.urlopen(f"{running.address()}/readyz", timeout=10) as answer:
            assert answer.read() == b"ok\n"
        with urllib.request.urlopen(f"{running.address()}/", timeout=10) as answer:
            assert b"6 tables, 0 failing" in answer.read()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0, running.said()[-3000:]
        report = json.loads(running.said().strip().splitlines()[-1])
        assert report["batches"] > 0 and "error" not in report
    finally:
        if running.process.poll() is None:
            running.kill()
    for topic in [*topics, "k-new"]:
        rows, errors = rows_of(tmp_path / "lake" / topic), rows_of(tmp_path / "lake" / f"{topic}.errors")
        begin = count if topic == "k-new" else 0
        assert sorted(row["id"] for row in rows) == list(range(begin, count + 20)), topic
        assert [row["body"] for row in errors] == [b"bad"]
        assert len({place(row) for row in rows + errors}) == len(rows) + 1
