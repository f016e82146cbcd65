"""sparrowmq.schemas.avro: bodies become values, or say why not, within limits."""

import io
import json
import os
import random
import time
import tracemalloc

import pytest

pytest.importorskip("fastavro")

import fastavro

from sparrowmq.errors import InvalidBody
from sparrowmq.schemas import wire_format
from sparrowmq.schemas.avro import AvroReader, parse_schema
from sparrowmq.schemas.registry import AVRO, Schema
from tests.schemas.samples import ORDER, ORDER_BODY, ORDER_VALUE

NODE = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}


def reader(schema, **options):
    return AvroReader(parse_schema(Schema(AVRO, json.dumps(schema))), **options)


def written(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def long(number):
    rest = (number << 1) ^ (number >> 63)
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*found, rest])


def test_a_body_of_another_client_has_its_values():
    assert reader(ORDER).read(wire_format.avro_payload(ORDER_BODY)) == ORDER_VALUE


def test_a_branch_can_be_named():
    body = wire_format.avro_payload(ORDER_BODY)
    found = reader(ORDER, names_branches=True).read(body)
    assert found == ORDER_VALUE | {"either": {"string": "x"}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("null", None),
        ("boolean", False),
        ("int", -(2**31)),
        ("long", 2**63 - 1),
        ("long", -(2**63)),
        ("double", float("inf")),
        ({"type": "array", "items": "null"}, [None] * 5),
        ({"type": "map", "values": {"type": "array", "items": "string"}}, {"a": ["x"], "": []}),
        (NODE, {"next": {"next": {"next": None}}}),
    ],
)
def test_values_that_another_library_writes_are_read(schema, value):
    assert reader(schema).read(written(schema, value)) == value


def test_blocks_with_a_size_are_read():
    assert reader({"type": "array", "items": "int"}).read(b"\x03\x04\x02\x04\x02\x06\x00") == [1, 2, 3]


@pytest.mark.parametrize(
    ("schema", "body", "why"),
    [
        ("long", b"", "the body ends early"),
        ("long", b"\x80" * 5, "the body ends early"),
        ("long", b"\x80" * 10_000 + b"\0", "a number has more than 10 bytes"),
        ("long", b"\xff" * 9 + b"\x7f", "a number has more than 64 bits"),
        ("int", long(1 << 40), "1099511627776 is not an int"),
        ("boolean", b"\7", "the byte 7 is not a boolean"),
        ("string", long(1 << 60) + b"abc", "a value of 1,152,921,504,606,846,976 bytes is cut off after 3"),
        ("bytes", long(-3) + b"abc", "invalid length -3"),
        ("string", b"\4\xff\xff", "a text is not UTF-8"),
        ("double", b"12", "a value of 8 bytes is cut off after 2"),
        ("null", b"x", "1 bytes follow the value"),
        (["null", "int"], long(9), "union branch 9 is out of range (0 to 1)"),
        (["null", "int"], long(-1), "union branch -1 is out of range (0 to 1)"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, long(-1), "enum symbol -1 is out of range (0 to 0)"),
        ({"type": "int", "logicalType": "date"}, long(1 << 30), "day 1073741824 is not in the years 1 to 9999"),
        ({"type": "long", "logicalType": "timestamp-millis"}, long(1 << 62), "is not in the years 1 to 9999"),
        ({"type": "int", "logicalType": "time-millis"}, long(-1), "-1000 microseconds after midnight is no time"),
        ({"type": "string", "logicalType": "uuid"}, b"\2x", "a text is no UUID"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5}, long(200) + b"x" * 200, "more than 128 bytes"),
        ({"type": "array", "items": "null"}, long(1 << 62), "[0]: it has more than 1,000,000 values"),
        ({"type": "map", "values": "null"}, long(2) + b"\2a\2a" + b"\0", "['a']: the map has this key twice"),
        (NODE, b"\2" * 5000, "next.next.next"),
        (ORDER, wire_format.avro_payload(ORDER_BODY)[:-3], "lines[1].count: the body ends early"),
    ],
)  # fmt: skip
def test_a_body_that_is_none_says_why(schema, body, why):
    with pytest.raises(InvalidBody) as caught:
        reader(schema).read(body)
    assert why in str(caught.value)


def test_nesting_without_end_is_refused():
    with pytest.raises(InvalidBody, match="nested deeper than 100 levels"):
        reader(NODE).read(b"\2" * 5_000_000)
    deep: dict[str, object] = {"type": "array", "items": "N"}
    for _ in range(30):
        deep = {"type": "array", "items": deep}
    schema = {"type": "record", "name": "N", "fields": [{"name": "a", "type": deep}]}
    with pytest.raises(InvalidBody, match="nested too deeply"):
        reader(schema).read(b"\2" * 100_000)


@pytest.mark.slow
def test_values_without_bytes_are_counted():
    """Records of nulls take no bytes, and each of these contains two others."""
    schema: object = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "null"}]}
    for number in range(1, 25):
        fields: list[object] = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{number - 1}"}]
        schema = {"type": "record", "name": f"R{number}", "fields": fields}
    with pytest.raises(InvalidBody, match="more than 1,000,000 values"):
        reader(schema).read(b"")


@pytest.mark.slow
def test_a_hostile_body_takes_bounded_memory_and_time():
    schema = {
        "type": "array",
        "items": {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "int"]}]},
    }
    body = long(4_000_000) + bytes(4_000_000) + b"\0"
    split = b"".join(long(1000) + bytes(1000) for _ in range(4000)) + b"\0"
    tracemalloc.start()
    begin = time.process_time()
    for each in (body, split):
        with pytest.raises(InvalidBody, match="more than 1,000,000 values"):
            reader(schema).read(each)
    assert time.process_time() - begin < 60
    assert tracemalloc.get_traced_memory()[1] < 400 << 20
    tracemalloc.stop()


def test_changed_and_invented_bodies_are_values_or_have_a_reason():
    """SPARROWMQ_BODIES says how many, for longer runs."""
    chance = random.Random(11)
    good = wire_format.avro_payload(ORDER_BODY)
    readers = [reader(ORDER), reader(NODE), reader({"type": "array", "items": ["null", "long", "string"]})]
    values = errors = 0
    for _ in range(int(os.environ.get("SPARROWMQ_BODIES", "20000"))):
        body = bytearray(good if chance.random() < 0.7 else chance.randbytes(chance.randint(0, 30)))
        for _ in range(chance.randint(0, 3)):
            at = chance.randrange(len(body) + 1)
            body[at : at + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
        try:
            chance.choice(readers).read(bytes(body))
            values += 1
        except InvalidBody as error:
            assert str(error)
            errors += 1
    assert values > 100 and errors > 100
