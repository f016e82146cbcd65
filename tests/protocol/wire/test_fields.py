"""extFields to typed headers, as leniently as real clients need."""

import gc
import re
from contextlib import suppress
from typing import ClassVar

import msgspec
import pytest
from msgspec import field

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.requests.request_table import ROWS
from sparrowmq.protocol.wire.header import Header, NoFields, Request, fields_of_json, from_fields, from_json


class Found(Header):
    offset: int


class Ask(Request[Found]):
    code: ClassVar[int] = 9999

    topic: str
    queue_id: int
    batch: bool | None = None
    short: str | None = field(name="s", default=None)


class Usual(Header):
    many: int | None = None
    region: str = "here"
    open: bool = True


@pytest.mark.parametrize(
    ("ext", "expected"),
    [
        (b'{"topic":"t","queueId":"3"}', Ask("t", 3)),
        (b'{"topic":"t","queueId":3,"batch":true}', Ask("t", 3, True)),
        (b'{"topic":"t","queueId":"3","batch":"1"}', Ask("t", 3, True)),
        (b'{"topic":"t","queueId":"3","batch":"0"}', Ask("t", 3, False)),
        (b'{"topic":"t","queueId":"3","batch":"false"}', Ask("t", 3, False)),
        (b'{"topic":"t","queueId":"3","batch":null}', Ask("t", 3)),
        (b'{"topic":12,"queueId":3}', Ask("12", 3)),
        (b'{"topic":"t","queueId":"3","AccessKey":"","OnsChannel":"ALIYUN","more":{"a":1}}', Ask("t", 3)),
    ],
)
def test_strings_numbers_and_booleans_are_all_accepted(ext: bytes, expected: Ask) -> None:
    assert from_json(Ask, ext) == expected


@pytest.mark.parametrize(
    ("ext", "words"),
    [
        (b'{"queueId":"3"}', "the custom field <topic> is null"),
        (b'{"topic":null,"queueId":"3"}', "the custom field <topic> is null"),
        (b"{}", "the custom field <topic> is null"),
        (b"null", "the custom field <topic> is null"),
        (b'{"topic":"t","queueId":"many"}', "wrong value.*queueId"),
        (b'{"topic":"t","queueId":"1e999"}', "wrong value"),
        (b'{"topic":"t","queueId":"3","batch":"perhaps"}', "wrong value.*batch"),
        (b'["topic"]', "no JSON object of texts"),
        (b'{"topic":[1]}', "no JSON object of texts"),
        (b'{"topic":', "no JSON object"),
        (b'{"topic":"\xff"}', "no JSON object"),
    ],
)
def test_what_does_not_fit_is_a_clear_error(ext: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        from_json(Ask, ext)


@pytest.mark.parametrize("kind", [row.header for row in ROWS if row.header is not None])
def test_the_first_missing_field_is_named(kind: type[Header]) -> None:
    required = [field.encode_name for field in msgspec.structs.fields(kind) if field.required]
    for count, name in enumerate(required):
        with pytest.raises(RemoteProtocolError, match=re.escape(f"the custom field <{name}> is null")):
            from_fields(kind, dict.fromkeys(required[:count], "1"))


def test_a_refusal_leaves_no_garbage() -> None:
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            with suppress(RemoteProtocolError):
                from_json(Ask, b'{"queueId":"3"}')
        assert gc.collect() < 50
    finally:
        gc.enable()


def test_text_fields_become_typed_ones() -> None:
    assert from_fields(Ask, {"topic": "t", "queueId": "3", "batch": "true"}) == Ask("t", 3, True)


def test_all_fields_of_a_request_are_kept_as_text_for_signing() -> None:
    ext = b'{"b":false,"n":12,"s":"x","none":null}'
    assert fields_of_json(ext) == {"b": "false", "n": "12", "s": "x"}
    assert fields_of_json(b"") == fields_of_json(b"null") == {}


@pytest.mark.parametrize(
    ("header", "json"),
    [
        (Ask("t", 7, True), b'{"topic":"t","queueId":"7","batch":"true"}'),
        (Ask('q"\x01', -1), b'{"topic":"q\\"\\u0001","queueId":"-1"}'),
        (
            Ask("名", 1 << 62, False, ""),
            '{"topic":"名","queueId":"4611686018427387904","batch":"false","s":""}'.encode(),
        ),
        (Usual(), b'{"region":"here","open":"true"}'),
        (Usual(5, "there", False), b'{"many":"5","region":"there","open":"false"}'),
        (Usual(None, "her" + "e", 1 == 1), b'{"region":"here","open":"true"}'),
        (NoFields(), b"{}"),
    ],
)
def test_every_value_travels_as_a_string(header: Header, json: bytes) -> None:
    assert msgspec.json.encode(header.ext_fields()) == json
    assert from_json(type(header), json) == header
