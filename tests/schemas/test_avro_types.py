"""sparrowmq.schemas.avro: trees of schemas."""

import json

import pytest

pytest.importorskip("fastavro")

from sparrowmq.errors import InvalidSchema
from sparrowmq.schemas.avro import Array, Enumeration, Fixed, Map, Primitive, Record, Union, parse_schema
from sparrowmq.schemas.registry import AVRO, Schema


def tree(schema, *references):
    return parse_schema(Schema(AVRO, json.dumps(schema), tuple((name, json.dumps(each)) for name, each in references)))


def record(name, **fields):
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": at, "type": kind} for at, kind in fields.items()],
    }


def test_names_and_logical_types_are_resolved():
    schema = record(
        "R",
        a={"type": "array", "items": {"type": "map", "values": "int"}},
        b={"type": "long", "logicalType": "timestamp-micros"},
        c=["null", {"type": "enum", "name": "E", "symbols": ["X"]}],
        d="E",
        e={"type": "fixed", "name": "F", "size": 3, "logicalType": "decimal", "precision": 5, "scale": 1},
        f={"type": "int", "logicalType": "of tomorrow"},
    )
    found = tree({**schema, "namespace": "n"})
    assert isinstance(found, Record) and found.name == "n.R"
    enum = Enumeration("n.E", ("X",))
    assert found.fields == [
        ("a", Array(Map(Primitive("int")))),
        ("b", Primitive("long", "timestamp-micros")),
        ("c", Union((Primitive("null"), enum))),
        ("d", enum),
        ("e", Fixed("n.F", 3, "decimal", 5, 1)),
        ("f", Primitive("int")),
    ]


def test_a_record_that_contains_itself_is_the_same_object():
    found = tree(record("N", next=["null", "N"]))
    assert isinstance(found, Record)
    (_, union) = found.fields[0]
    assert isinstance(union, Union) and union.branches[1] is found


def test_references_give_types():
    found = tree(record("R", line="shop.Line"), ("shop.Line", {**record("Line", sku="string"), "namespace": "shop"}))
    assert isinstance(found, Record) and isinstance(found.fields[0][1], Record)


@pytest.mark.parametrize(
    "text",
    ["", "{", "5", "null", '{"type": 5}', '{"type": "record"}', '"nothing"',
     '{"type": "record", "name": "R", "fields": 5}', '{"type": "record", "name": "R", "fields": [5]}',
     '{"type": "enum", "name": "E"}', '{"type": "array"}', '{"type": "fixed", "name": "F", "size": -1}',
     '{"type": "fixed", "name": "F", "size": "x"}', '{}', '[5]',
     '{"type": "bytes", "logicalType": "decimal", "precision": "x"}',
     '{"type": "record", "name": "R", "fields": [{"name": 5, "type": "int"}]}',
     '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}',
     "[" * 100_000, '{"type":"array","items":' * 150 + '"int"' + "}" * 150],
)  # fmt: skip
def test_what_is_no_schema_is_refused(text):
    with pytest.raises(InvalidSchema):
        parse_schema(Schema(AVRO, text))


def test_another_type_of_schema_is_refused():
    with pytest.raises(InvalidSchema, match="of the type JSON, not AVRO"):
        parse_schema(Schema("JSON", "{}"))
