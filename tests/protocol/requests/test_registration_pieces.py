"""A large registration that is read in pieces has the topics that it has when it is read as a whole."""

import json as standard
import random

import msgspec
import pytest

from sparrowmq.loop.slices import Steps, at_once
from sparrowmq.protocol.requests.bodies import DataVersion, TopicConfig, TopicConfigTable
from sparrowmq.protocol.requests.registration_bodies import PIECE_BYTES, RegisterBrokerBody, pieces
from sparrowmq.protocol.wire.json import NotJson

COUNT = 5000
ATTRIBUTES = [None, {}, {"+message.type": "FIFO"}, {"a": '},"b":{', "c": "}}", "\\": '"}},"'}]
AFTER = '"topicQueueMappingDetailMap":{"T":{"x":{"y":1}},"U":{}},"topicQueueMappingInfoMap":{}}}'


def registration(attributes: dict[str, str] | None, count: int = COUNT) -> RegisterBrokerBody:
    names = [f"topic-{number:05}" for number in range(count)]
    topics = {name: TopicConfig(name, 4, 4, 6, attributes=attributes, order=name[-1] == "7") for name in names}
    return RegisterBrokerBody(TopicConfigTable(DataVersion(3, 4), topics), ["filter"])


def steps_of(steps: Steps[object]) -> int:
    return sum(1 for _ in steps)


@pytest.mark.parametrize("attributes", ATTRIBUTES)
@pytest.mark.parametrize("order", ["of names", "of members", "of 5.x"])
def test_all_topics_are_read_wherever_their_pieces_end(attributes, order):
    said = registration(attributes)
    raw = said.encode() if order != "of members" else msgspec.json.encode(said)
    if order == "of 5.x":
        raw = raw[:-2] + b"," + AFTER.encode()
    assert at_once(RegisterBrokerBody.decode_in_steps(raw)) == RegisterBrokerBody.decode(raw) == said
    # No step reads much more than a piece.
    assert steps_of(RegisterBrokerBody.decode_in_steps(raw)) >= len(raw) // (2 * PIECE_BYTES)


@pytest.mark.parametrize("seed", range(20))
def test_odd_names_and_texts_change_nothing(seed):
    chance = random.Random(seed)
    parts = [
        '"',
        "\\",
        "{",
        "}",
        "},",
        '},"',
        "}}",
        ":",
        "\u00e9",
        "\n",
        "topicConfigTable",
        '"topicConfigTable":{',
    ]
    table = {}
    for number in range(3000):
        name = f"{number}" + "".join(chance.choices(parts, k=chance.randrange(12)))
        attributes = {name: "".join(chance.choices(parts, k=5))} if chance.random() < 0.5 else None
        table[name] = TopicConfig(name, number, 4, 6, attributes=attributes)
    said = RegisterBrokerBody(TopicConfigTable(DataVersion(3, 4), table))
    for raw in (said.encode(), standard.dumps(standard.loads(said.encode()), separators=(",", ":")).encode()):
        topics, rest = at_once(pieces(raw))
        assert topics == table
        assert RegisterBrokerBody.decode(rest) == RegisterBrokerBody(TopicConfigTable(DataVersion(3, 4)))


def test_a_registration_without_topics_has_none():
    assert at_once(pieces(RegisterBrokerBody().encode()))[0] == {}


def test_a_name_that_ends_like_the_table_is_not_taken_for_it():
    with pytest.raises(NotJson):
        at_once(pieces(b'{"x\\"topicConfigTable":{"a":{"perm":2}},"topicConfigSerializeWrapper":{}}'))


def test_a_second_table_is_refused():
    raw = registration(None).encode()
    cut = raw.index(b'"topicConfigTable"')
    twice = raw[:cut] + b'"topicConfigTable":{"T":{}},' + raw[cut:]
    with pytest.raises(NotJson, match="two tables"):
        at_once(RegisterBrokerBody.decode_in_steps(twice))


def broken(how: str) -> bytes:
    raw = registration({}).encode()
    if how == "blanks":
        return standard.dumps(standard.loads(raw)).encode()
    if how == "cut":
        return raw[: len(raw) // 2]
    if how == "cut between":
        return raw[: raw.rindex(b'},"') + 1]
    if how == "wrong":
        return raw.replace(b'"topicName":"topic-02500"', b'"topicName":[1]')
    return raw.replace(b'"topic-02500":', b'"topic-02500";')


@pytest.mark.parametrize("how", ["blanks", "cut", "cut between", "wrong", "no colon"])
def test_what_cannot_be_cut_is_refused_after_a_few_tries(how):
    steps = RegisterBrokerBody.decode_in_steps(broken(how))
    with pytest.raises(NotJson, match="JSON"):
        for _ in range(2000):
            next(steps)
