"""sparrowmq.spark.pipelines.tables.encoded_bodies: each body is a row of the columns, or a reason."""

import base64
import io
import json
import os
import pickle
import random
from collections import Counter

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc_tools")

import fastavro
from google.protobuf import message_factory
from pyspark.sql import types as t

from sparrowmq.errors import InvalidSchema
from sparrowmq.schemas import wire_format
from sparrowmq.schemas.protobuf import ProtobufFile, compile_schema
from sparrowmq.schemas.registry import AVRO, PROTOBUF, Schema
from sparrowmq.spark.pipelines.tables import encoded_bodies
from sparrowmq.spark.pipelines.tables.encoded_bodies import (
    NO_SCHEMA_ID,
    BodyHead,
    EncodedReader,
    Encoding,
    SchemaSource,
    count_heads,
    frequent_heads,
)
from tests.schemas.samples import MONEY, ORDER, ORDER_BODY, SHOP

ARROW = {"bigint": pa.int64(), "string": pa.string(), "double": pa.float64(), "boolean": pa.bool_()}
SPARK = {
    "bigint": t.LongType(),
    "string": t.StringType(),
    "double": t.DoubleType(),
    "boolean": t.BooleanType(),
}
OWN = ("_mq", "_day")
POINT = {
    "type": "record",
    "name": "P",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "string"}],
}


def encoding(mode="avro", is_framed=True, missing=None, **schemas):
    found = {int(name[1:]): source for name, source in schemas.items()}
    return Encoding(mode, is_framed, found, missing or {})


def source(schema):
    return SchemaSource(AVRO, json.dumps(schema))


def shop():
    return SchemaSource(
        PROTOBUF, base64.b64encode(compile_schema(Schema(PROTOBUF, SHOP, (("shop/money.proto", MONEY),)))).decode()
    )


def batches(of, fields, bodies):
    added = [pa.field("reason", pa.string()), *(pa.field(name, ARROW[kind]) for name, kind in fields.items())]
    reader = EncodedReader(of, {name: SPARK[kind] for name, kind in fields.items()}, added, OWN)
    reader = pickle.loads(pickle.dumps(reader))  # as Spark sends it
    return list(reader([pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})]))


def read(of, fields, bodies):
    return [row for batch in batches(of, fields, bodies) for row in batch.to_pylist()]


def test_a_body_is_a_row_or_has_a_reason():
    of = encoding(_1=source(POINT), missing={2: "no such schema"})
    bodies = [
        b"\0\0\0\0\1\2\2a", b"\0\0\0\0\2\2\2a", b"\0\0\0\0\3\2\2a", b"\0\0\0\0\1\2", b"\0\0\0", b"{}", b"", None,
    ]  # fmt: skip
    found = read(of, {"x": "bigint", "y": "string"}, bodies)
    assert [(row["x"], row["y"], row["reason"]) for row in found] == [
        (1, "a", None),
        (None, None, "schema 2: no such schema"),
        (None, None, "schema 3: the batch has too many schemas that were never seen before"),
        (None, None, "y: the body ends early"),
        (None, None, "the body ends within the id of its schema"),
        (None, None, "the body begins with the byte 123, not with 0 and the id of a schema"),
        (None, None, "the body is empty"),
        (None, None, "the body is empty"),
    ]
    assert [row["body"] for row in found] == bodies


def test_a_field_that_has_no_column_is_a_reason():
    of = encoding(_1=source(POINT))
    body = b"\0\0\0\0\1\2\2a"
    assert read(of, {"x": "bigint"}, [body])[0]["reason"] == "the table has 1 columns, and y is none of them"
    (row,) = read(of, {"x": "bigint", "Y": "string"}, [body])
    assert row["reason"] == (
        "the field y and the column Y differ only in case, and most readers treat them as one; rename one of them"
    )
    (row,) = read(of, {"x": "boolean", "y": "bigint"}, [body])
    assert row["reason"] == "x is no boolean, y is no bigint"


def test_bodies_without_ids_have_the_only_schema():
    of = Encoding("avro", False, {NO_SCHEMA_ID: source("string")})
    found = read(of, {"value": "string"}, [b"\2a", b"", b"\0", None])
    assert [(row["value"], row["reason"]) for row in found] == [
        ("a", None), (None, "the body is empty"), ("", None), (None, "the body is empty"),
    ]  # fmt: skip


def test_a_protobuf_body_names_its_message():
    of = encoding("protobuf", _1=shop(), _2=source(POINT))
    framed = ((1, b"\x08\x01", (1,)), (1, b"", (0, 1)), (1, b"", (5,)), (2, b"", (0,)))
    bodies = [wire_format.frame_body(*each) for each in framed]
    fields = {"yes": "boolean", "sku": "string", "count": "bigint"}
    found = read(of, fields, bodies)
    assert [(row["yes"], row["sku"], row["count"], row["reason"]) for row in found] == [
        (True, None, None, None),
        (None, "", 0, None),
        (None, None, None, "schema 1: it has no message 5"),
        (None, None, None, "schema 2: the schema is of the type AVRO, not PROTOBUF"),
    ]
    only = Encoding("protobuf", False, {NO_SCHEMA_ID: SchemaSource(PROTOBUF, shop().text, message="shop.Other")})
    assert [row["yes"] for row in read(only, fields, [b"\x08\x01", b""])] == [True, False]


def test_heads_are_counted_and_limited(monkeypatch):
    of = encoding()
    bodies = [wire_format.frame_body(number, b"") for number in (1, 2, 2, 3, 3, 3)]
    monkeypatch.setattr(encoded_bodies, "_MAX_HEADS", 2)
    assert heads_in(of, [*bodies, b"{}", None]) == [(3, (), 3), (2, (), 2)]
    assert heads_in(encoding("protobuf"), [wire_format.frame_body(1, b"x", (1, 2))]) == [(1, (1, 2), 1)]


def heads_in(of, bodies):
    found: Counter[BodyHead] = Counter()
    count_heads(of, bodies, found)
    return frequent_heads(found)


def test_a_schema_that_no_table_can_have_is_the_reason_of_its_bodies():
    inner = {
        "type": "record",
        "name": "I",
        "fields": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}],
    }
    of = encoding(_1=source({"type": "record", "name": "R", "fields": [{"name": "i", "type": inner}]}))
    with pytest.raises(InvalidSchema):
        of.columns((1, ()))
    (row,) = read(of, {"i": "string"}, [wire_format.frame_body(1, b"\2\2")])
    assert row["reason"] == ("schema 1: the fields a and A of I differ only in case; most readers treat them as one")


def test_large_bodies_are_not_in_memory_together():
    of = encoding(_1=source({"type": "array", "items": "boolean"}))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema({"type": "array", "items": "boolean"}), [True] * 600_000)
    bodies = [wire_format.frame_body(1, out.getvalue())] * 5
    found = batches(of, {"value": "string"}, bodies)
    assert [batch.num_rows for batch in found] == [2, 2, 1]


@pytest.mark.slow
def test_changed_and_invented_bodies_are_rows_or_have_a_reason():
    """SPARROWMQ_BODIES says how many, for longer runs."""
    chance = random.Random(23)
    order = message_factory.GetMessageClass(ProtobufFile(base64.b64decode(shop().text)).message_named("Order"))
    whole = order(id=5, text="x")
    whole.lines.add(sku="s", count=3)
    good = {"avro": ORDER_BODY, "protobuf": wire_format.frame_body(1, whole.SerializeToString(), (0,))}
    of = {"avro": encoding(_1=source(ORDER)), "protobuf": encoding("protobuf", _1=shop())}
    rows = errors = 0
    total = int(os.environ.get("SPARROWMQ_BODIES", "10000"))
    for mode in good:
        fields = dict.fromkeys(of[mode].columns((1, (0,) if mode == "protobuf" else ())), "string")
        bodies = [_changed(good[mode], chance) for _ in range(total)]
        for row, body in zip(read(of[mode], fields, bodies), bodies, strict=True):
            assert row["body"] == body
            rows += row["reason"] is None
            errors += bool(row["reason"])
    assert rows + errors == 2 * total and rows > total / 10 and errors > total / 10


def _changed(body, chance):
    found = bytearray(body if chance.random() < 0.8 else chance.randbytes(chance.randint(0, 40)))
    for _ in range(chance.randint(0, 3)):
        at = chance.randrange(len(found) + 1)
        found[at : at + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
    return bytes(found)
