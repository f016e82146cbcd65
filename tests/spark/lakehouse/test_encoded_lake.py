"""A lake with Avro and Protobuf bodies: a known schema takes one pass, and while the registry is away others go on."""

from __future__ import annotations

import io
import uuid
from threading import Event

import fastavro
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc_tools")
pytest.importorskip("deltalake")

from deltalake import DeltaTable

from sparrowmq.errors import ConfigError
from sparrowmq.schemas import wire_format
from sparrowmq.spark.lakehouse.lake_settings import settings_of
from sparrowmq.spark.lakehouse.lake_status import state_of_table
from sparrowmq.spark.lakehouse.lake_table import LakeTable
from sparrowmq.spark.pipelines.tables.table_settings import save_settings
from sparrowmq.testing.background import BackgroundCluster
from tests.schemas.fake_registry import FakeRegistry
from tests.spark.lakehouse.lakes import PlainWorkers, rows_of, running, send, settings
from tests.spark.lakehouse.test_rounds import has_all, numbers, until
from tests.spark.pipelines.lake.tables import rows_of as rows_in

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster.namesrv


@pytest.fixture
def registry():
    with FakeRegistry() as registry:
        yield registry


@pytest.fixture
def topic():
    return f"e{uuid.uuid4().hex[:12]}"


def schema(*fields):
    return {
        "type": "record",
        "name": "Order",
        "fields": [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields],
    }


OLD, NEW = schema(("id", "long")), schema(("id", "long"), ("place", "string"))


def avro(schema_id, written, **value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(written), value)
    return wire_format.frame_body(schema_id, out.getvalue())


def in_one_pass(workers):
    return len(workers.done) == len({part.ranges for part in workers.done})


def ids(folder):
    return sorted(row["id"] for row in rows_of(folder))


def test_avro_bodies_become_rows_and_each_schema_is_asked_for_once(namesrv, registry, topic, tmp_path):
    first, second = registry.add("old", OLD), registry.add("new", NEW)
    found = settings(namesrv, tmp_path, {topic: {"mode": "avro", "registry": registry.url}})
    send(namesrv, {topic: [avro(first, OLD, id=at) for at in range(8)]})
    workers = PlainWorkers()
    with running(found, workers) as rounds:
        until(rounds, has_all(rounds, topic))
        table = rounds.tables[topic]
        assert not in_one_pass(workers)
        send(namesrv, {topic: [avro(second, NEW, id=8, place="x"), avro(99, OLD, id=0), b"{}"]})
        until(rounds, lambda: table.figures.read == 11)
        workers.done.clear()
        send(namesrv, {topic: [avro(first, OLD, id=9), avro(second, NEW, id=10, place="y")]})
        until(rounds, lambda: table.figures.read == 13)
        assert in_one_pass(workers)
    assert ids(tmp_path / topic) == list(range(11))
    places = {row["id"]: row["place"] for row in rows_of(tmp_path / topic) if row.get("place")}
    assert places == {8: "x", 10: "y"}
    assert sorted(row["reason"] for row in rows_of(tmp_path / f"{topic}.errors")) == [
        "schema 99: the registry has no schemas/ids/99 (code 40403)",
        "the body begins with the byte 123, not with 0 and the id of a schema",
    ]


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_avro_bodies_are_in_the_partitions_of_their_fields(namesrv, registry, topic, tmp_path, kind):
    first, second = registry.add("old", OLD), registry.add("new", NEW)
    found = settings(
        namesrv,
        tmp_path,
        {
            topic: {
                "mode": "avro",
                "registry": registry.url,
                "format": kind,
                "partition": "place, bucket(2, id)",
            }
        },
    )
    send(namesrv, {topic: [avro(first, OLD, id=at) for at in range(4)]})
    with running(found) as rounds:
        until(rounds, has_all(rounds, topic))
        send(namesrv, {topic: [avro(second, NEW, id=4, place="x"), avro(second, NEW, id=5, place="y" * 300)]})
        until(rounds, has_all(rounds, topic))
        figures = rounds.tables[topic].figures
        until(rounds, lambda: figures.read == 6)
    state = tmp_path / f"{topic}.state"
    rows = rows_in(kind, tmp_path / topic, state)
    assert sorted((row["id"], row["place"]) for row in rows) == [*((at, None) for at in range(4)), (4, "x")]
    (error,) = rows_in(kind, tmp_path / f"{topic}.errors", state / "errors")
    assert error["reason"] == "place is too long for a partition"


def test_a_batch_that_was_half_done_gets_no_schema_that_came_later(namesrv, registry, topic, tmp_path, monkeypatch):
    """Killed between the two tables; then the registry knows a schema whose body is to be an error."""
    first = registry.add("old", OLD)
    found = settings(namesrv, tmp_path, {topic: {"mode": "avro", "registry": registry.url}})
    send(namesrv, {topic: [avro(first, OLD, id=1), avro(first + 1, NEW, id=2, place="x")]})
    add = LakeTable._commit_files

    def die_at_errors(table, lake, *given, **more):
        if lake is table._open_lakes()[1]:
            raise OSError("killed")
        return add(table, lake, *given, **more)

    monkeypatch.setattr(LakeTable, "_commit_files", die_at_errors)
    with running(found) as rounds:
        until(rounds, lambda: rounds.tables and rounds.tables[topic].has_failed)
    monkeypatch.setattr(LakeTable, "_commit_files", add)
    assert registry.add("new", NEW) == first + 1
    with running(found) as rounds:
        until(rounds, has_all(rounds, topic))
        send(namesrv, {topic: [avro(first + 1, NEW, id=3, place="x")]})
        until(rounds, lambda: rounds.tables[topic].figures.rows == 1)
    assert ids(tmp_path / topic) == [1, 3]
    assert len(rows_of(tmp_path / f"{topic}.errors")) == 1


@pytest.mark.parametrize("wrong", ["double", {"type": "array", "items": "long"}])
def test_a_schema_whose_key_cannot_be_one_makes_rejects_and_its_table_goes_on(
    namesrv, registry, topic, tmp_path, wrong
):
    """It may be the first one of the topic: then a column of its type would stop the table for ever."""
    first, second = registry.add("wrong", schema(("id", wrong))), registry.add("old", OLD)
    section = {"mode": "avro", "registry": registry.url, "format": "delta", "key": "id"}
    found = settings(namesrv, tmp_path, {topic: section})
    value = 1.5 if wrong == "double" else [1]
    send(namesrv, {topic: [avro(first, schema(("id", wrong)), id=value)]})
    with running(found) as rounds:
        until(rounds, has_all(rounds, topic))
        send(namesrv, {topic: [avro(second, OLD, id=7), avro(first, schema(("id", wrong)), id=value)]})
        until(rounds, lambda: rounds.tables[topic].figures.read == 3)
        assert not rounds.tables[topic].has_failed
    assert DeltaTable(str(tmp_path / topic)).to_pyarrow_table().column("id").to_pylist() == [7]
    reasons = DeltaTable(str(tmp_path / f"{topic}.errors")).to_pyarrow_table().column("reason").to_pylist()
    kind = "double" if wrong == "double" else "array<bigint>"
    assert reasons == [f"schema {first}: the key id has the type {kind}; choose a column of integers or texts"] * 2


def test_a_table_that_an_earlier_release_stopped_at_such_a_schema_goes_on(namesrv, registry, topic, tmp_path):
    second = registry.add("old", OLD)
    section = {"mode": "avro", "registry": registry.url, "format": "delta", "key": "id"}
    found = settings(namesrv, tmp_path, {topic: section})
    send(namesrv, {topic: [avro(second, OLD, id=7)]})
    settled = found.sections[0][1].table_settings(topic, {"id": "double"})
    save_settings(tmp_path / f"{topic}.state", settled)
    with running(found) as rounds:
        until(rounds, has_all(rounds, topic))
    assert DeltaTable(str(tmp_path / topic)).to_pyarrow_table().column("id").to_pylist() == [7]


def test_while_the_registry_is_away_the_other_tables_go_on(namesrv, topic, tmp_path):
    with FakeRegistry() as registry:
        first = registry.add("old", OLD)
        address = registry.url
    other = f"{topic}-json"
    send(namesrv, {topic: [avro(first, OLD, id=1)], other: numbers(3)})
    tables = {topic: {"mode": "avro", "registry": address}, other: {"mode": "json"}}
    with running(settings(namesrv, tmp_path, tables)) as rounds:
        until(rounds, has_all(rounds, other))
        until(rounds, lambda: rounds.tables[topic].has_failed)
        assert not rounds.tables[topic].is_permanent
    assert ids(tmp_path / other) == [0, 1, 2] and rows_of(tmp_path / topic) == []


def test_while_a_registry_is_slow_the_other_tables_go_on(namesrv, registry, topic, tmp_path):
    plain, answers = f"{topic}-plain", Event()
    registry.failures.append(answers)
    sections = {plain: {}, topic: {"mode": "avro", "registry": registry.url}}
    send(namesrv, {topic: [avro(registry.add("s", OLD), OLD, id=1)], plain: [b"x"]})
    with running(settings(namesrv, tmp_path, sections)) as rounds:
        until(rounds, lambda: plain in rounds.tables and rounds.tables[plain].figures.rows == 1)
        table = rounds.tables[topic]
        assert (table.figures.batches, table.has_failed, state_of_table(table)) == (0, False, "asking")
        answers.set()
        until(rounds, has_all(rounds, topic))
    assert ids(tmp_path / topic) == [1]


def test_protobuf_bodies_of_a_schema_file_become_rows(namesrv, topic, tmp_path):
    file = tmp_path / "order.proto"
    file.write_text('syntax = "proto3"; message Order { int64 id = 1; string name = 2; }')
    section = {"mode": "protobuf", "schema_file": str(file), "message": "Order"}
    send(namesrv, {topic: [b"\x08\x07\x12\x01x", b"\x08\x08", b"\xff"]})
    with running(settings(namesrv, tmp_path / "lake", {topic: section})) as rounds:
        until(rounds, has_all(rounds, topic))
    rows = rows_of(tmp_path / "lake" / topic)
    assert sorted((row["id"], row["name"]) for row in rows) == [(7, "x"), (8, "")]
    assert len(rows_of(tmp_path / "lake" / f"{topic}.errors")) == 1


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"mode": "avro"}, "mode avro needs the address of a schema registry, or the file of a schema"),
        ({"mode": "json", "registry": "http://127.0.0.1:9"}, "go with mode avro or protobuf only"),
        ({"mode": "avro", "schema_file": "/absent.avsc"}, "the schema cannot be read"),
        ({"mode": "avro", "registry": "127.0.0.1"}, "registry"),
    ],
)
def test_settings_that_do_not_fit_say_what_to_do(section, says):
    given = {"name_server": "127.0.0.1:9876", "tables": {"a": {"to": "/lake/{topic}", **section}}}
    with pytest.raises(ConfigError, match=says):
        settings_of(given, "lake.toml")
