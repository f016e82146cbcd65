"""Keys on their way into the index: what is collected, and Java's hashes of them."""

import pytest

from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.store.key_columns import BATCH, VECTOR_MIN, Keys, hash_vector, key_hash, keys_of


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


@pytest.mark.parametrize("topic", ["T", "主题", "a topic with a long name, as some have"])
@pytest.mark.parametrize("pattern", ["7F000001{:024X}", "key-{}", "键{:04d}", "键{}"])
def test_keys_of_one_topic_get_javas_hashes_too(topic: str, pattern: str):
    keys = Keys()
    texts = [pattern.format(number) for number in range(2 * VECTOR_MIN)]
    for text in texts:
        keys.add(topic, 0, 1_700_000_000_000, (), text)
    assert hash_vector(keys.columns()).tolist() == [key_hash(topic, text) for text in texts]


def test_keys_are_collected_in_the_order_of_the_log_and_cut_into_parts():
    keys = Keys()
    keys.add("T", 100, 5, ("a b", "ü"), "7F00")
    keys.add_plain("U", 200, 6, (), b"7F01")
    keys.add_plain("U", 300, 7, ("c", "\ud800"), b"")
    whole = keys.columns()
    assert len(keys) == len(whole) == 6
    assert whole.texts == ["7F00", "a b", "ü", "7F01", "c", "\ud800"]
    assert whole.topics == ["T", "T", "T", "U", "U", "U"]
    assert (whole.offsets, whole.stored_ms) == ((100, 100, 100, 200, 300, 300), (5, 5, 5, 6, 7, 7))
    assert whole.part(0, BATCH) is whole
    part = whole.part(2, 3)
    assert (part.texts, part.topics, part.offsets) == (["ü", "7F01", "c"], ["T", "U", "U"], (100, 200, 300))
    assert (whole.part(4, 9).texts, whole.part(6, 9).texts) == (["c", "\ud800"], [])


@pytest.mark.parametrize("pattern", ["7F000001{:024X}", "key-{}", "键{}"])
def test_a_part_has_the_hashes_of_its_keys(pattern: str):
    keys = Keys()
    texts = [pattern.format(number) for number in range(3 * VECTOR_MIN)]
    for number, text in enumerate(texts):
        keys.add(f"Topic{number % 3}", 0, 0, (text,), None)
    part = keys.columns().part(VECTOR_MIN, VECTOR_MIN)
    wanted = [key_hash(f"Topic{number % 3}", texts[number]) for number in range(VECTOR_MIN, 2 * VECTOR_MIN)]
    assert hash_vector(part).tolist() == wanted
