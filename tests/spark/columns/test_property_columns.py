"""sparrowmq.spark.columns: property strings of many records, against the parser of one."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.kernel.cursor import In, Longs
from sparrowmq.protocol.messages import properties
from sparrowmq.spark.columns import PropertyColumns


def columns(rows, *, internal=True):
    bounds = np.cumsum([0, *map(len, rows)])
    begins, ends = Longs(bounds[:-1].tobytes()), Longs(bounds[1:].tobytes())
    return PropertyColumns(In(b"".join(rows)), begins, 0, ends, internal=internal)


def maps(rows, *, internal=True):
    found = columns(rows, internal=internal).maps()
    found.validate(full=True)
    return [dict(row) for row in found.to_pylist()]


CASES = {
    "whole pairs": [b"a\x01b\x02KEYS\x01k\x02", b"c\x01d\x02"],
    "no last separator": [b"a\x01b", b"c\x01d\x02e\x01f", b"g\x01h\x02"],
    "no properties at all": [b"", b"", b""],
    "some rows without": [b"", b"a\x01b\x02", b"", b"c\x01d", b""],
    "value with the name separator": [b"a\x01b\x01c\x02d\x01e\x02"],
    "no separator in a pair": [b"a\x02b\x01c\x02", b"junk", b"d\x01e\x02"],
    "empty name or value": [b"\x01a\x02b\x01\x02c\x01d\x02", b"\x01\x02", b"\x02\x02a\x01b"],
    "not ascii": ["ключ\x01значение\x02".encode(), "键\x01值".encode()],
    "not utf-8": [b"a\x01\xff\x02", b"\xfe\x01b\x02"],
    "starts with a separator": [b"a\x01b", b"\x02c\x01d\x02"],
    "one name twice, another row without": [b"", b"a\x01b\x02a\x01c"],
}


@pytest.mark.parametrize("rows", CASES.values(), ids=CASES)
def test_maps_are_those_of_the_parser(rows):
    assert maps(rows) == [properties.parse(row) for row in rows]


@pytest.mark.parametrize("rows", CASES.values(), ids=CASES)
@pytest.mark.parametrize("name", ["a", "KEYS", "键", "absent"])
def test_one_property_is_that_of_the_parser(rows, name):
    found = columns(rows).values_of(name)
    found.validate(full=True)
    assert found.to_pylist() == [properties.parse(row).get(name) for row in rows]


@given(st.lists(st.text(alphabet="ab\x01\x02é", max_size=12), max_size=8))
def test_any_mess_is_read_as_the_parser_reads_it(texts):
    rows = [text.encode() for text in texts]
    pairs = columns(rows).maps().to_pylist()
    assert [dict(row) for row in pairs] == [properties.parse(row) for row in rows]
    found = columns(rows).values_of("a").to_pylist()
    for row, value in zip(rows, found, strict=True):
        assert value == properties.parse(row).get("a")


def test_hidden_names_leave_no_trace():
    rows = [
        b"a\x01b\x02__CRC32#\x011234567890\x02",
        b"__CRC32#\x010987654321\x02",
        b"c\x01d\x02",
        b"__CRC32_\x01x\x02",
    ]
    assert maps(rows, internal=False) == [{"a": "b"}, {}, {"c": "d"}, {"__CRC32_": "x"}]
    assert columns(rows, internal=False).values_of("c").to_pylist() == [None, None, "d", None]


def test_headers_keep_values_as_bytes():
    found = columns([b"a\x01\xff\x02b\x01c\x02", b""]).headers()
    found.validate(full=True)
    assert found.to_pylist() == [[{"key": "a", "value": b"\xff"}, {"key": "b", "value": b"c"}], []]
    assert found.type == pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
