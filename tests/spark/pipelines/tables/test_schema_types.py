"""sparrowmq.spark.pipelines.tables.encoded_bodies: the columns of schemas."""

import json

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc_tools")

from pyspark.sql import types as t

from sparrowmq.errors import InvalidSchema
from sparrowmq.schemas.avro import parse_schema
from sparrowmq.schemas.protobuf import ProtobufFile, compile_schema
from sparrowmq.schemas.registry import AVRO, PROTOBUF, Schema
from sparrowmq.spark.pipelines.tables.encoded_bodies import Columns, add_columns, avro_columns, protobuf_columns
from tests.schemas.samples import MONEY, ORDER, SHOP


def of_avro(schema):
    return {
        name: kind.simpleString() for name, kind in avro_columns(parse_schema(Schema(AVRO, json.dumps(schema)))).items()
    }


def record(name, **fields):
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": at, "type": kind} for at, kind in fields.items()],
    }


def logical(kind, name, **more):
    return {"type": kind, "logicalType": name, **more}


def test_avro_types_have_columns():
    assert of_avro(ORDER) == {
        "id": "bigint", "small": "bigint", "paid": "boolean", "weight": "double", "height": "double",
        "note": "string", "raw": "binary", "amount": "decimal(9,2)", "day": "date", "at": "timestamp",
        "exactly": "timestamp", "ref": "string", "state": "string", "hash": "binary",
        "either": "struct<long:bigint,string:string>", "tags": "map<string,string>",
        "lines": "array<struct<sku:string,count:bigint>>",
    }  # fmt: skip
    schema = record(
        "R",
        a=logical("long", "local-timestamp-millis"), b=logical("int", "time-millis"), c="null", d=["null"],
        e=logical("bytes", "decimal", precision=50, scale=1), f=record("E"), g={"type": "array", "items": "null"},
        h=[record("X", a="int"), {**record("X", b="int"), "namespace": "n"}], i=record("L", n=["null", "L"]),
        j=["null", "R"],
    )  # fmt: skip
    assert of_avro(schema) == {
        "a": "timestamp_ntz", "b": "string", "e": "string", "f": "boolean", "g": "array<string>",
        "h": "struct<X:struct<a:bigint>,X_:struct<b:bigint>>", "i": "struct<n:string>", "j": "string",
    }  # fmt: skip


def test_a_schema_that_is_no_record_is_one_column():
    assert of_avro({"type": "array", "items": "int"}) == {"value": "array<bigint>"}
    assert of_avro("null") == {}


def test_protobuf_types_have_columns():
    file = ProtobufFile(compile_schema(Schema(PROTOBUF, SHOP, (("shop/money.proto", MONEY),))))
    found = protobuf_columns(file.message_named("Order"))
    assert {name: kind.simpleString() for name, kind in found.items()} == {
        "id": "bigint", "big": "decimal(20,0)", "note": "string", "lines": "array<struct<sku:string,count:bigint>>",
        "prices": "map<string,struct<units:bigint,nanos:bigint>>", "at": "timestamp", "took": "decimal(21,9)",
        "maybe": "bigint", "free": "string", "state": "string", "text": "string", "number": "double",
        "parent": "string", "raw": "binary",
    }  # fmt: skip


def test_names_that_are_one_to_most_readers_are_refused_inside_of_a_column():
    with pytest.raises(InvalidSchema, match="the fields a and A of L differ only in case"):
        of_avro(record("R", line=record("L", a="int", A="int")))
    assert of_avro(record("R", line=record("L", a="int", A="null"))) == {"line": "struct<a:bigint>"}


def test_a_schema_that_names_types_without_end_is_refused():
    schema = record("R0", a="int")
    for number in range(1, 20):
        schema = record(f"R{number}", a=schema, b=f"R{number - 1}")
    with pytest.raises(InvalidSchema, match="more than 2,000 types"):
        of_avro(schema)


def test_columns_keep_their_types_and_get_others_behind_them():
    known = {"a": "int", "b": "string"}
    new: list[Columns] = [
        {"B": t.LongType(), "c": t.LongType(), "_MQ": t.LongType()},
        {"c": t.StringType(), "d": t.DateType()},
    ]
    assert add_columns(known, new, ["_mq"], 100) == {"a": "int", "b": "string", "c": "bigint", "d": "date"}
    assert list(add_columns(known, new, ["_mq"], 3)) == ["a", "b", "c"]
