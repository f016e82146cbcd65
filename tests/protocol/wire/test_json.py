"""JSON and fastjson's dialects: reading all, writing two, and what is refused."""

import json as standard
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparrowmq.errors import RemoteError, RemoteProtocolError
from sparrowmq.loop.slices import at_once
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import DataVersion, GroupList, TopicConfig, TopicConfigTable
from sparrowmq.protocol.requests.client_bodies import LockedQueues
from sparrowmq.protocol.requests.offset_bodies import (
    BrokerConsumeStats,
    ConsumerOffsets,
    ConsumeStats,
    TopicOffset,
    TopicStats,
)
from sparrowmq.protocol.wire import json

QUEUE = MessageQueue("T", "b", 0)
QUEUE_KEY = '{"brokerName":"b","queueId":0,"topic":"T"}'
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


class Table(msgspec.Struct, rename="camel"):
    zulu: int | None = None
    offset_table: dict[MessageQueue, int] = {}
    by_number: dict[int, str] = {}
    flag: bool = False


class Nested(msgspec.Struct, rename="camel"):
    some_values: list[Any]
    inner_table: dict[str, Any]
    a_text: str | None
    pairs: set[tuple[str, int]] = set()
    count: int = 0


class Lone(msgspec.Struct):
    only: Nested | None


def with_queue(text: str) -> str:
    return text.replace("QUEUE", QUEUE_KEY)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        (
            '{ -1 : 2 , "x" : [ 1 , 2.5e3 , -0.5 , true, false ] }\n',
            {"-1": 2, "x": [1, 2500.0, -0.5, True, False]},
        ),
        ("{QUEUE:12}", {QUEUE: 12}),
        ("{QUEUE:{QUEUE:[]}}", {QUEUE: {QUEUE: []}}),
        ('{"a":null,0:null,"b":[null]}', {"b": [None]}),
        ('{name:"\\u4e16\\"\\n",0:{}}', {"name": '世"\n', "0": {}}),
        ("{0:12345678901234567890}", {"0": 12345678901234567890}),
        ("[]", []),
        ('"x"', "x"),
        ('{"half a pair":"\\ud800x"}', {"half a pair": "?x"}),
        ('{"a pair":"\\ud83d\\ude00"}', {"a pair": "😀"}),
    ],
)
def test_the_dialects_are_read(text: str, value: object) -> None:
    assert json.loads(with_queue(text)) == value
    assert json.loads(memoryview(with_queue(text).encode())) == value


@given(VALUES)
def test_standard_json_is_read_and_written(value: object) -> None:
    written = json.dumps(value)
    assert json.loads(written) == standard.loads(written) == value


@pytest.mark.parametrize(
    "text",
    [
        '{0:"a",1:"b"}',
        '{ -1 : 2 , "x" : [ 1 , {2 : 3.5} , {true : false} ] }\n',
        '{"a":null,0:null,"b":[null,{"c":null}]}',
        '{name:"\\u4e16\\"\\n{b:1}",0:{"\\\\":"a:1"}}',
        "[]",
        '"x"',
    ],
)
def test_a_request_is_read_as_anything_else_in_less_time(text: str) -> None:
    quickly = json.decode_quickly(text.encode(), Any)
    assert quickly == json.decode(text, Any)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{a b:1}",
        "{a:1,}",
        '{"a:1}',
        "{a:\0}",
        "{QUEUE:1}",
        "[" * 9000,
        '{"a":1,b:"\\"\\"\\"}',
        "{\xff:1}",
    ],
)
def test_a_request_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(json.NotJson):
        json.decode_quickly(with_queue(text).encode("latin-1"), Any)


@pytest.mark.parametrize("piece", ["a:1,", '"a":1,', "0:null,", "a:[],"])
def test_a_request_in_a_dialect_takes_few_calls(piece: str) -> None:
    """The reader of all dialects makes ten calls for each of these: 5 ms for the most that a server reads."""
    raw = b"{" + piece.encode() * (8000 // len(piece)) + b'"b":null,c:1}'
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        json.decode_quickly(raw, Any)
    finally:
        sys.setprofile(None)
    assert calls < 300


@given(VALUES)
@example(1.3041547123777987e-05)  # 21 digits behind the point
def test_the_slow_reader_agrees_with_the_fast_one(value: object) -> None:
    def without_nulls(item: object) -> object:
        if isinstance(item, dict):
            return {key: without_nulls(member) for key, member in item.items() if member is not None}
        return [without_nulls(member) for member in item] if isinstance(item, list) else item

    assert json.loads("{0:" + json.dumps([value]).decode() + "}") == {"0": [without_nulls(value)]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,",
        '{"a"}',
        '{"a":}',
        "{a b:1}",
        "{0:1,}",
        "{0:1 2}",
        "{0:1} x",
        "{0:NaN}",
        "{0:Infinity}",
        "{0:nul}",
        '{0:"open}',
        '{0:"\\x"}',
        "{0:1.}",
        "{0:" + "9" * 5000 + "}",
        "{[1]:2}",
        '{{"topic":"T"}:2}',
        "{0:01e}",
    ],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(json.NotJson):
        json.loads(text)


@pytest.mark.parametrize("kind", [RemoteProtocolError, ValueError])
def test_the_error_is_the_peers_fault_and_a_wrong_value(kind: type[Exception]) -> None:
    with pytest.raises(kind, match="'no' at character 0 where a value is expected"):
        json.loads("no")


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "the text is empty"), (" \n", "the text is empty"), ('{"a":', "the JSON ends at character 5")],
)
def test_a_text_that_ends_too_early_is_said_to_end(text: str, words: str) -> None:
    with pytest.raises(json.NotJson, match=words):
        json.loads(text)


def test_bytes_that_are_no_utf8_are_refused() -> None:
    with pytest.raises(json.NotJson, match="UTF-8"):
        json.loads(b'{"a":"\xff"}')


@pytest.mark.parametrize("opening", ["[", "{0:", '{"a":[', "{{"])
def test_nesting_is_limited(opening: str) -> None:
    with pytest.raises(json.NotJson, match="nested"):
        json.loads(opening * 100_000)


def test_eight_levels_pass_and_nine_do_not() -> None:
    assert json.loads("{0:" * 8 + "1" + "}" * 8)
    with pytest.raises(json.NotJson, match="more than 8 deep"):
        json.loads("{0:" * 9 + "1" + "}" * 9)


@given(st.text('{}[]:,"\\ 01.eEtrufalsn-{"a":1}'))
def test_noise_gives_a_value_or_the_one_error(noise: str) -> None:
    try:
        json.loads(noise)
    except json.NotJson:
        return


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{QUEUE:"5"},"byNumber":{"3":"x"},"flag":"1","unknown":[1],"zulu":null}',
        '{"offsetTable":{QUEUE:5},"byNumber":{3:"x"},"flag":true}',
    ],
)
def test_a_typed_value_is_read_leniently(text: str) -> None:
    assert json.decode(with_queue(text).encode(), Table) == Table(None, {QUEUE: 5}, {3: "x"}, True)


def test_standard_json_is_read_without_the_slow_reader() -> None:
    assert json.decode(b'{"byNumber":{"3":"x"},"flag":"true"}\n', Table) == Table(by_number={3: "x"}, flag=True)


def test_a_typed_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(json.NotJson, match="no Table"):
        json.decode(b'{"flag":"perhaps"}', Table)


def test_members_are_written_in_the_order_of_their_names_without_blanks() -> None:
    table = Table(7, {QUEUE: 5}, {3: "x", 0: "y"}, True)
    rest = with_queue('"flag":true,"offsetTable":{QUEUE:5},"zulu":7}')
    assert json.dumps(table).decode() == '{"byNumber":{"3":"x","0":"y"},' + rest
    assert json.dumps(table, bare_integers=True).decode() == '{"byNumber":{3:"x",0:"y"},' + rest
    assert json.decode(json.dumps(table, bare_integers=True), Table) == table


def test_members_that_are_none_are_left_out_and_sets_are_sorted() -> None:
    assert json.dumps(Table()) == b'{"byNumber":{},"flag":false,"offsetTable":{}}'
    assert json.dumps({"s": frozenset("cab"), "e": set(), "t": ()}) == b'{"s":["a","b","c"],"e":[],"t":[]}'
    value: dict[str, Any] = {"a": None, "b": [None, 0.0, "世"]}
    assert json.dumps(value).decode() == '{"a":null,"b":[null,0.0,"世"]}'


@given(st.lists(VALUES, max_size=3), st.none() | st.text(max_size=3))
def test_what_the_standard_has_is_written_alike_with_and_without_the_dialect(
    values: list[object], text: str | None
) -> None:
    shape = Nested(values, {"one": Nested([], {}, text), "none": None}, text, {("b", 1), ("a", 2)}, 7)
    assert json.dumps(shape) == json.dumps(shape, bare_integers=True)
    assert json.dumps([shape, Lone(shape), Lone(None)]) == json.dumps(
        [shape, Lone(shape), Lone(None)], bare_integers=True
    )


def test_a_large_table_is_written_without_looking_at_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "_writing", None)
    assert json.dumps({"t": TopicConfig("t", 4, 4)}) == (
        b'{"t":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"t",'
        b'"topicSysFlag":0,"writeQueueNums":4}}'
    )


def test_tables_and_lists_may_be_made_while_they_are_written() -> None:
    made = {"a": json.Pairs(iter([(MessageQueue("T", "b", 1), 2)])), "b": json.Items(iter([1, "x"]))}
    written = {"a": {MessageQueue("T", "b", 1): 2}, "b": [1, "x"]}
    assert b"".join(at_once(json.dumping(made))) == json.dumps(written)


def test_an_answer_that_no_client_could_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "MOST_BYTES", 10_000)
    with pytest.raises(RemoteError, match="ask for less"):
        at_once(json.dumping(["x" * 100] * 2000))


def test_tables_are_written_in_steps_as_they_are_at_once() -> None:
    queues = {MessageQueue("T", "b", number): TopicOffset(0, number, 1) for number in range(500)}
    for body in (
        TopicStats(queues),
        TopicStats({}),
        LockedQueues(list(queues)),
        GroupList(["a", "b"]),
        BrokerConsumeStats([{"g": [ConsumeStats(1.5, {})]}], "b:1", 7),
        ConsumerOffsets({"T@g": {0: 1, 1: 2}}),
        TopicConfigTable(DataVersion(), {"T": TopicConfig("T", 4, 4, 6, attributes={"a": "b"})}),
    ):
        assert b"".join(at_once(body.encoding())) == body.encode()
    assert sum(1 for _ in TopicStats(queues).encoding()) >= 500
    assert sum(1 for _ in LockedQueues(list(queues)).encoding()) >= 500
