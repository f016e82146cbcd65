"""sparrowmq.spark.lakehouse.keyed_batch: which messages delete, and which have no key."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, BooleanType, LongType, StringType

from sparrowmq.spark.lakehouse.keyed_batch import Tombstones

KINDS = {"id": LongType(), "gone": BooleanType(), "op": StringType()}


def marked(deletes, *messages):
    """Of messages as (KEYS, properties, body, reason, id, gone, op): the reasons, the keys, and who deletes."""
    keys, properties, bodies, reasons, *values = map(list, zip(*messages, strict=True))
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.string()),
            pa.array(properties, pa.map_(pa.string(), pa.string())),
            pa.array(bodies),
        ],
        names=["keys", "properties", "body"],
    )
    kinds = (pa.int64(), pa.bool_(), pa.string())
    columns = [pa.array(each, kind) for each, kind in zip(values, kinds, strict=True)]
    reason, found = Tombstones("id", deletes, KINDS).mark_rows(batch, pa.array(reasons, pa.string()), columns)
    return reason.to_pylist(), found[0].to_pylist(), found[-1].to_pylist()


EMPTY = "the body is empty"


def test_an_empty_body_deletes_the_first_of_its_keys():
    found = marked(
        None,
        ("7 8", [], b"", EMPTY, None, None, None),
        (None, [], b"", EMPTY, None, None, None),
        ("x", [], b"", EMPTY, None, None, None),
        ("9", [], b"{}", None, 1, None, None),
        ("9", [], None, "damaged", None, None, None),
    )
    assert found[0] == [
        None,
        "an empty body deletes the row of a key, and the message has no KEYS",
        "the body is empty, and its KEYS x are no int64",
        None,
        "damaged",
    ]
    assert found[1:] == ([7, None, None, 1, None], [True, True, True, False, False])


def test_a_property_or_a_field_with_the_value_deletes():
    rows = [
        ("", [("op", "d")], b"{}", None, 1, None, None),
        ("", [], b"{}", None, 2, None, "d"),
        ("", [("op", "u")], b"{}", None, 3, None, "c"),
        ("", [], b"{}", None, 4, True, None),
    ]
    assert marked("op=d", *rows)[2] == [True, True, False, False]
    assert marked("gone", *rows)[2] == [False, False, False, True]


def test_a_field_of_bytes_with_the_value_deletes():
    batch = pa.RecordBatch.from_pydict({
        "properties": pa.array([[]] * 3, pa.map_(pa.string(), pa.string())), "body": [b"{}"] * 3,
    })  # fmt: skip
    values = [pa.array([1, 2, 3]), pa.array([b"\xff", "gel\u00f6scht".encode(), None])]
    kinds = {"id": LongType(), "op": BinaryType()}
    found = Tombstones("id", "op=gel\u00f6scht", kinds).mark_rows(batch, pa.nulls(3, pa.string()), values)
    assert found[1][-1].to_pylist() == [False, True, False]


def test_a_row_without_a_key_is_an_error():
    reasons, _, deleted = marked(
        None, ("", [], b"{}", None, None, None, None), ("", [], b"{}", "bad", None, None, None)
    )
    assert reasons == ["the key id is null", "bad"] and deleted == [False, False]


def test_bodies_that_never_had_the_key_are_errors():
    batch = pa.RecordBatch.from_pydict({"body": [b"{}"]})
    reason, values = Tombstones("id", None, {}).mark_rows(batch, pa.array([None], pa.string()), [])
    assert reason.to_pylist() == ["the body has no id, which is the key"] and values[-1].to_pylist() == [False]


@pytest.mark.parametrize(
    ("keys", "kind", "key"),
    [
        ("0x1", pa.int64(), None),
        ("1", pa.int64(), 1),
        ("9" * 41, pa.decimal128(38, 0), None),  # Arrow makes another number of it
        ("1.005", pa.decimal128(10, 2), None),
        ("1.5", pa.decimal128(10, 2), Decimal("1.50")),
    ],
)
def test_keys_that_are_no_value_of_the_column_delete_no_row(keys, kind, key):
    batch = pa.RecordBatch.from_pydict({"keys": [keys], "body": [b""]})
    reason, values = Tombstones("id", None, {"id": LongType()}).mark_rows(
        batch, pa.array(["empty"], pa.string()), [pa.nulls(1, kind)]
    )
    assert values[0].to_pylist() == [key]
    assert reason.to_pylist() == [None if key else f"the body is empty, and its KEYS {keys} are no {kind}"]
