"""sparrowmq.spark.commands.pipeline_commands: sql, audit, lag and trace as commands."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from click.testing import CliRunner

from sparrowmq.client import blocking_client as sync
from sparrowmq.spark.commands.pipeline_commands import pipeline
from tests.spark.pipelines.test_traces import reports

pytestmark = pytest.mark.timeout(240)


@pytest.mark.slow
def test_sql_prints_rows_and_one_line_of_json(topic, monkeypatch, tmp_path):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda **_: topic.spark)
    topic.send(0, 3, TAGS="paid")
    query = f"select tags, body, properties from `{topic.name}` order by body"

    def run(*args):
        return CliRunner().invoke(pipeline, ["sql", query, "-n", topic.options["nameServer"], *args])

    planned = run("--dry-run")
    assert "ERROR" not in planned.stderr
    assert planned.stdout.splitlines()[:2] == ["tags: string", "body: string"]
    assert f"reads 3 messages of {topic.name}" in planned.stderr
    assert json.loads(planned.stdout.splitlines()[-1])["read"] == 3
    *rows, last = run("--form", "json").stdout.splitlines()
    assert [json.loads(row)["body"] for row in rows] == ["0", "1", "2"]
    assert json.loads(rows[0])["properties"]["TAGS"] == "paid"
    assert json.loads(last)["written"] == 3
    assert "reads 3 messages" in run("--form", "json").stderr
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # spark-submit has started it, and takes stderr for stdout
    assert run("--form", "json").stderr == ""
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    head, first, *_ = run("--form", "csv").stdout.splitlines()
    assert head == "tags,body,properties"
    assert first.startswith('paid,0,"{""')
    assert run().stdout.splitlines()[0].split() == ["tags", "body", "properties"]
    kept = run("--to", str(tmp_path / "kept"))
    assert json.loads(kept.stdout)["written"] == 3
    assert topic.spark.read.parquet(str(tmp_path / "kept")).count() == 3


@pytest.mark.slow
def test_audit_says_what_it_found_and_by_its_exit_code_whether(topic, tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda **_: topic.spark)
    topic.send(0, 3)
    args = ["audit", f"topic:{topic.name}", "-n", topic.options["nameServer"]]
    fine = CliRunner().invoke(pipeline, args)
    assert (fine.exit_code, json.loads(fine.stdout)["read"]) == (0, 3)
    (tmp_path / "l").write_text("id\nid-7\n")
    bad = CliRunner().invoke(pipeline, [*args, f"csv:{tmp_path / 'l'}", "--right-by", "id"])
    assert (bad.exit_code, json.loads(bad.stdout)["errors"]) == (1, 4)
    assert "missing 3, unexpected 1, doubled 0, gaps 0" in bad.stderr


def test_lag_shows_a_table_and_one_line_of_json(namesrv):
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic("orders", queues=1)
        mq.admin.create_group("billing")
        for number in range(3):
            mq.send("orders", b"%d" % number)
        mq.admin.reset("billing", "orders", "earliest")
    done = CliRunner().invoke(pipeline, ["lag", "billing", "-n", namesrv, "--above", "2"])
    head, line, last = done.stdout.splitlines()
    assert head.split() == ["group", "topic", "lag", "lag_seconds", "per_second"]
    assert line.split()[:3] == ["billing", "orders", "3"]
    assert json.loads(last)["errors"] == 1
    assert done.exit_code == 1
    assert CliRunner().invoke(pipeline, ["lag", "billing", "-n", namesrv]).exit_code == 0
    away = CliRunner().invoke(pipeline, ["lag", "billing", "-n", "127.0.0.1:1"])
    assert (away.exit_code, json.loads(away.stdout.splitlines()[-1])["errors"]) == (1, 1)


@pytest.mark.slow
def test_trace_prints_latencies(topic, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda **_: topic.spark)
    topic.send_bodies(reports(7))
    args = ["trace", "-n", topic.options["nameServer"], "--topic", topic.name, "--form", "json"]
    *lines, last = CliRunner().invoke(pipeline, args).stdout.splitlines()
    assert [json.loads(line)["max_ms"] for line in lines] == [5, 20, 7]
    assert json.loads(last)["read"] == 2
    assert json.loads(CliRunner().invoke(pipeline, [*args, "--dry-run"]).stdout)["written"] == 0
