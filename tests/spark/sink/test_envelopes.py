"""sparrowmq.spark.sink.envelopes: rows become messages column by column."""

import pyarrow as pa
import pytest

from sparrowmq.protocol.messages import batch, properties
from sparrowmq.spark.sink.envelopes import Envelopes, envelopes

MAP = pa.map_(pa.string(), pa.string())
WORDS = pa.list_(pa.string())


def made(count=None, **columns):
    """What a broker finds in the batch: bodies, properties and flags; None if rows need a closer look."""
    columns = {name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()}
    count = len(columns["body"])
    ids = pa.array([f"{number:032X}" for number in range(count)])
    messages = envelopes(columns, ids)
    if messages is None:
        return None
    body = bytes(Envelopes(messages).cut(0, count))
    return [(bytes(part.body), properties.parse(part.properties), part.flag) for part in batch.decode(body)]


def test_everything_that_a_row_may_say_is_in_its_message():
    found = made(
        body=[b"one", b"", b"three"],
        tags=["paid", None, ""],
        keys=["a b", None, "c"],
        properties=pa.array([[("region", "eu"), ("empty", None)], None, [("ä", "ö"), ("REAL_TOPIC", "other")]], MAP),
        shardingKey=[None, "k", ""],
        flag=pa.array([7, None, -1], pa.int64()),
        uniqueKey=[None, "mine", ""],
        delayLevel=pa.array([0, None, 0], pa.int32()),
    )
    assert found == [
        (b"one", {"region": "eu", "KEYS": "a b", "TAGS": "paid", "UNIQ_KEY": "0" * 32}, 7),
        (b"", {"__SHARDINGKEY": "k", "UNIQ_KEY": "mine"}, 0),
        (b"three", {"ä": "ö", "KEYS": "c", "UNIQ_KEY": f"{2:032X}"}, -1),
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()], ids=str)
def test_texts_of_every_kind_and_parts_of_larger_tables_are_taken(kind):
    bodies = pa.array(["x", "one", "naïve", "x"]).cast(kind)
    keys = pa.array(["x", "k", None, "x"]).cast(kind)
    assert made(body=bodies.slice(1, 2), keys=keys.slice(1, 2)) == [
        (b"one", {"KEYS": "k", "UNIQ_KEY": "0" * 32}, 0),
        ("naïve".encode(), {"UNIQ_KEY": f"{1:032X}"}, 0),
    ]


def test_several_keys_are_one_text():
    keys = pa.array([["x"], ["a", "b"], [], None, ["c"]], WORDS).slice(1)
    assert [found.get("KEYS") for _, found, _ in made(body=["1", "2", "3", "4"], keys=keys)] == [
        "a b",
        None,
        None,
        "c",
    ]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.field("element", pa.string(), nullable=False)),
        pa.list_(pa.large_string()),
        pa.large_list(pa.string()),
    ],
    ids=str,
)
def test_keys_of_every_kind_of_list_are_taken(kind):
    found = made(body=["1", "2"], keys=pa.array([["k1", "k2"], ["c"]], kind))
    assert [each["KEYS"] for _, each, _ in found] == ["k1 k2", "c"]


@pytest.mark.parametrize(
    ("columns", "keys", "tags"),
    [
        ({}, "a b", "paid"),
        ({"keys": ["c"]}, "c", "paid"),
        ({"tags": pa.array([None], pa.string())}, "a b", None),
        ({"keys": [""], "tags": ["new"]}, None, "new"),
    ],
)
def test_keys_and_tags_of_the_properties_count_where_they_have_no_column(columns, keys, tags):
    own = pa.array([[("KEYS", "a b"), ("TAGS", "paid"), ("UNIQ_KEY", "old"), ("region", "eu")]], MAP)
    [(_, found, _)] = made(body=["1"], properties=own, **columns)
    assert (found.get("KEYS"), found.get("TAGS")) == (keys, tags)
    assert (found["UNIQ_KEY"], found["region"]) == ("0" * 32, "eu")


def test_properties_of_a_part_of_a_larger_table_are_those_of_its_rows():
    maps = pa.array([[("a", "0")], [("a", "1"), ("b", "2")], [], [("a", "3")], [("a", "4")]], MAP).slice(1, 3)
    found = [parsed for _, parsed, _ in made(body=["1", "2", "3"], properties=maps)]
    assert [(each.get("a"), each.get("b")) for each in found] == [("1", "2"), (None, None), ("3", None)]


@pytest.mark.parametrize(
    "columns",
    [
        {"body": [b"1", None]},
        {"tags": ["a\x02b", "c"]},
        {"keys": ["a\x01b", "c"]},
        {"uniqueKey": ["a\x01b", None]},
        {"properties": pa.array([[("a", "\x01")], []], MAP)},
        {"properties": pa.array([[("a\x02", "1")], []], MAP)},
        {"properties": pa.array([[("", "1")], []], MAP)},
        {"properties": pa.array([[("a", None), ("b", "")], []], MAP)},
        {"properties": pa.array([[("a", "x" * 32_767)], []], MAP)},
        {"properties": pa.array([[("__SHARDINGKEY", "1")], []], MAP), "shardingKey": ["2", None]},
        {"keys": pa.array([["a b"], []], WORDS)},
        {"keys": pa.array([["a", None], []], WORDS)},
        {"keys": pa.array([["a", ""], []], WORDS)},
        {"keys": pa.array([b"\xff", b""])},
        {"delayLevel": [None, 3]},
        {"deliverTimestamp": [None, 1]},
        {"priority": [None, 0]},
        {"flag": [1 << 31, 0]},
        {"headers": pa.array([[{"key": "a", "value": b"1"}], None])},
    ],
    ids=" and ".join,  # the names of the columns; an array would say where in memory it lies
)
def test_rows_that_are_not_as_most_are_are_left_to_a_closer_look(columns):
    assert made(**({"body": [b"1", b"2"]} | columns)) is None


def test_what_lies_end_to_end_is_cut_by_rows_and_bytes():
    found = Envelopes(pa.array([b"", b"12", b"345", b"6789", b"x"]).slice(1, 3))
    assert (len(found), found.size_of(1)) == (3, 3)
    assert bytes(found.cut(1, 3)) == b"3456789"
    assert found.end_of(0, rows=2, size_bytes=100) == 2
    assert found.end_of(0, rows=9, size_bytes=100) == 3
    assert found.end_of(0, rows=9, size_bytes=5) == 2
    assert found.end_of(1, rows=9, size_bytes=2) == 2, "one that is too large goes alone"
