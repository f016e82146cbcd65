"""sparrowmq.spark.pipelines.tables.json_values: each body is one object, or there is a reason why not."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.spark.pipelines.tables import json_values
from sparrowmq.spark.pipelines.tables.json_values import NoRow, Real, read_object, to_json_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, "the body is empty"),
        (b"", "the body is empty"),
        (b"no json", "the body is not JSON"),
        (b'{"order":9}{"order":10}', "the body is not JSON"),
        (b'{"a":1} x', "the body is not JSON"),
        (b'{"a":1,}', "the body is not JSON"),
        (b"\xef\xbb\xbf{}", "the body is not JSON"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b'{"a":-Infinity}', "-Infinity is not JSON"),
        (b'{"a":"\xff"}', "the body is not UTF-8"),
        (b"[1]", "the body is JSON, but no object"),
        (b'"x"', "the body is JSON, but no object"),
        (b'{"a":1,"b":0,"a":2}', "the field a is there twice"),
        (b'{"a" :1,"a":2}', "the field a is there twice"),
        (b'{"x":[{"a":1,"a":1}]}', "the field a is there twice"),
        (b'{"a":"\\":","a":2}', "the field a is there twice"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "the body is nested too deeply"),
        (b'{"a":%s}' % (b"1" * 5000), "a number has too many digits"),
    ],
)
def test_what_is_no_object_has_a_reason(body, reason):
    with pytest.raises(NoRow) as raised:
        read_object(body)
    assert str(raised.value) == reason


@pytest.mark.parametrize(
    "body",
    [b'{"a":"x\\":y"}', b' {"a"\n:1}\n', b'{"a":{"a":1},"b":[{"a":1},{"a":2}]}', b'{"a":"12:30"}', b"{}"],
)
def test_names_and_colons_elsewhere_are_no_repeats(body):
    assert read_object(body) == json.loads(body)


def test_numbers_are_as_they_are_written():
    found = read_object(b'{"a":1.50,"b":18446744073709551617,"c":-0.0,"d":1e400}')
    assert found == {"a": "1.50", "b": 18446744073709551617, "c": "-0.0", "d": "1e400"}
    assert [type(each) for each in found.values()] == [Real, int, Real, Real]
    assert to_json_text(found) == '{"a":1.50,"b":18446744073709551617,"c":-0.0,"d":1e400}'


@pytest.mark.slow
@given(st.dictionaries(st.text(), JSON))
def test_all_json_is_read_as_the_standard_library_reads_it(value):
    for text in json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1):
        try:
            body = text.encode()
        except UnicodeEncodeError:
            continue
        assert json.loads(to_json_text(read_object(body))) == json.loads(text)


def test_both_readers_agree_on_bodies_that_are_cut_and_mixed():
    chance = random.Random(7)
    pieces = [
        ' {"',
        '"',
        ":",
        '":',
        ",",
        "}",
        "[",
        "]",
        "1",
        "1.5",
        "a",
        "\\",
        "null",
        ',"b":2',
        ',"b" :{}',
        "\n ",
    ]
    fast = slow = 0
    for _ in range(20_000):
        body = "".join(chance.choices(pieces, k=chance.randint(1, 14))).encode()
        body = b'{"a":%s,"b":1}' % body if chance.random() < 0.7 else body
        found, wanted = _outcome(read_object, body), _outcome(json_values._read_slowly, body)
        assert found == wanted, body
        fast += isinstance(found, dict)
        slow += isinstance(found, str)
    assert fast > 200 and slow > 200


def _outcome(read, body):
    try:
        return read(body)
    except NoRow as reason:
        return str(reason)
