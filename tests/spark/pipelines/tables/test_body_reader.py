"""sparrowmq.spark.pipelines.tables.json_bodies: each body is a row of the columns, or a reason; none stops a batch."""

import json
import os
import random

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import types as t

from sparrowmq.spark.pipelines.tables.ddl import type_of
from sparrowmq.spark.pipelines.tables.json_bodies import MAX_DEPTH, BodyReader, fields_in, is_empty, json_columns
from sparrowmq.spark.source_and_sink import arrow_schema

OWN = ("_mq", "_day")


def read(fields, bodies, *, is_closed=False):
    """Return the rows that a table with these fields gets, with `reason`."""
    kinds = {name: type_of(kind) for name, kind in fields.items()}
    schema = t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])
    reader = BodyReader(
        kinds,
        [pa.field("reason", pa.string()), *arrow_schema(schema)],
        OWN,
        is_closed=is_closed,
        depth=MAX_DEPTH,
    )
    (found,) = reader([pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})])
    return found.to_pylist()


def test_a_body_is_a_row_or_has_a_reason():
    fields = {"id": "bigint", "it's": "double"}
    bodies = [b'{"id":1}', b'{"id":1.5,"it\'s":"x"}', b"", b'{"id":3,"more":1}', b'{"ID":4}']
    found = read(fields, bodies)
    assert [(row["id"], row["reason"]) for row in found] == [
        (1, None),
        (None, "id is no bigint, it's is no double"),
        (None, "the body is empty"),
        (None, "the field more has the name of another one, written with dots; name one of them otherwise"),
        (
            None,
            (
                "the field ID and the column id differ only in case, and most readers treat them as one; "
                "rename one of them"
            ),
        ),
    ]
    assert [row["body"] for row in found] == bodies


def test_a_schema_leaves_out_what_it_does_not_name():
    assert [row["reason"] for row in read({"id": "bigint"}, [b'{"id":3,"more":1}', b'{"ID":4}'], is_closed=True)] == [
        None,
        None,
    ]


def test_an_empty_batch_has_the_columns():
    assert read({"id": "bigint"}, []) == []


def test_generated_bodies_stop_nothing_and_keep_their_values():
    """SPARROWMQ_BODIES says how many, for longer runs."""
    chance = random.Random(3)
    total = int(os.environ.get("SPARROWMQ_BODIES", "20000"))
    fields: dict[str, str] = {}
    rows = errors = 0
    for begin in range(0, total, 1000):
        bodies = [_body(chance) for _ in range(min(1000, total - begin))]
        fields = json_columns(fields_in(bodies), fields, OWN)
        for row in read(fields, bodies):
            rows += row["reason"] is None
            errors += bool(row["reason"])
            if row["reason"] is None:
                _check(json.loads(row["body"]), row)
        assert len({name.lower() for name in fields}) == len(fields)
    assert rows + errors == total and rows > total / 10 and errors > total / 10


def _check(sent, row):
    """Each value that was sent is in its column as it was; text holds others as JSON."""
    for name, value in sent.items():
        _check_value(value, row.get(name), name)


def _check_value(value, found, name):
    if is_empty(value):
        return
    if isinstance(found, str) and not isinstance(value, str):
        assert json.loads(found) == value
    elif isinstance(value, dict):
        for part, each in value.items():
            _check_value(each, found.get(part), f"{name}.{part}")
    elif isinstance(value, list):
        assert len(value) == len(found)
        for each, other in zip(value, found, strict=True):
            _check_value(each, other, name)
    else:
        assert found == value, (name, value, found)


def _body(chance):
    names = [
        "order",
        "ORDER",
        "_day",
        "a b",
        "a`b",
        "ä",
        "",
        "a.b",
        "_not_as_declared",
        "\n",
        "\ud800",
        "a\0",
        chance.choice("abcdef"),
    ]
    numbers = [1, -1, 0, 1.5, 2**53 + 1, 2**63, 2**64 - 1, 10**40, 1e308, -0.0, chance.random()]
    others: list[object] = [None, True, False, "x", "", "5", "NaN", "\ud800", [], {}]
    others += [[1, chance.choice(numbers)], {"a": {chance.choice("bcB"): chance.choice(numbers)}}, {"b": {}}]
    others += [[{chance.choice(names): chance.choice([1, "x", [1.5]])}, None], [{}]]
    fields = {chance.choice(names): chance.choice(numbers + others) for _ in range(chance.randint(0, 3))}
    body = json.dumps(fields).encode()
    match chance.randint(0, 9):
        case 0:
            return body[: chance.randint(0, len(body))]
        case 1:
            return body + chance.choice([body, b" ", b"x", b"\x00"])
        case 2:
            return bytes(chance.choices(body or b"{}", k=chance.randint(1, 20)))
        case 3:
            return b'{"a":%s}' % chance.choice([b"NaN", b"1e999", b"01", b"1.", b"'x'", b"\xff", b'1,"a":2'])
    return body
