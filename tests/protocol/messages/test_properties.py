"""The property string: both directions, both brokers' endings, broken pairs, limits."""

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.properties import Properties, mark

TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
CASES = [
    ("", {}),
    ("KEYS\x01a b\x02TAGS\x01x\x02", {"KEYS": "a b", "TAGS": "x"}),
    ("KEYS\x01a b\x02TAGS\x01x", {"KEYS": "a b", "TAGS": "x"}),
    ("k\x01a=b;c\x02", {"k": "a=b;c"}),
    ("名\x01é😀\x02", {"名": "é😀"}),
    ("broken\x02k\x01v\x02", {"k": "v"}),
    ("k\x01v\x02broken", {"k": "v"}),
    ("k\x01\x02n\x01v\x02", {"n": "v"}),
    ("\x01v\x02n\x01w\x02", {"n": "w"}),
    ("\x02\x02n\x01w\x02\x02", {"n": "w"}),
    ("k\x01v\x01w\x02", {"k": "v\x01w"}),
    ("k\x01old\x02k\x01new\x02", {"k": "new"}),
    ("k\x01old\x02k\x01\x02", {"k": "old"}),
    ("k\x01old\x02k\x01", {"k": "old"}),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_a_string_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert properties.parse(text) == expected
    assert properties.parse(text.encode()) == expected
    assert properties.parse(memoryview(text.encode())) == expected


@given(st.dictionaries(TEXT, TEXT))
def test_what_was_rendered_is_read_back_in_order(given: dict[str, str]) -> None:
    assert list(properties.parse(properties.render(given).encode()).items()) == list(given.items())


@given(st.binary())
def test_any_bytes_are_read_without_an_error(raw: bytes) -> None:
    assert all(name and value for name, value in properties.parse(raw).items())


@pytest.mark.parametrize("bad", [{"a\x01": "b"}, {"a": "b\x02"}, {"": "b"}, {"\x02": "x"}])
def test_separators_and_empty_names_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(InvalidMessage):
        properties.check({"good": "x", **bad})


@pytest.mark.covers("S-PROD-17")
def test_the_size_limit_counts_bytes_with_separators() -> None:
    properties.check({"k": "v" * (properties.MAX_SIZE_BYTES - 3)})
    with pytest.raises(InvalidMessage, match="32768 bytes"):
        properties.check({"k": "v" * (properties.MAX_SIZE_BYTES - 2)})
    with pytest.raises(InvalidMessage, match="32767 are allowed"):
        properties.check({"k": "é" * 16383})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\x01b",
        "a\x01b\x02",
        "TAGS\x01t\x02a\x01b",
        "a\x01b\x02TAGS\x01t",
        "XTAGS\x01no\x02TAGS\x01yes\x02",
        "TAGS\x01first\x02TAGS\x01last\x02",
        "TAGS\x01\x02",
        "TAGS\x01first\x02TAGS\x01",
        "TAGS\x01first\x02a\x01b\x02TAGS\x01\x02TAGS\x01",
        "TAGS\x02a\x01b",
        "a\x01TAGS\x02b\x01c",
        "TAGS\x01has = and , and \x03",
    ],
)
def test_a_value_looked_up_in_the_text_is_the_parsed_one(text):
    found = Properties(text)
    assert found.get("TAGS") == found.marked(mark("TAGS")) == properties.parse(text).get("TAGS")
    assert found.has(mark("TAGS")) == ("\x02TAGS\x01" in "\x02" + text)


@given(st.dictionaries(TEXT, TEXT), TEXT, TEXT)
def test_edits_are_those_of_a_dict(given_: dict[str, str], name: str, value: str) -> None:
    edited = Properties(properties.render(given_))
    edited.put(name, value)
    assert properties.parse(edited.render()) == given_ | {name: value}
    edited.remove(name)
    assert properties.parse(edited.encode()) == {key: text for key, text in given_.items() if key != name}


def test_a_name_that_stands_there_twice_is_removed_twice() -> None:
    twice = Properties("TAGS\x01first\x02a\x01b\x02TAGS\x01last")
    twice.remove("TAGS")
    assert twice.render() == "a\x01b\x02"


@pytest.mark.parametrize("separator", ["", "a\x01b\x02"])
def test_removing_repeated_properties_takes_time_in_proportion_to_their_number(separator: str) -> None:
    def seconds(times: int) -> float:
        many = Properties(f"REAL_QID\x01\x02{separator}" * times)
        begin = thread_time()
        many.remove("REAL_QID")
        assert many.render() == separator * times
        return thread_time() - begin

    few = min(seconds(2_000) for _ in range(5))
    assert min(seconds(64_000) for _ in range(3)) < 8 * 32 * few  # a quadratic removal takes 1024 times as long


def test_only_the_given_pair_is_struck() -> None:
    text = "WAIT\x01false\x02a\x01b\x02"
    kept = Properties(text)
    kept.strike("\x02WAIT\x01true\x02")
    assert kept.render() == text
    kept.strike("\x02WAIT\x01false\x02")
    assert kept.render() == "a\x01b\x02"


def test_what_is_encoded_follows_every_edit() -> None:
    edited = Properties("a\x01b")
    assert edited.encode() == b"a\x01b\x02"
    edited.add("c\x01d\x02")
    assert edited.encode() == b"a\x01b\x02c\x01d\x02"
    edited.put("a", "\u00e9")
    assert edited.encode() == b"c\x01d\x02a\x01\xc3\xa9\x02"
    edited.remove("c")
    edited.strike("\x02a\x01\u00e9\x02")
    assert edited.encode() == b""


@pytest.mark.parametrize(
    ("text", "tags_code", "keys", "unique_key", "wants_safety"),
    [
        ("", 0, (), None, True),
        ("TAGS\x01a\x02KEYS\x01k1  k2\x02UNIQ_KEY\x01U\x02WAIT\x01true", 97, ("k1", "k2"), "U", True),
        ("TAGS\x01\x02KEYS\x01 \x02WAIT\x01false", 0, (), None, False),
        ("XWAIT\x01false", 0, (), None, True),
    ],
)
def test_what_brokers_look_at_is_derived(text, tags_code, keys, unique_key, wants_safety):
    found = Properties.decode(text.encode())
    assert (found.tags_code, found.keys, found.unique_key) == (tags_code, keys, unique_key)
    assert found.wants_safety is wants_safety
