"""sparrowmq.spark.pipelines.tables.table_writer: a lost, older or doubled state costs and doubles no row."""

from __future__ import annotations

import json
import shutil
import time

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines import table
from sparrowmq.spark.pipelines.running.folders import lock_folder
from sparrowmq.spark.pipelines.tables.table_writer import ERRORS, ROWS
from sparrowmq.spark.source.partition_ranges import RowsLost
from tests.spark.pipelines.lake.tables import KINDS_AT_LENGTH, KINDS_AT_NIGHT, rows_of, take_back
from tests.spark.pipelines.tables.mishaps import Mishaps, Run


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [4, pytest.param(25, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", KINDS_AT_LENGTH)
def test_no_mishap_loses_or_doubles_a_row(tmp_path, kind, rounds):
    mishaps = Mishaps(tmp_path, kind, rounds)
    mishaps.play(rounds)
    assert mishaps.resumed


@pytest.fixture
def run(topic, tmp_path):
    """Runs the pipeline once; returns what it says beside its batches."""

    def run(kind, mode="json", schema=None, **options):
        said: list[str] = []
        report = table(
            topic.name,
            tmp_path / "orders",
            name_server=topic.options["nameServer"],
            format=kind,
            mode=mode,
            schema=schema,
            once=True,
            spark=topic.spark,
            options={"maxOffsetsPerTrigger": "20", **options},
            say=said.append,
        )
        assert not report.error
        return [line for line in said if not line.startswith("batch ")]

    return run


def found(tmp_path, kind):
    """The numbers in the table, and how many errors there are."""
    state = tmp_path / "orders.state"
    rows = rows_of(kind, tmp_path / "orders", state)
    errors = rows_of(kind, tmp_path / "orders.errors", state / "errors")
    return sorted(row["number"] for row in rows), len(errors)


def send(topic, start, stop):
    """Every fifth is an error."""
    topic.send_bodies([b"no json" if n % 5 == 0 else json.dumps({"number": n}).encode() for n in range(start, stop)])


def wanted(stop):
    return [n for n in range(stop) if n % 5], (stop + 4) // 5


def test_a_batch_whose_commit_was_removed_does_not_come_twice(tmp_path):
    mishaps = Mishaps(tmp_path, "parquet", 5)
    for _ in range(4):
        mishaps.topic.send()
        mishaps.run(is_whole=True)
    max(mishaps.root.glob(".sparrowmq/[0-9]*.json")).unlink()
    with pytest.raises(ConfigError, match="has no commit of it now; restore the commit, or") as caught:
        mishaps.run(is_whole=True)
    of_batch = str(caught.value).partition(" remove the files ")[2].partition(" of all days")[0]
    named = list(mishaps.root.glob(f"*/{of_batch}"))
    assert named
    for path in named:
        path.unlink()
    mishaps.run(is_whole=True)
    assert (mishaps.has(ROWS), mishaps.has(ERRORS)) == (
        mishaps.topic.wanted(ROWS),
        mishaps.topic.wanted(ERRORS),
    )


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_that_was_taken_back_ends_the_run_and_the_next_start_reads_what_it_lacks(tmp_path, kind):
    mishaps = Mishaps(tmp_path, kind, 1)
    topic, state = mishaps.topic, mishaps.folders["state"]
    run = Run(mishaps.root, state, kind, topic)

    def go_on():
        for _ in range(3):
            topic.send()
        while not run.is_read():
            run.batches(1)

    go_on()
    go_on()
    take_back(kind, mishaps.root, state)
    with pytest.raises(ConfigError, match=r"took .* back from batch .*; start again|another run has written"):
        go_on()
    mishaps.run(is_whole=True)
    assert mishaps.resumed == 1
    mishaps.run(is_whole=True)
    assert mishaps.resumed == 1
    for table_or_errors in (ROWS, ERRORS):
        assert mishaps.has(table_or_errors) == topic.wanted(table_or_errors)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS_AT_NIGHT)
def test_a_lost_and_an_older_state_and_an_older_table(topic, run, tmp_path, kind):
    root, state, copy = tmp_path / "orders", tmp_path / "orders.state", tmp_path / "copy"
    send(topic, 0, 50)
    assert run(kind) == []
    shutil.copytree(tmp_path, copy)
    shutil.rmtree(state)
    send(topic, 50, 80)
    (line,) = run(kind)
    assert "its state was lost; goes on behind what the table has" in line
    assert found(tmp_path, kind) == wanted(80)
    shutil.rmtree(state)
    shutil.copytree(copy / "orders.state", state)
    send(topic, 80, 90)
    (line,) = run(kind)
    assert "its state is older than the table" in line
    assert found(tmp_path, kind) == wanted(90)
    assert run(kind) == []
    shutil.rmtree(root)  # The errors stay as they are: only the rows are read again.
    shutil.copytree(copy / "orders", root)
    send(topic, 90, 100)
    (line,) = run(kind)
    assert "its state is newer than the table" in line
    assert found(tmp_path, kind) == wanted(100)
    for folder, advice in ((tmp_path / "orders.errors", "make an empty folder"), (root, "restore the table")):
        aside = tmp_path / "aside"
        folder.rename(aside)
        with pytest.raises(ConfigError, match=advice):
            run(kind)
        shutil.rmtree(folder, ignore_errors=True)  # the lock may have made it
        aside.rename(folder)
    assert run(kind) == []
    with lock_folder(root / ".sparrowmq"), pytest.raises(ConfigError, match="another run is at work"):
        run(kind)
    assert found(tmp_path, kind) == wanted(100)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS_AT_NIGHT)
def test_a_state_lost_between_the_two_tables_and_a_longer_schema(topic, run, tmp_path, kind):
    """The message is in no table yet, and fits the columns of now: but the batch of its rows is there."""
    topic.send_bodies([b'{"id":1}', b'{"id":2}', b'{"id":"text"}'])
    assert run(kind, "schema", "id bigint") == []
    for name in ("orders.errors", "orders.state"):
        shutil.rmtree(tmp_path / name)
    topic.send_bodies([b'{"id":"more"}'])
    (line,) = run(kind, "schema", "id string")
    assert "its state was lost" in line
    topic.send_bodies([b'{"id":"new"}'])
    assert run(kind, "schema", "id string") == []
    state = tmp_path / "orders.state"
    rows = rows_of(kind, tmp_path / "orders", state)
    errors = rows_of(kind, tmp_path / "orders.errors", state / "errors")
    assert sorted(row["id"] for row in rows) == ["1", "2", "new"]
    assert sorted(bytes(row["body"]) for row in errors) == [b'{"id":"more"}', b'{"id":"text"}']


@pytest.mark.slow
def test_rows_of_a_topic_that_was_made_again_are_not_taken_for_those_of_the_one_before(topic, run, tmp_path):
    send(topic, 0, 20)
    run("parquet")
    make_again(topic)
    for start, stop in (
        (1, 5),
        (5, 11),
    ):  # the first have no error; the next begin before the 20 of the topic before
        send(topic, start, stop)
        run("parquet", failOnDataLoss="false")
    numbers = [n for n in (*range(20), *range(1, 11)) if n % 5]
    assert found(tmp_path, "parquet") == (sorted(numbers), 4 + 2)
    make_again(topic)  # and the state is lost
    shutil.rmtree(tmp_path / "orders.state")
    send(topic, 1, 13)
    with pytest.raises(RowsLost, match="was deleted and made again"):
        run("parquet")
    run("parquet", failOnDataLoss="false")
    assert found(tmp_path, "parquet") == (sorted([*numbers, *(n for n in range(1, 13) if n % 5)]), 4 + 2 + 2)


def make_again(topic):
    """Delete the topic and make it with one queue, in which offsets are counted."""
    with sync.connect(topic.options["nameServer"]) as mq:
        mq.admin.delete_topic(topic.name)
        mq.admin.create_topic(topic.name, queues=1)
    deadline = time.monotonic() + 60
    while not topic.ends():
        assert time.monotonic() < deadline
        time.sleep(0.01)
