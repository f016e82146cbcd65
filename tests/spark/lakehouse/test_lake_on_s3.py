"""A lake with tables on S3 and in a catalog: the same rounds, and the workers upload."""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from sparrowmq.spark.lakehouse.lake_table import LakeTable
from sparrowmq.spark.pipelines.lake.address import Address, Catalog
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.lakehouse.lakes import running, send, settings
from tests.spark.lakehouse.test_rounds import has_all, numbers, until
from tests.spark.pipelines.lake.s3 import RemoteTable, door_to

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster.namesrv


class Remote:
    """A topic, the settings of its table on S3, and what a reader of the format finds there."""

    def __init__(self, kind, folder, partition="day"):
        self.topic = f"s{uuid.uuid4().hex[:12]}"
        self.kind = "iceberg" if kind == "catalog" else kind
        self.state = folder / "state"
        self.section = {
            "to": "s3://bucket/lake/{topic}",
            "state": f"{self.state}/{{topic}}",
            "format": self.kind,
            "mode": "json",
            "partition": partition,
        }
        self.catalog = None
        if kind == "catalog":
            options = {"type": "sql", "uri": f"sqlite:///{folder / 'shared.db'}"}
            self.catalog = Catalog("shared", f"shop.{self.topic}", options)
            self.section |= {"catalog": "shared", "table": "shop.{topic}", "catalog_options": options}

    def seen(self, *, errors=False):
        root = Address(f"s3://bucket/lake/{self.topic}", self.state / self.topic, self.catalog)
        if errors:
            root = root.with_name(f"{self.topic}.errors")
            state = self.state / self.topic / "errors"
            root = Address(root.url, state, root.catalog)
        return RemoteTable(self.kind, root).seen()

    def ids(self):
        return sorted(self.seen().column("id").to_pylist())


BUCKETS = "bucket(4, id), hour"
# Each kind with one way to divide it.
DIVIDED = [("delta", "day"), ("parquet", BUCKETS), ("iceberg", BUCKETS), ("catalog", "day")]


@pytest.fixture(params=DIVIDED, ids=lambda param: param[0])
def remote(request, s3, tmp_path):
    kind, partition = request.param
    return Remote(kind, tmp_path, partition)


def test_topics_become_tables_on_s3_and_in_a_catalog(namesrv, remote, tmp_path):
    send(namesrv, {remote.topic: [*numbers(20), b"no json"]})
    found = settings(namesrv, tmp_path, {remote.topic: remote.section})
    with running(found) as rounds:
        until(rounds, has_all(rounds, remote.topic))
        send(namesrv, {remote.topic: [b'{"id":20,"name":"x","more":true}', b'{"id":"no number"}']})
        until(rounds, has_all(rounds, remote.topic))
        figures = rounds.tables[remote.topic].figures
        until(rounds, lambda: figures.read == 23)
    with running(found) as rounds:  # goes on behind what the tables have
        send(namesrv, {remote.topic: numbers(5, 21)})
        until(rounds, lambda: rounds.tables[remote.topic].figures.read == 5)
        until(rounds, has_all(rounds, remote.topic))
    assert remote.ids() == list(range(26))
    rejects = remote.seen(errors=True).select(["body", "reason"]).to_pylist()
    assert sorted((row["body"], row["reason"]) for row in rejects) == [
        (b"no json", "the body is not JSON"), (b'{"id":"no number"}', "id is no bigint"),
    ]  # fmt: skip


def test_a_state_that_is_an_older_copy_doubles_and_loses_nothing(namesrv, remote, tmp_path):
    found = settings(namesrv, tmp_path, {remote.topic: remote.section})
    send(namesrv, {remote.topic: numbers(5)})
    with running(found) as rounds:
        until(rounds, has_all(rounds, remote.topic))
    shutil.copytree(remote.state, tmp_path / "copy")
    for begin in (5, 10):
        send(namesrv, {remote.topic: numbers(5, begin)})
        with running(found) as rounds:
            until(rounds, lambda rounds=rounds: rounds.tables and rounds.tables[remote.topic].figures.read >= 5)
        shutil.rmtree(remote.state)
        shutil.copytree(tmp_path / "copy", remote.state)
    with running(found) as rounds:
        until(rounds, has_all(rounds, remote.topic))
    assert remote.ids() == list(range(15))


@pytest.mark.parametrize(("kind", "partition"), DIVIDED[:3])
def test_a_lake_whose_commit_failed_adds_the_batch_once(namesrv, s3, tmp_path, monkeypatch, kind, partition):
    """Killed after the table had the batch, and before that was noted; and before the table had it."""
    remote = Remote(kind, tmp_path, partition)
    send(namesrv, {remote.topic: numbers(9)})
    found = settings(namesrv, tmp_path, {remote.topic: remote.section})
    add = LakeTable._commit_files
    for is_before in (True, False):

        def die(*given, is_before=is_before, **more):
            if not is_before:
                add(*given, **more)
            raise OSError("killed")

        monkeypatch.setattr(LakeTable, "_commit_files", die)
        with running(found) as rounds:
            until(rounds, lambda rounds=rounds: rounds.tables and rounds.tables[remote.topic].has_failed)
    monkeypatch.setattr(LakeTable, "_commit_files", add)
    with running(found) as rounds:
        until(rounds, has_all(rounds, remote.topic))
    assert remote.ids() == list(range(9))


def test_while_s3_is_away_other_tables_go_on(namesrv, s3, tmp_path, monkeypatch):
    remote = Remote("delta", tmp_path)
    local = f"{remote.topic}-local"
    send(namesrv, {remote.topic: numbers(3), local: numbers(3)})
    section = {"mode": "json"}
    with door_to(s3) as door:
        monkeypatch.setenv("AWS_ENDPOINT_URL", door.endpoint)
        found = settings(namesrv, tmp_path, {remote.topic: remote.section, local: section})
        with running(found) as rounds:
            until(rounds, has_all(rounds, remote.topic, local))
            door.stop()
            send(namesrv, {remote.topic: numbers(3, 3), local: numbers(3, 3)})
            away = rounds.tables[remote.topic]
            until(rounds, lambda: away.has_failed and rounds.tables[local].figures.rows == 6)
            assert not away.is_permanent and "is away" in away.error
            door.start()
            until(rounds, has_all(rounds, remote.topic))
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    assert remote.ids() == list(range(6))


def test_a_run_that_lost_a_table_to_another_stays_without_it(namesrv, s3, tmp_path):
    """Two machines with one state: no lock reaches both."""
    remote = Remote("delta", tmp_path)
    found = settings(namesrv, tmp_path, {remote.topic: remote.section})
    send(namesrv, {remote.topic: numbers(3)})
    with running(found) as rounds:
        until(rounds, has_all(rounds, remote.topic))
        first = rounds.tables[remote.topic]
        first.release_files()
        (remote.state / remote.topic).rename(tmp_path / "aside")
        shutil.copytree(tmp_path / "aside", remote.state / remote.topic)
        with running(found) as others:
            send(namesrv, {remote.topic: numbers(3, 3)})
            until(others, lambda: others.tables[remote.topic].figures.read == 3)
        until(rounds, lambda: first.has_failed)
        assert first.is_permanent and "another run has begun to write" in first.error
    assert Counter(remote.ids()) == Counter(range(6))
    assert json.loads((remote.state / remote.topic / "table.json").read_text())["address"]
