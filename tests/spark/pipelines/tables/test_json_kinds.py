"""sparrowmq.spark.pipelines.tables.json_bodies: the columns that bodies need."""

from itertools import product

import msgspec
import pytest

from sparrowmq.spark.pipelines.tables.json_bodies import (
    MAX_COLUMNS,
    MAX_DEPTH,
    BodyFields,
    ValueKind,
    check_field_count,
    fields_in,
    is_empty,
    json_columns,
    merge_body_fields,
    wider_kind,
)
from sparrowmq.spark.pipelines.tables.json_values import NoRow, read_object

OWN = ("_mq", "_day")


def found(*bodies, depth=MAX_DEPTH):
    return json_columns(fields_in(bodies, depth), {}, OWN)


def test_each_field_has_the_type_of_its_values():
    body = b'{"id":1,"name":"n","price":1.5,"ok":true,"none":null,"list":[1,{"a":2}],"no":{},"within":{"a":{}}}'
    assert found(body, b"no json", b"[1]", b"", None, b'{"late":1e300,"id":2}', depth=0) == {
        "id": "bigint",
        "late": "double",
        "list": "string",
        "name": "string",
        "no": "string",
        "ok": "boolean",
        "price": "double",
        "within": "string",
    }


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        (b"1", b"2.5", "double"),
        (b"1", b'"x"', "string"),
        (b"1", b"true", "string"),
        (b"null", b"true", "boolean"),
        (b"18446744073709551615", b"18446744073709551614", "decimal(38,0)"),
        (b"9007199254740993", b"1", "bigint"),
        (b"9007199254740993", b"1.5", "string"),
        (b"1" + b"0" * 38, b"1", "string"),
        (b"1e400", b"1.5", "string"),
    ],
)
def test_two_values_have_the_narrowest_type_that_holds_both_exactly(one, other, kind):
    bodies = b'{"a":%s}' % one, b'{"a":%s}' % other
    assert found(*bodies) == found(*reversed(bodies)) == {"a": kind}


def test_the_type_does_not_depend_on_the_order_of_values():
    for one, two, three in product(ValueKind, repeat=3):
        assert wider_kind(wider_kind(one, two), three) == wider_kind(one, wider_kind(two, three))
        assert wider_kind(one, two) == wider_kind(two, one)


def test_what_workers_found_is_the_same_as_what_one_finds():
    bodies = [
        b'{"a":1,"b":[{"c":1}]}',
        b'{"a":2.5,"d":{"e":1}}',
        b'{"c":true,"a":null}',
        b'{"b":[{"c":"x","f":1}]}',
    ]
    assert merge_body_fields([fields_in(bodies[:1]), fields_in(bodies[1:3]), fields_in(bodies[3:])]) == fields_in(
        bodies
    )


def test_what_workers_found_is_sent_as_bytes():
    seen = fields_in([b'{"a":[{"b":{"c":1.5}}],"d":null}'])
    assert msgspec.json.decode(msgspec.json.encode(seen), type=BodyFields) == seen


def test_objects_and_lists_are_columns_of_their_own_types():
    bodies = [
        b'{"at":{"x":1,"y":null},"lines":[{"sku":"a","n":1},{"sku":"b","n":2.5}],"empty":[],"none":{"a":{}}}',
        b'{"at":{"x":2,"z":true},"lines":[],"tags":["a",null],"deep":[[1],[2,null]],"mixed":[1,"x"]}',
    ]
    assert found(*bodies) == {
        "at": "struct<x:bigint,z:boolean>",
        "deep": "array<array<bigint>>",
        "lines": "array<struct<n:double,sku:string>>",
        "mixed": "array<string>",
        "tags": "array<string>",
    }


def test_an_object_beside_another_value_is_text():
    assert found(b'{"a":{"b":1}}', b'{"a":1}') == {"a": "string"}
    assert found(b'{"a":{"b":1}}', b'{"a":[1]}') == {"a": "string"}
    assert found(b'{"a":{"b":1}}', b'{"a":null}') == {"a": "struct<b:bigint>"}


def test_what_is_too_deep_is_text():
    def nested(levels):
        return b'{"a":' * levels + b"1" + b"}" * levels

    assert found(nested(MAX_DEPTH + 1)) == {"a": "struct<a:" * MAX_DEPTH + "bigint" + ">" * MAX_DEPTH}
    assert found(nested(200)) == {"a": "struct<a:" * MAX_DEPTH + "string" + ">" * MAX_DEPTH}


def few(body, depth=MAX_DEPTH):
    check_field_count(read_object(body), depth)


@pytest.mark.slow
def test_a_body_with_too_many_fields_is_refused_and_gives_no_column():
    names = b",".join(b'"f%06d":1' % number for number in range(100_000))
    for body in (b"{%s}" % names, b'{"a":{%s}}' % names, b'{"a":[{"b":{%s}}]}' % names):
        with pytest.raises(NoRow, match=r"the body has 100,00\d fields; a table has at most 1,000"):
            few(body)
        assert found(body, b'{"id":1}') == {"id": "bigint"}
    few(b'{"a":{%s}}' % names, depth=0)
    few(b'{"a":[%s]}' % b",".join([b'{"x":1,"y":2}'] * MAX_COLUMNS))
    few(b"{%s}" % b",".join(b'"f%d":1' % number for number in range(MAX_COLUMNS)))


def test_a_value_with_nothing_in_it_is_empty():
    assert all(map(is_empty, (None, [], {}, [None, {}], {"a": [], "b": {"c": None}})))
    assert not any(map(is_empty, (0, "", False, [0], {"a": {"b": ""}})))
