"""Spark programs for readers, the README's and the example's, in the session that is here: a JVM takes its time."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.client import sync
from sparrowmq.testing.background import BackgroundCluster
from tests.test_readme import SPARK, at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_table.py"

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BackgroundCluster]:
    with BackgroundCluster(tmp_path / "store") as cluster:
        yield cluster


@pytest.fixture
def lasting(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The session, which others need when a program has stopped it."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    return spark


def test_the_readmes_reads_a_topic_copies_it_and_streams_it_to_a_table(tmp_path, cluster, spark, capsys):
    program = at(cluster, SPARK)
    for folder in ("checkpoint", "orders_table"):
        assert f'"{folder}"' in program
        program = program.replace(f'"{folder}"', repr(str(tmp_path / folder)))
    with sync.connect(cluster.namesrv) as mq:
        mq.send("orders", b"hello", tag="paid")
        exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
        assert re.search(r"paid\|\s*NULL\|\s*hello\|", capsys.readouterr().out)
        with mq.subscribe("copy", group="g", start="earliest") as copied:
            assert next(iter(copied)).tag == "paid"
    assert list((tmp_path / "orders_table").glob("*.parquet"))


def test_the_example_counts_a_topic_into_another(cluster, lasting, monkeypatch, capsys):
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "sales"])
    with sync.connect(cluster.namesrv) as mq:
        for number in range(6):
            mq.send("sales", f"body {number}".encode(), tag="even" if number % 2 == 0 else "odd")
        runpy.run_path(str(EXAMPLE), run_name="__main__")
        assert re.search(r"\|\s*even\|\s*3\|", capsys.readouterr().out)
        with mq.subscribe("sales-by-tag", group="readers", start="earliest") as results:
            rows = [message.json() for _, message in zip(range(2), results, strict=False)]
    assert sorted(row["tags"] for row in rows) == ["even", "odd"]
    assert [row["count"] for row in rows] == [3, 3]
