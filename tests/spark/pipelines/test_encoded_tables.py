"""Tables of Avro and Protobuf bodies: sparrowmq.spark.pipelines.table with the modes `avro` and `protobuf`."""

from __future__ import annotations

import datetime as d
import io
import json
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc_tools")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

import duckdb
import fastavro
from google.protobuf import message_factory

from sparrowmq.errors import ConfigError
from sparrowmq.schemas import wire_format
from sparrowmq.schemas.protobuf import ProtobufFile, compile_schema
from sparrowmq.schemas.registry import PROTOBUF, Schema
from sparrowmq.spark.pipelines import preview, table
from tests.schemas.fake_registry import FakeRegistry
from tests.schemas.samples import MONEY, ORDER, ORDER_BODY, SHOP
from tests.spark.pipelines.lake import tables
from tests.spark.pipelines.lake.tables import KINDS_AT_LENGTH

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def registry():
    with FakeRegistry() as registry:
        yield registry


@pytest.fixture
def run(topic, tmp_path):
    def run(kind="parquet", **given):
        said: list[str] = []
        report = table(
            topic.name,
            tmp_path / "table",
            name_server=topic.options["nameServer"],
            format=kind,
            once=True,
            spark=topic.spark,
            say=said.append,
            **given,
        )
        return report, said

    return run


def rows_of(kind, path):
    of_errors = path.name.endswith(".errors")
    state = path.with_name(path.name.removesuffix(".errors") + ".state")
    found = tables.rows_of(kind, path, state / "errors" if of_errors else state)
    return sorted(found, key=lambda row: (row["_mq"]["queueId"], row["_mq"]["queueOffset"]))


def avro(schema_id, schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return wire_format.frame_body(schema_id, out.getvalue())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_AT_LENGTH)
def test_avro_bodies_are_rows_with_the_columns_of_their_schemas(topic, run, tmp_path, registry, kind):
    assert registry.add("orders-value", ORDER) == 1
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "place", "type": ["null", "string"]}]}
    early = {
        "type": "record",
        "name": "T",
        "fields": [{"name": "day", "type": {"type": "int", "logicalType": "date"}}],
    }
    topic.send_bodies([ORDER_BODY, ORDER_BODY[:-2], b"\0\0\0\0\x09x", b"{}", b""])
    report, _ = run(kind, mode="avro", registry=registry.url)
    assert (report.read, report.written, report.errors) == (5, 1, 4)
    assert registry.add("orders-value", newer) == 2
    value: Any = fastavro.schemaless_reader(io.BytesIO(ORDER_BODY[5:]), fastavro.parse_schema(ORDER))
    topic.send_bodies([avro(2, newer, {**value, "place": "here"}), ORDER_BODY])
    assert registry.add("early", early) == 3
    topic.send_bodies([avro(3, early, {"day": d.date(1, 1, 1)})])
    report, _ = run(kind, mode="avro", registry=registry.url)
    assert (report.read, report.written, report.errors) == (3, 3, 0)
    rows = rows_of(kind, tmp_path / "table")
    assert sorted(str(row["place"]) for row in rows) == ["None", "None", "None", "here"]
    assert min(row["day"] for row in rows) == d.date(1, 1, 1)
    (row,) = (row for row in rows if row["place"] == "here")
    expected = {
        "id": -7, "small": 2**31 - 1, "paid": True, "weight": 0.5, "height": 1e-3, "note": "né", "raw": b"\0\1",
        "amount": Decimal("-12.34"), "day": d.date(2026, 11, 23), "ref": "00000000-0000-0000-0000-000000000005",
        "state": "PAID", "hash": b"abcd", "either": {"long": None, "string": "x"},
        "lines": [{"sku": "s-1", "count": -3}, {"sku": "", "count": 300}],
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert dict(row["tags"]) == {"a": "b"}
    assert row["at"].astimezone(d.UTC) == d.datetime(2026, 11, 23, 12, 0, 0, 5000, tzinfo=d.UTC)
    assert sorted(row["reason"] for row in rows_of(kind, tmp_path / "table.errors")) == [
        "lines[1].count: the body ends early",
        "schema 9: the registry has no schemas/ids/9 (code 40403)",
        "the body begins with the byte 123, not with 0 and the id of a schema",
        "the body is empty",
    ]


@pytest.mark.slow
def test_protobuf_bodies_are_rows_with_the_columns_of_their_message(topic, run, tmp_path, registry):
    registry.add("money", MONEY, "PROTOBUF")
    needed = [{"name": "shop/money.proto", "subject": "money", "version": 1}]
    assert registry.add("orders-value", SHOP, "PROTOBUF", needed) == 2
    file = ProtobufFile(compile_schema(Schema(PROTOBUF, SHOP, (("shop/money.proto", MONEY),))))
    order = message_factory.GetMessageClass(file.message_named("Order"))(id=5, big=2**64 - 1, text="t", state=1)
    order.lines.add(sku="s", count=2)
    order.prices["eur"].units = 7
    order.at.FromSeconds(1)
    order.took.nanos = 5
    order.parent.id = 1
    other = message_factory.GetMessageClass(file.message_named("Other"))(yes=True)
    bodies = [
        wire_format.frame_body(2, order.SerializeToString(), (0,)),
        wire_format.frame_body(2, other.SerializeToString(), (1,)),
    ]
    topic.send_bodies(
        [*bodies, wire_format.frame_body(2, b"", (7,)), bodies[0][:-1], wire_format.frame_body(1, b"\x58\x01", (0,))]
    )
    report, _ = run(mode="protobuf", registry=registry.url)
    assert (report.read, report.written, report.errors) == (5, 2, 3)
    rows = {row["id"]: row for row in rows_of("parquet", tmp_path / "table")}
    row = rows[5]
    assert rows[None]["yes"] is True and row["yes"] is None
    assert (row["big"], row["text"], row["number"], row["state"]) == (Decimal(2**64 - 1), "t", None, "PAID")
    assert row["lines"] == [{"sku": "s", "count": 2}]
    assert dict(row["prices"]) == {"eur": {"units": 7, "nanos": 0}}
    assert (row["took"], json.loads(row["parent"])) == (Decimal("0.000000005"), {"id": "1"})
    assert sorted(row["reason"] for row in rows_of("parquet", tmp_path / "table.errors")) == [
        "schema 2: it has no message 7",
        "shop.Money has no field 11; the body is damaged, or of another schema",
        "the body is not of its Protobuf message: it is cut off, or damaged",
    ]
    found = duckdb.sql(f"select sum(id) from read_parquet('{tmp_path}/table/*/*.parquet')")
    assert found is not None and found.fetchall() == [(5,)]


@pytest.mark.slow
def test_a_registry_that_is_away_makes_no_errors(topic, run, tmp_path, registry):
    registry.add("orders-value", ORDER)
    topic.send_bodies([ORDER_BODY])
    registry.failures += [503, "hang up"]
    report, said = run(mode="avro", registry=registry.url)
    assert (report.written, report.errors, report.restarts) == (1, 0, 2)
    assert [line for line in said if "does not answer (status 503" in line]
    assert not (tmp_path / "table.errors").exists()


@pytest.mark.slow
def test_a_schema_may_be_in_a_file(topic, run, tmp_path):
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    file = tmp_path / "r.avsc"
    file.write_text(json.dumps(schema))
    topic.send_bodies([b"\x02", b"\x02\x02", b"\x04\x06x"])
    shown = preview(
        topic.name, tmp_path / "table", name_server=topic.options["nameServer"], mode="avro", schema_file=file,
        spark=topic.spark,
    )  # fmt: skip
    assert "a: bigint" in shown and "3 messages looked at, 2 would become errors" in shown
    assert run(mode="avro", schema_file=file)[0].written == 1
    file.write_text(json.dumps({**schema, "fields": [*schema["fields"], {"name": "b", "type": "string"}]}))
    topic.send_bodies([b"\x04\x02x"])
    assert run(mode="avro", schema_file=file)[0].written == 1
    assert [(row["a"], row["b"]) for row in rows_of("parquet", tmp_path / "table")] in (
        [(1, None), (2, "x")],
        [(2, "x"), (1, None)],
    )
    with pytest.raises(ConfigError, match="was begun without a registry"):
        run(mode="avro", registry="http://127.0.0.1:1")
