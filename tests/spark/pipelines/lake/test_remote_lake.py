"""sparrowmq.spark.pipelines.lake.remote_lake: tables on S3, in each format, as their readers see them."""

import shutil
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import date
from random import Random

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake import lake
from sparrowmq.spark.pipelines.lake.address import Address, Catalog
from sparrowmq.spark.pipelines.lake.remote_lake import RemoteLake
from sparrowmq.spark.pipelines.tables.batch_files import upload_target
from sparrowmq.spark.pipelines.tables.table_writer import ERRORS, ROWS
from tests.spark.pipelines.lake.s3 import RemoteTable, door_to, table_at
from tests.spark.pipelines.lake.tables import KINDS
from tests.spark.pipelines.tables.mishaps import Killed, Run, Topic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(params=KINDS)
def table(request, s3, tmp_path) -> RemoteTable:
    return table_at(f"s3://bucket/{uuid.uuid4().hex}/orders", tmp_path / "state", request.param)


def test_a_batch_is_there_once_also_after_a_lost_answer(table):
    table.add(0, 1, 2)
    table.add(0, 1, 2)  # the files of a second attempt, which no table takes
    table.add(1, 3)
    assert table.numbers() == [1, 2, 3]
    assert (table.open().last_batch(), len(table.open().paths())) == (1, 2)


def test_new_columns_are_null_in_older_rows(table):
    table.add(0, 1)
    table.add(1, 2, name="b")
    assert set(table.open().columns()) == {"number", "_day", "name"}
    if table.kind != "parquet":  # there each file has its own columns
        assert [(row["number"], row["name"]) for row in table.rows()] == [(1, None), (2, "b")]


def test_days_that_are_too_old_go(table):
    table.open().commit(0, table.staged(0, 1, day="2026-01-30"))
    table.open().commit(1, table.staged(1, 2, day="2026-02-01"))
    assert table.open().expire(date(2026, 2, 1)) == 1
    assert table.numbers() == [2]


def test_another_state_is_not_let_in(table, tmp_path):
    table.add(0, 1)
    other = RemoteTable(table.kind, Address(table.root.url, tmp_path / "other"), "another")
    with pytest.raises(ConfigError, match="belongs to another state folder, from another run's --state; give that"):
        other.open()
    assert table.numbers() == [1]


def test_a_table_inside_of_another_is_refused(table, tmp_path):
    """The log of a Delta table does not name the files of the inner one, so a merge would remove them."""
    table.add(0, 1)
    above = table.root.url.rpartition("/")[0]
    for url, says in ((f"{table.root.url}/a/b", "is inside of the table"), (above, "has the table")):
        other = RemoteTable(table.kind, Address(url, tmp_path / "other"), "another")
        with pytest.raises(ConfigError, match=f"{url} {says} .*/orders.*another address"):
            other.open()
    beside = RemoteTable(table.kind, Address(f"{table.root.url}.more", tmp_path / "beside"), "another")
    beside.add(0, 2)
    assert (table.numbers(), beside.numbers()) == ([1], [2])


def test_the_second_of_two_runs_stops_the_first(table):
    first = table.open()
    first.commit(0, table.staged(0, 1))
    second = table.open()
    with pytest.raises(ConfigError, match=r"another run has begun to write s3://bucket/.*; this one ends"):
        first.commit(1, table.staged(1, 2))
    second.commit(1, table.staged(1, 3))
    assert table.numbers() == [1, 3]


@pytest.mark.parametrize("step", ["target", "compact", "expire", "retire", "open"])
def test_a_run_that_lost_the_table_changes_nothing_of_it(table, step):
    """Each step of the first run comes while the second one has staged a batch."""
    table.open().commit(0, table.staged(0, 1))
    first = table.open()
    assert isinstance(first, RemoteLake) and first.last_batch() == 0
    second = table.open()
    staged = table.staged(1, 2)
    steps = {
        "target": lambda: upload_target(first, table.place, "parquet", "w-1"),
        "compact": lambda: first.compact(date(2099, 1, 1)),
        "expire": lambda: first.expire(date(2099, 1, 1)),
        "retire": lambda: first.retire(1e12),
        "open": first.columns,
    }
    if step == "open":
        first.forget()
    with pytest.raises(ConfigError, match=r"another run has begun to write s3://bucket/.*; this one ends"):
        steps[step]()
    second.commit(1, staged)
    assert table.numbers() == [1, 2]


def test_a_commit_has_its_record_also_after_later_looks(table):
    assert table.open().record() is None
    for batch in range(2):
        table.open().commit(batch, replace(table.staged(batch, batch), record=f"record {batch}"))
        assert table.open().record() == f"record {batch}"


class RemoteRun(Run):
    """One start of the pipeline with a table on S3."""

    def _staged(self, table, batch, rows, had):
        known = had or {}
        queues = [queue for queue in known if queue.topic == "t"]
        behind = {queue.queue_id: known[queue] for queue in queues}
        place = self.places[table]
        numbers = [number for queue, offset, number in rows if offset >= behind.get(queue, 0)]
        found = RemoteTable(self.kind, place, self.settled.writer).staged(batch, *numbers)
        return found if numbers else replace(found, files=[])

    @property
    def places(self):
        errors = self.root.with_name(f"{self.root.name}.errors")
        assert isinstance(errors, Address)
        return {ROWS: self.root, ERRORS: replace(errors, state=self.state / "errors")}

    def has(self, table):
        seen = RemoteTable(self.kind, self.places[table], self.settled.writer)
        return Counter(seen.numbers())


DEATHS = ["planned", ROWS, ERRORS, "never"]
# Each death with one kind of table, and each kind with one death.
IN_CI = {
    ("parquet", ROWS),
    ("iceberg", ERRORS),
    ("catalog", "planned"),
    *(("delta", death) for death in DEATHS),
}


def kinds_and_deaths():
    for kind in (*KINDS, "catalog"):
        for death in DEATHS:
            yield pytest.param(kind, death, marks=() if (kind, death) in IN_CI else pytest.mark.nightly)


@pytest.fixture(params=[*KINDS, "catalog"])
def stream(request, s3, tmp_path):
    """Starts runs of one table."""
    kind, catalog = request.param, None
    if kind == "catalog":
        options = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'shared.db'}"}
        kind, catalog = "iceberg", Catalog("shared", "shop.orders", options)
    root = Address(f"s3://bucket/{uuid.uuid4().hex}/orders", tmp_path / "state", catalog)
    topic = Topic(Random(request.param))

    def start():
        topic.send()
        return RemoteRun(root, root.state, kind, topic)

    return start


def finish(run):
    """Do all batches that there are."""
    while not run.is_read():
        run.batches(1)
    for table in (ROWS, ERRORS):
        assert run.has(table) == run.topic.wanted(table)


@pytest.mark.parametrize(("stream", "death"), list(kinds_and_deaths()), indirect=["stream"])
def test_an_older_copy_of_the_state_doubles_no_row_and_loses_none(stream, tmp_path, death):
    finish(stream())
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    finish(stream())
    with suppress(Killed):
        stream().batches(1, death)
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "copy").rename(tmp_path / "state")
    finish(stream())
    finish(stream())


def test_a_table_whose_state_is_lost_is_not_begun_again(stream, tmp_path):
    finish(stream())
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(ConfigError, match="belongs to another state folder"):
        stream()


def test_a_store_that_is_away_is_waited_out(table, s3, monkeypatch, capsys):
    with door_to(s3) as door:
        monkeypatch.setenv("AWS_ENDPOINT_URL", door.endpoint)
        opened, staged, pauses = table.open(), table.staged(0, 1), []
        assert opened.last_batch() == -1
        door.stop()

        def pause(seconds):
            pauses.append(seconds)
            if len(pauses) == 2:
                door.start()

        object.__setattr__(opened._retry, "sleep", pause)
        opened.commit(0, staged)
    assert pauses == [1, 2]
    assert "is away" in capsys.readouterr().err
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    assert table.numbers() == [1]


def test_a_bucket_that_is_not_there_is_an_error_at_once(s3, tmp_path):
    for kind in KINDS:
        with pytest.raises(ConfigError, match="there is no bucket bukket"):
            table_at("s3://bukket/orders", tmp_path, kind).open()


def test_looking_makes_no_owner(table):
    table.add(0, 1)
    owner = table.root.storage.read(".sparrowmq/owner.json")
    place = lake.TableLocation(table.root, table.root.state, "writer", is_read_only=True)
    assert lake.open_lake(table.kind, place).last_batch() == 0
    assert table.root.storage.read(".sparrowmq/owner.json") == owner
