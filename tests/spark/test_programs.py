"""Spark programs for readers: the README's, the quick start's and the example's.

They run in the session of these tests. Slow tests run those of pages with only the extras that their page names.
"""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparrowmq.client import blocking_client as sync
from sparrowmq.testing.background import BackgroundCluster
from tests.environments import python_with, variables
from tests.test_quickstart_page import EXTRAS
from tests.test_quickstart_page import PAGE as QUICKSTART_PAGE
from tests.test_quickstart_page import SPARK as QUICKSTART
from tests.test_readme import README as README_PAGE
from tests.test_readme import SPARK as README
from tests.test_readme import at
from tests.test_readme import run as run_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "spark_table.py"
SPARK_PAGE = (EXAMPLES.parent / "docs" / "use" / "spark.md").read_text(encoding="utf-8")
ELSEWHERE = ("remote=", 'load("/var/', "awaitAnyTermination")  # programs for other tests
MINUTE = '{"minute": "2026-11-24T12:0%d:00.000Z", "tags": "%s", "count": %d}'
PRINTED = {
    "spark_join": ["o-1 book 1 10 EUR", "o-3 book 3 30 EUR"],
    "spark_state": ["{'ann': 70, 'bob': 50}", "{'bob': 57}"],
    "spark_windows": [MINUTE % of for of in ((0, "home", 3), (0, "shop", 1), (1, "home", 1), (1, "shop", 1))],
}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BackgroundCluster]:
    with BackgroundCluster(tmp_path / "store") as cluster:
        yield cluster


@pytest.fixture
def lasting(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """The session, which others need when a program has stopped it and has changed its settings."""
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    before = spark.conf.getAll
    yield spark
    for key, value in spark.conf.getAll.items():
        if key not in before:
            spark.conf.unset(key)
        elif before[key] != value:
            spark.conf.set(key, before[key])


def run(program: str) -> None:
    exec(compile(program, "page.md", "exec"), {"__name__": "__main__"})


@pytest.mark.slow
def test_the_readme_counts_the_messages_of_a_topic_by_tag(cluster, spark, capsys):
    with sync.connect(cluster.namesrv) as mq:
        for tag in ("paid", "paid", "refunded"):
            mq.send("orders", b"hello", tag=tag)
    run(at(cluster, README))
    assert re.search(r"\|\s*paid\|\s*2\|", capsys.readouterr().out)


@pytest.mark.slow
def test_the_quick_start_reads_a_topic_copies_it_and_streams_it_to_a_table(tmp_path, cluster, spark, capsys):
    program = at(cluster, QUICKSTART)
    for folder in ("checkpoint", "orders_table"):
        assert f'"{folder}"' in program
        program = program.replace(f'"{folder}"', repr(str(tmp_path / folder)))
    with sync.connect(cluster.namesrv) as mq:
        mq.send("orders", b"hello", tag="paid")
        run(program)
        assert re.search(r"paid\|\s*NULL\|\s*hello\|", capsys.readouterr().out)
        with mq.subscribe("copy", group="g", start="earliest") as copied:
            assert next(iter(copied)).tag == "paid"
    assert list((tmp_path / "orders_table").glob("*.parquet"))


@pytest.mark.slow
def test_the_programs_of_the_page_of_spark_run_one_after_the_other(tmp_path, cluster, spark):
    scope: dict[str, Any] = {}
    with sync.connect(cluster.namesrv) as mq:
        mq.send("orders", b'{"order":"o-1","amount":5}', tag="paid", keys="k-1")
        for program in re.findall(r"```python\n(.*?)```", SPARK_PAGE, re.DOTALL):
            if not any(words in program for words in ELSEWHERE):
                exec(program.replace("localhost:9876", cluster.namesrv).replace("/lake", str(tmp_path)), scope)
                if (query := scope.pop("query", None)) is not None:
                    query.processAllAvailable()
                    query.stop()
        spark.streams.removeListener(scope["listener"])
        for topic in ("copy", "once", "sorted"):
            with mq.subscribe(topic, group="g", start="earliest") as written:
                assert next(iter(written)).tag == "paid"


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "with ('nameServer' = '{}', 'topic' = 'orders') "])
def test_a_table_of_the_catalog_takes_rows_by_the_names_of_their_columns(cluster, spark, options):
    assert "`insert into orders by name select body, tags, keys from ...`" in SPARK_PAGE
    with sync.connect(cluster.namesrv) as mq:
        mq.send("orders", b"hello", tag="paid")
    where = f"options (nameServer '{cluster.namesrv}', topic 'orders')"
    spark.sql(f"create table orders using rocketmq {where}")
    try:
        spark.sql(f"insert into orders {options.format(cluster.namesrv)}by name select body, tags from orders")
        assert [tuple(row) for row in spark.sql("select tags, count(*) from orders group by tags").collect()] == [
            ("paid", 2)
        ]
    finally:
        spark.sql("drop table orders")


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.usefixtures("lasting")
@pytest.mark.parametrize("name", PRINTED)
def test_streams_count_join_and_keep_a_state(cluster, monkeypatch, capfd, name):
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    shown = capfd.readouterr().out.splitlines()
    assert [line for line in PRINTED[name] if line in shown] == PRINTED[name]


@pytest.mark.slow
def test_the_readme_needs_the_extra_spark_alone(tmp_path, cluster):
    assert '\npip install ".[spark]" ' in README_PAGE
    with sync.connect(cluster.namesrv) as mq:
        mq.send("orders", b"hello", tag="paid")
    assert re.search(r"\|\s*paid\|\s*1\|", run_with(python_with("spark"), tmp_path, "-c", at(cluster, README)))


@pytest.mark.slow
def test_the_quick_start_and_its_query_need_its_extras_alone(tmp_path, cluster):
    python = python_with(*EXTRAS.split(","))
    with sync.connect(cluster.namesrv) as mq:
        mq.send("orders", b"hello", tag="paid")
    shown = run_with(python, tmp_path, "-c", at(cluster, QUICKSTART))
    assert re.search(r"paid\|\s*NULL\|\s*hello\|", shown)
    assert list((tmp_path / "orders_table").glob("*.parquet"))
    [query] = re.findall(r"`(sparrowmq pipeline [^`]*)`", QUICKSTART_PAGE)
    program, *words = shlex.split(query)
    done = subprocess.run(
        [python.with_name(program), *words],
        env=variables(python, NAMESRV_ADDR=cluster.namesrv),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\bpaid\b.*\b1\b", done.stdout)
