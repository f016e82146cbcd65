"""Header fields to extFields and back, as leniently as real clients need."""

from typing import ClassVar

from msgspec import field

from sparrowmq.protocol.wire.header import Header, NoFields, Request


class Found(Header):
    offset: int


class Ask(Request[Found]):
    code: ClassVar[int] = 9999

    topic: str
    queue_id: int
    batch: bool | None = None
    short: str | None = field(name="s", default=None)


class AskMore(Ask):
    code: ClassVar[int] = 9998


def test_the_type_argument_names_the_reply() -> None:
    assert (Ask.Reply, AskMore.Reply, Request.Reply) == (Found, Found, NoFields)


def test_text_fields_for_the_binary_header_are_the_same() -> None:
    assert Ask("t", 7, False, "x").ext_fields() == {"topic": "t", "queueId": "7", "batch": "false", "s": "x"}
