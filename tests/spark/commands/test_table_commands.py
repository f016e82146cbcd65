"""sparrowmq.spark.commands.pipeline_commands: table, publish, backfill and archive as commands."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from click.testing import CliRunner

from sparrowmq.spark.commands.pipeline_commands import pipeline
from sparrowmq.spark.pipelines import table
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings, save_settings, state_folder
from tests.spark.pipelines.tables.test_retries import make

pytestmark = pytest.mark.timeout(240)


@pytest.mark.slow
def test_table_ends_with_one_line_of_json(topic, tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda **_: topic.spark)
    topic.send_bodies([b'{"id":1}', b"no json"])
    args = [
        "table",
        topic.name,
        "-n",
        topic.options["nameServer"],
        "--to",
        str(tmp_path / "t"),
        "--mode",
        "json",
    ]
    looked = CliRunner().invoke(pipeline, [*args, "--dry-run"])
    assert "of 2 messages looked at, 1 would become errors; nothing was written" in looked.stdout
    done = CliRunner().invoke(pipeline, [*args, "--once"])
    report = json.loads(done.stdout)
    assert (report["read"], report["written"], report["errors"]) == (2, 1, 1)
    assert "batch 0: 1 row, 1 error" in done.stderr
    refused = CliRunner().invoke(pipeline, [*args, "--once", "--format", "delta"])
    assert refused.exit_code == 1
    assert "was begun with format 'parquet', not 'delta'" in refused.output


@pytest.mark.nightly
def test_publish_ends_with_one_line_of_json(topic, tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda **_: topic.spark)
    where = {"name_server": topic.options["nameServer"], "spark": topic.spark, "say": lambda _: None}
    refused = CliRunner().invoke(pipeline, ["publish", str(tmp_path / "none"), "t", "-n", topic.options["nameServer"]])
    assert refused.exit_code == 1
    assert "has no rows; name the folder of a table" in refused.output
    topic.send(0, 4)
    table(topic.name, tmp_path / "t", once=True, **where)
    args = ["publish", str(tmp_path / "t"), "commanded", "-n", topic.options["nameServer"]]
    assert json.loads(CliRunner().invoke(pipeline, [*args, "--dry-run"]).stdout)["read"] == 4
    assert json.loads(CliRunner().invoke(pipeline, args).stdout)["written"] == 4


def test_backfill_of_a_table_of_several_topics_is_refused(tmp_path):
    begin = {topic: {"broker-0": {"0": 0}} for topic in "ab"}
    save_settings(state_folder(tmp_path / "t"), TableSettings("a,b", "parquet", "raw", None, begin=begin))
    found = CliRunner().invoke(pipeline, ["backfill", str(tmp_path / "t"), "--store", str(tmp_path)])
    assert found.exit_code == 1
    assert "is of several topics, a,b" in found.stderr
    assert json.loads(found.stdout)["error"].startswith(str(tmp_path / "t"))


@pytest.mark.slow
def test_archive_and_backfill_end_with_one_line_of_json(topic, folder, tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda **_: topic.spark)
    where = {"name_server": topic.options["nameServer"], "spark": topic.spark, "say": lambda _: None}
    topic.send(0, 10)
    table(topic.name, tmp_path / "t", once=True, **where)
    done = CliRunner().invoke(
        pipeline, ["archive", topic.name, "-n", where["name_server"], "--to", str(tmp_path / "b")]
    )
    assert json.loads(done.stdout)["written"] == 10
    args = ["backfill", str(tmp_path / "t"), "--store", str(folder / "broker-0")]
    assert json.loads(CliRunner().invoke(pipeline, args).stdout)["written"] == 0
    assert "looks for messages" in CliRunner().invoke(pipeline, [*args, "--dry-run"]).stderr


def test_redrive_ends_with_one_line_of_json(tmp_path):
    refused = CliRunner().invoke(pipeline, ["redrive", str(tmp_path / "none")])
    assert refused.exit_code == 1
    assert "is no table; the pipeline `table` makes them" in refused.output
    root = make(tmp_path, "parquet")
    looked = CliRunner().invoke(pipeline, ["redrive", str(root), "--dry-run"])
    assert "3 errors would become rows, 3 would stay" in looked.stderr
    report = json.loads(CliRunner().invoke(pipeline, ["redrive", str(root)]).stdout)
    assert (report["read"], report["written"], report["errors"]) == (6, 3, 3)
