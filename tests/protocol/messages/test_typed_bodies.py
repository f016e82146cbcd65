"""What a program sends for a value is what a handler with its type gets."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pydantic
import pytest

from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.messages.message import Message
from sparrowmq.protocol.messages.typed_bodies import decoder
from tests.protocol.messages.test_message import stored


@dataclass
class Order:
    id: str
    lines: list[int] = field(default_factory=list)


class Refund(msgspec.Struct):
    id: str


class Line(pydantic.BaseModel):
    count: int = pydantic.Field(alias="Count")


@pydantic.dataclasses.dataclass
class Named:
    line: Line
    name: str = pydantic.Field(alias="Name")


@dataclass
class Basket:
    lines: list[Line]


@pytest.mark.parametrize(
    ("value", "wanted", "body"),
    [
        (Order("o-1", [5]), Order, b'{"id":"o-1","lines":[5]}'),
        (Refund("r-1"), Refund, b'{"id":"r-1"}'),
        (Line(Count=5), Line, b'{"Count":5}'),
        (Named(Line(Count=5), Name="n"), Named, b'{"line":{"Count":5},"Name":"n"}'),
        (Basket([Line(Count=5)]), Basket, b'{"lines":[{"Count":5}]}'),
        ([Line(Count=5)], list[Line], b'[{"Count":5}]'),
        ({"refund": Refund("r-1")}, dict[str, Refund], b'{"refund":{"id":"r-1"}}'),
        ([1, None, "a"], list, b'[1,null,"a"]'),
    ],
)
def test_value_is_written_as_json_that_its_type_is_read_from(value: Any, wanted: Any, body: bytes) -> None:
    message = Message("t", value, properties={"region": "EU"})
    assert message.body == body and decoder(wanted)(message.body) == value
    assert message.properties == {"contentType": "application/json", "region": "EU"}


def test_text_is_written_as_utf_8_and_bytes_have_no_content_type() -> None:
    assert Message("t", "grün").body == "grün".encode()
    assert Message("t", "grün").properties == {"contentType": "text/plain; charset=utf-8"}
    assert Message("t", bytearray(b"x")).properties == {}


def test_own_content_type_is_kept_and_the_properties_of_the_program_are_not_changed() -> None:
    own: dict[str, str] = {}
    assert Message("t", Order("o-1"), properties={"contentType": "x"}).properties == {"contentType": "x"}
    assert Message("t", Order("o-1"), properties=own).properties and not own


def test_body_that_is_assigned_later_is_written_when_it_is_sent() -> None:
    message = Message("t", b"x")
    message.body = Refund("r-1")  # type: ignore[assignment]
    message.check()
    assert message.body == b'{"id":"r-1"}' and message.properties == {"contentType": "application/json"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (Order, "the body is type; give bytes, text, a dict"),
        ({1, 2}, "the body is set; give bytes"),
        (
            {"a": object()},
            "the body is dict, which cannot be written: JSON has no form for a object; correct",
        ),
        ({None: 1}, "the body is dict, which cannot be written"),
        ("\ud800", "the body is str, which cannot be written"),
        (Message("t", b"x"), "the body is a whole Message; send its `body`"),
        (stored(), "the body is a whole StoredMessage; send its `body`"),
    ],
)
def test_value_without_a_form_is_refused_with_advice(body: Any, words: str) -> None:
    with pytest.raises(InvalidMessage, match=words):
        Message("t", body)


def test_value_that_contains_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(InvalidMessage, match="the body is list, which cannot be written"):
        Message("t", circle)
