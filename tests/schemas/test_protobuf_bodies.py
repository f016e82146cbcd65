"""sparrowmq.schemas.protobuf: messages become values, or say why not."""

import datetime as d
import json
import os
import random
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("grpc_tools")

from google.protobuf import descriptor_pb2, message_factory, type_pb2

from sparrowmq.errors import InvalidBody
from sparrowmq.schemas import wire_format
from sparrowmq.schemas.protobuf import ProtobufFile, ProtobufReader, compile_schema, contains_itself
from sparrowmq.schemas.registry import PROTOBUF, Schema
from tests.schemas.samples import MONEY, OPTION_BODY, RANGE_BODY, SHOP

NOTHING: dict[str, Any] = {
    "id": 0, "big": 0, "note": None, "lines": [], "prices": {}, "at": None, "took": None, "maybe": None,
    "free": None, "state": "NEW", "text": None, "number": None, "parent": None, "raw": b"",
}  # fmt: skip


@pytest.fixture(scope="module")
def order():
    file = ProtobufFile(compile_schema(Schema(PROTOBUF, SHOP, (("shop/money.proto", MONEY),))))
    return message_factory.GetMessageClass(file.message_named("Order"))


@pytest.fixture(scope="module")
def reader(order):
    return ProtobufReader(order.DESCRIPTOR)


def test_bodies_of_another_client_have_their_values():
    option = ProtobufReader(type_pb2.Option.DESCRIPTOR).read(wire_format.protobuf_payload(OPTION_BODY)[1])
    assert option == {"name": "color", "value": {"type_url": "t/x", "value": b"\1"}}
    of_range = ProtobufReader(descriptor_pb2.DescriptorProto.ExtensionRange.DESCRIPTOR)
    found = of_range.read(wire_format.protobuf_payload(RANGE_BODY)[1])
    assert (found["start"], found["end"], found["options"]) == (5, 9, None)


def test_fields_without_a_value_are_null_or_their_default(reader):
    assert reader.read(b"") == NOTHING


def test_each_kind_of_field_has_its_value(order, reader):
    sent = order(id=-1, big=2**64 - 1, note="", state=1, number=0.5, raw=b"\0")
    sent.lines.add(sku="s", count=-5)
    sent.prices["eur"].units = 7
    sent.at.FromDatetime(d.datetime(1969, 12, 31, 23, 59, 59, 999999))
    sent.took.seconds, sent.took.nanos = -1, -500_000_001
    sent.maybe.value = 0
    sent.free["a"] = [1, None]
    sent.parent.id = 2
    found = reader.read(sent.SerializeToString())
    assert found == NOTHING | {
        "id": -1,
        "big": 2**64 - 1,
        "note": "",
        "lines": [{"sku": "s", "count": -5}],
        "prices": {"eur": {"units": 7, "nanos": 0}},
        "at": d.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=d.UTC),
        "took": Decimal("-1.500000001"),
        "maybe": 0,
        "free": found["free"],
        "state": "PAID",
        "number": 0.5,
        "parent": found["parent"],
        "raw": b"\0",
    }
    assert json.loads(found["free"]) == {"a": [1, None]}
    assert json.loads(found["parent"]) == {"id": "2"}


def test_a_number_that_an_enum_does_not_have_is_text(order, reader):
    assert reader.read(order(state=77).SerializeToString())["state"] == "77"


def test_messages_that_contain_themselves_are_recognised(order):
    assert contains_itself(order.DESCRIPTOR)
    assert not contains_itself(order.DESCRIPTOR.fields_by_name["lines"].message_type)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\x0a", "cut off, or damaged"),
        (b"\x1a\xff\xff\xff\xff\x7fabc", "cut off, or damaged"),
        (b"\x1a\x02\xff\xff", "cut off, or damaged"),
        (b"\xf8\x06\x01", "shop.Order has no field 111"),
        (b"\x22\x03\xf8\x06\x01", "shop.Order.Line has no field 111"),
        (b"\x32\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00", "cut off|years 1 to 9999"),
        (b"\x32\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "is not in the years 1 to 9999"),
        (b"\x22\x00" * 1_500_000, "more than 1,000,000 values"),
    ],
)
def test_a_body_that_is_none_says_why(reader, body, why):
    with pytest.raises(InvalidBody, match=why):
        reader.read(body)


def test_nesting_without_end_is_refused(reader):
    body = b""
    for _ in range(5000):
        size = len(body)
        varint = bytearray()
        while size > 0x7F:
            varint.append(size & 0x7F | 0x80)
            size >>= 7
        body = b"\x6a" + bytes([*varint, size]) + body
    with pytest.raises(InvalidBody):
        reader.read(body)


def test_changed_and_invented_bodies_are_values_or_have_a_reason(order, reader):
    """SPARROWMQ_BODIES says how many, for longer runs."""
    chance = random.Random(5)
    sent = order(id=5, note="x", state=1, text="y")
    sent.lines.add(sku="s")
    sent.prices["k"].units = 3
    sent.free["a"] = "b"
    sent.parent.parent.id = 1
    good = sent.SerializeToString()
    values = errors = 0
    for _ in range(int(os.environ.get("SPARROWMQ_BODIES", "20000"))):
        body = bytearray(good if chance.random() < 0.7 else chance.randbytes(chance.randint(0, 30)))
        for _ in range(chance.randint(0, 3)):
            at = chance.randrange(len(body) + 1)
            body[at : at + chance.randint(0, 3)] = chance.randbytes(chance.randint(0, 3))
        try:
            reader.read(bytes(body))
            values += 1
        except InvalidBody as error:
            assert str(error)
            errors += 1
    assert values > 100 and errors > 100
