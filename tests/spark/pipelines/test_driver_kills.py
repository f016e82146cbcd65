"""Drivers of pipelines are killed at work, and the next run leaves what a run without kills leaves.

`table`, `mirror` and `dedup` have such tests of their own. In CI, a forgotten commit and the folder of a killed run
stand for a kill (test_archive.py, running/test_folders.py). SPARROWMQ_KILLS is the number of kills of each pipeline,
but an audit, which begins again from nothing and has half as many.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.pipelines import archived, table
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.pipelines.killing import environment, kill_when
from tests.spark.pipelines.lake.tables import rows_of
from tests.spark.pipelines.test_traces import reports

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("SPARROWMQ_KILLS", "2"))
AFRESH = max(KILLS // 2, 1)  # kills of an audit: a second finds what the first found


@pytest.fixture(scope="module")
def namesrv(folder):
    """Of a broker with log files so small that a stored log has several."""
    with BackgroundCluster(folder, commit_log_file_bytes=256 << 10) as cluster:
        yield cluster.namesrv


@pytest.fixture
def where(topic):
    return {"name_server": topic.options["nameServer"], "spark": topic.spark, "say": lambda _: None}


@pytest.fixture
def killed(tmp_path, request):
    """Kills a pipeline several times, a moment after it began its work; then lets it end. Returns what it prints."""
    chance = random.Random(request.node.name)

    def killed(words, work, before=lambda kill: None, times=KILLS):
        command = [sys.executable, "-m", "sparrowmq", "pipeline", *map(str, words)]
        kills = 0
        for kill in range(times):
            before(kill)
            kills += kill_when(command, work, tmp_path / "log", chance.uniform(0, 0.3))
        assert kills >= (times + 1) // 2, "the runs ended before they were killed"
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=600, env=environment(tmp_path), check=False
        )
        has_findings = words[0] == "audit"  # which ends with 1 then
        assert ended.returncode == has_findings, ended.stderr
        return ended.stdout

    return killed


def numbers(rows):
    return Counter(int(row["body"]) for row in rows)


def test_an_archive(topic, killed, tmp_path):
    words = ["archive", topic.name, "-n", topic.options["nameServer"], "--to", tmp_path / "a"]
    words += ["-o", "maxOffsetsPerTrigger=500"]
    offsets = tmp_path / "a.state" / "checkpoint" / "offsets"
    killed(words, offsets, lambda kill: topic.send(kill * 4000, 4000))
    rows = archived(topic.spark, tmp_path / "a").select("body").collect()
    assert numbers(rows) == Counter(range(KILLS * 4000))


def test_a_backfill(topic, where, folder, killed, tmp_path):
    topic.send(0, 6000)
    table(topic.name, tmp_path / "t", once=True, options={"startingOffsets": "latest"}, **where)
    state = tmp_path / "t.state"
    killed(["backfill", tmp_path / "t", "--store", folder / "broker-0"], state / "stored-broker-0.json")
    assert numbers(rows_of("parquet", tmp_path / "t", state)) == Counter(range(6000))


def test_a_published_table(topic, where, killed, tmp_path):
    again = f"{topic.name}-again"
    words = ["publish", tmp_path / "t", again, "-n", topic.options["nameServer"]]

    def more(kill):
        topic.send(kill * 20_000, 20_000)
        table(topic.name, tmp_path / "t", once=True, **where)

    killed(words, tmp_path / "t.state" / f"publish-{again}" / "stored.json", more)
    sent = topic.read(topic=again).select("queueId", "queueOffset", "body").collect()
    assert numbers(sent) == Counter(range(KILLS * 20_000))
    ordered: dict[int, list[int]] = {row.queueId: [] for row in sent}
    for row in sorted(sent, key=lambda row: row.queueOffset):
        ordered[row.queueId].append(int(row.body))
    assert all(each == sorted(each) for each in ordered.values())


def test_an_audit(topic, killed, tmp_path):
    topic.send(0, 5000)
    ledger = tmp_path / "sent.csv"
    ledger.write_text("id\n" + "".join(f"id-{number}\n" for number in range(20_000)))
    words = ["audit", f"csv:{ledger}", f"topic:{topic.name}", "--by", "id", "--right-by", "msgId"]
    words += ["-n", topic.options["nameServer"], "--to", tmp_path / "found"]
    assert json.loads(killed(words, tmp_path / ".found.begun", times=AFRESH))["missing"] == 15_000
    rows = topic.spark.read.parquet(str(tmp_path / "found")).collect()
    assert sorted(row.key for row in rows) == sorted(f"id-{number}" for number in range(5000, 20_000))
    assert not (tmp_path / ".found.begun").exists()


def test_a_trace(topic, killed, tmp_path):
    topic.send_bodies([body for number in range(1, 3001) for body in reports(number)])
    words = ["trace", "-n", topic.options["nameServer"], "--topic", topic.name, "--to", tmp_path / "t"]
    killed(words, tmp_path / ".t.begun")
    assert topic.spark.read.parquet(str(tmp_path / "t")).count() == 9000
