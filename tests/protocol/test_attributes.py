"""Attributes: what Apache's broker 5.4.0 accepts and refuses, and the two values that only it accepts."""

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.attributes import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES, changed, of_signed, parse, text_of

FIFO = {"message.type": "FIFO"}


def altered(text, current=None):
    return changed(TOPIC_ATTRIBUTES, current, parse(text), is_new=current is None)


@pytest.mark.parametrize(
    ("text", "current", "after"),
    [
        ("", None, None),
        ("", FIFO, FIFO),
        ("+message.type=FIFO", None, FIFO),
        ("+message.type=FIFO,", None, FIFO),
        ("+message.type=NORMAL", FIFO, {"message.type": "NORMAL"}),
        ("+message.type=MIXED", {}, {"message.type": "MIXED"}),
        ("+message.type=PRIORITY,+reserve.time=-1", None, {"message.type": "PRIORITY", "reserve.time": "-1"}),
        ("+reserve.time=3600", FIFO, FIFO | {"reserve.time": "3600"}),
        ("-message.type", FIFO, None),
        ("-message.type,+reserve.time=1", FIFO, {"reserve.time": "1"}),
        ("+queue.type=SimpleCQ", None, {"queue.type": "SimpleCQ"}),
        ("+queue.type=SimpleCQ", {"queue.type": "SimpleCQ"}, {"queue.type": "SimpleCQ"}),
        ("+cleanup.policy=DELETE", None, {"cleanup.policy": "DELETE"}),
    ],
)
def test_a_change_gives_the_attributes_after_it(text, current, after):
    before = dict(current) if current is not None else None
    assert altered(text, current) == after
    assert current == before


@pytest.mark.parametrize(
    ("text", "current", "words"),
    [
        ("+message.type=fifo", None, "not in set: UNSPECIFIED, NORMAL, FIFO"),
        ("+message.type=LITE", None, "not in set"),
        ("+message.type=A=B", None, "'A=B'"),
        ("message.type=FIFO", None, "attribute format is wrong: 'message.type=FIFO'"),
        ("-message.type=FIFO", FIFO, "attribute format is wrong"),
        ("+message.type", None, "attribute format is wrong: '+message.type'"),
        ("+message.type=", None, "attribute format is wrong"),
        ("+=x", None, "attribute format is wrong"),
        ("+a+b=x", None, "attribute format is wrong"),
        ("+a-b=x", None, "attribute format is wrong"),
        (",+message.type=FIFO", None, "attribute format is wrong"),
        ("garbage", None, "attribute format is wrong: 'garbage'"),
        ("+message.type=FIFO,+message.type=NORMAL", None, "key duplication"),
        ("+message.type=FIFO,-message.type", FIFO, "key duplication"),
        ("+unknown=1", None, "unsupported key: unknown; there are cleanup.policy, message.type"),
        ("+ message.type=FIFO", None, "unsupported key:  message.type"),
        ("-message.type", None, "only add attribute is supported while creating"),
        ("-message.type", {}, "attempt to delete a nonexistent key"),
        ("+queue.type=SimpleCQ", FIFO, "unchangeable attribute: queue.type"),
        ("-queue.type", {"queue.type": "SimpleCQ"}, "unchangeable attribute: queue.type"),
        ("+cleanup.policy=COMPACTION", {"cleanup.policy": "DELETE"}, "unchangeable attribute"),
        ("+queue.type=BatchCQ", None, "not possible here"),
        ("+cleanup.policy=COMPACTION", None, "last value of a key"),
        ("+reserve.time=abc", None, "must be a whole number"),
        ("+reserve.time=٣", None, "must be a whole number"),
        ("+reserve.time=-", None, "must be a whole number"),
        ("+reserve.time=-2", None, "not in range"),
        ("+reserve.time=9223372036854775808", None, "not in range"),
        ("+reserve.time=" + "9" * 5000, None, "must be a whole number"),
    ],
)
def test_a_change_that_cannot_be_is_refused_with_the_reason(text, current, words):
    with pytest.raises(ConfigError) as caught:
        altered(text, current)
    assert words in str(caught.value)


def test_a_text_of_attributes_makes_them_again():
    attributes = {"reserve.time": "60", "message.type": "DELAY"}
    assert text_of(attributes) == "+message.type=DELAY,+reserve.time=60"
    assert altered(text_of(attributes)) == attributes
    assert text_of(None) is text_of({}) is None


def test_names_in_a_body_have_their_sign():
    changes = of_signed({"+priority.factor": "50"})
    assert changed(GROUP_ATTRIBUTES, None, changes, is_new=True) == {"priority.factor": "50"}
    assert (
        changed(GROUP_ATTRIBUTES, {"priority.factor": "50"}, of_signed({"-priority.factor": ""}), is_new=False) is None
    )
    for value in ("101", "-1"):
        with pytest.raises(ConfigError, match="not in range"):
            changed(GROUP_ATTRIBUTES, None, of_signed({"+priority.factor": value}), is_new=True)
    with pytest.raises(ConfigError, match="format is wrong"):
        of_signed({"priority.factor": "1"})
