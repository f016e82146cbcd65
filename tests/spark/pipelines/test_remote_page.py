"""Run docs/use/remote-tables.md: tables on S3 and in a catalog, by Spark."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import duckdb
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from click.testing import CliRunner
from deltalake import DeltaTable

from sparrowmq.spark.commands.pipeline_commands import pipeline
from sparrowmq.spark.pipelines import archive, archived
from sparrowmq.spark.pipelines.lake.address import storage_options
from sparrowmq.spark.pipelines.lake.spark_reader import read_table
from sparrowmq.spark.pipelines.tables.table_settings import locate_table
from tests.once.postgres import LivePostgres, needs_postgres
from tests.spark.pipelines.lake.s3 import KEYS

PAGE = (Path(__file__).parents[3] / "docs" / "use" / "remote-tables.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(line)[2:] for line in PAGE.splitlines() if line.startswith("sparrowmq pipeline ")]
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_each_command_of_the_page_is_valid(words):
    command = pipeline.commands[words[0]]
    with click.Context(pipeline) as parent:
        command.make_context(words[0], words[1:], parent=parent)


@pytest.fixture
def keys(spark, s3) -> Iterator[None]:
    """Give the workers of the session the keys, as a machine of a cluster has them."""
    spark.sparkContext.environment.update(s3.variables)
    yield
    for name in s3.variables:
        spark.sparkContext.environment.pop(name, None)


def run(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(pipeline, [*words])
    assert done.exit_code == 0, f"{words}: {done.output}\n{done.exception!r}"
    for secret in (KEYS["AWS_SECRET_ACCESS_KEY"], "s3cret"):
        assert secret not in done.output
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_topic_becomes_a_table_on_s3(topic, keys, tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda **_: topic.spark)
    topic.send_bodies([b'{"order":1}', b'{"order":2}', b"no object"])
    url, state = f"s3://bucket/{topic.name}", str(tmp_path / "state")
    table = (
        "table",
        topic.name,
        "-n",
        topic.options["nameServer"],
        "--to",
        url,
        "--state",
        state,
        "--format",
        "delta",
    )
    report = run(*table, "--mode", "json", "--once")
    assert (report["written"], report["errors"]) == (2, 1)
    topic.send_bodies([b'{"order":3,"paid":true}'])
    assert run(*table, "--mode", "json", "--once")["written"] == 1
    seen = DeltaTable(url, storage_options=storage_options(url)).to_pyarrow_table()
    rows = duckdb.execute('select "order", paid from seen order by all').fetchall()
    assert seen.num_rows == 3 and rows == [(1, None), (2, None), (3, True)]
    errors = DeltaTable(f"{url}.errors", storage_options=storage_options(url)).to_pyarrow_table()
    assert errors.column("body").to_pylist() == [b"no object"]
    found = read_table(topic.spark, locate_table(url, state)).select("order", "paid", "_day").collect()
    assert sorted((row.order, row.paid) for row in found) == [(1, None), (2, None), (3, True)]
    assert all(row._day is not None for row in found)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["parquet", "iceberg"])
def test_an_archive_on_s3_is_read_together_with_its_topic(topic, keys, tmp_path, kind):
    topic.send(0, 5)
    url, state = f"s3://bucket/{topic.name}-{kind}", tmp_path / "state"
    given = {"name_server": topic.options["nameServer"], "spark": topic.spark, "format": kind, "state": state}
    assert archive(topic.name, url, **given).written == 5
    topic.send(5, 3)
    seen = archived(topic.spark, url, name_server=topic.options["nameServer"], state=state)
    assert seen.count() == 8
    assert archive(topic.name, url, **given).written == 3
    assert archived(topic.spark, url, state=state).count() == 8


@needs_postgres
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_command_and_program_does_what_the_page_says(topic, keys, tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda **_: topic.spark)
    topic.send(0, 5)
    places = {
        "127.0.0.1:9876": topic.options["nameServer"],
        "/var/lib": str(tmp_path),
        "s3://bucket/": f"s3://bucket/{topic.name}/",
        "orders-again": f"{topic.name}-again",
    }

    def here(text: str) -> str:
        for theirs, ours in places.items():
            text = text.replace(theirs, ours)
        return text

    with LivePostgres() as server:
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TYPE", "sql")
        monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", server.url)
        written: dict[str, list[int]] = {}
        for words in COMMANDS:
            typed = [topic.name if word == "orders" else here(word) for word in words]
            report = run(*typed, *(["--once"] if words[0] == "table" else []))
            written.setdefault(words[0], []).append(report["written"])
        topic.send(5, 2)
        for program in PROGRAMS:
            exec(compile(here(program).replace('"orders"', repr(topic.name)), "remote-tables.md", "exec"), {})
        state = tmp_path / "ice"
        rows = read_table(topic.spark, locate_table(here("s3://bucket/ice/orders"), state))
        assert rows.count() == 7
    assert (written["table"], written["publish"]) == ([5, 5], [5])
