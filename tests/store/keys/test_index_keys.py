"""Keys on their way into the index: what is collected, and Java's hashes of them."""

import struct

import pytest

from sparrowmq.kernel.cursor import In
from sparrowmq.kernel.log_tail import KeyHashes
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.store.index_keys import add_keys, key_hash, keys_of


@pytest.mark.covers("S-STORE-04")
@pytest.mark.parametrize(
    ("topic", "key", "expected"),
    [  # as "topic#key".hashCode() of Java says
        ("a", "b", 94_400),
        ("中", "文", 19_259_569),
        ("T", "😀", 4_308_978),  # two UTF-16 units
        ("TopicTest", "OrderID188", 1_231_271_670),  # Java's is negative
        ("T", "DWIECHC", 0),  # the hash is -2^31, which has no positive
    ],
)
def test_the_hash_is_that_of_java_made_positive(topic: str, key: str, expected: int):
    assert key_hash(topic, key) == expected


@pytest.mark.covers("S-STORE-05")
def test_a_message_has_its_unique_key_and_each_word_of_its_keys():
    assert keys_of(Properties("UNIQ_KEY\x017F00\x02KEYS\x01order-1  user-2\x02TAGS\x01a")) == [
        "7F00",
        "order-1",
        "user-2",
    ]
    assert keys_of(Properties("TAGS\x01a")) == []


def test_keys_are_collected_in_the_order_of_the_log():
    keys = KeyHashes()
    add_keys(keys, "T", 100, 5, ("a", "ü"), "7F00")
    add_keys(keys, "U", 200, 6, (), "7F01")
    add_keys(keys, "U", 300, 7, ("c", "\ud800"), None)
    wanted = [("T", "7F00", 100, 5), ("T", "a", 100, 5), ("T", "ü", 100, 5)]
    wanted += [("U", "7F01", 200, 6), ("U", "c", 300, 7), ("U", "\ud800", 300, 7)]
    rows = [(key_hash(topic, key), offset, ms) for topic, key, offset, ms in wanted]
    assert list(struct.iter_unpack(">qqq", keys.columns.content())) == rows and len(keys) == 6


@pytest.mark.parametrize("topic", ["T", "a topic with a long name, as some have"])
@pytest.mark.parametrize("words", ["7F000001", " one", "two  words ", "a\x1cb\tc", "DWIECHC", "", "  "])
def test_words_in_bytes_have_the_hashes_of_those_in_a_text(topic: str, words: str):
    in_bytes, in_text = KeyHashes(), KeyHashes()
    content = b"-" + words.encode() + b"-"
    in_bytes.add_words(string_hash(f"{topic}#"), In(content), 1, len(content) - 1, 8, 9)
    add_keys(in_text, topic, 8, 9, tuple(words.split()), None)
    assert in_bytes.columns.content() == in_text.columns.content()
