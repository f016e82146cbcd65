"""Commands to bytes and back in both header serialisations."""

import json
from time import thread_time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import LocalProtocolError, RemoteProtocolError
from sparrowmq.protocol.requests.headers import (
    PullMessage,
    PullMessageReply,
    SendMessageReply,
    SendMessageV2,
)
from sparrowmq.protocol.wire.codec import (
    decode,
    encode_reply,
    encode_request,
)
from sparrowmq.protocol.wire.command import PROTOCOL_VERSION, Command, language_name
from sparrowmq.protocol.wire.frame import FrameReader, Serializer

PULL = PullMessage("g", "t", 1, 2, 32, 6, 0, 15000, 17, subscription="*")
SERIALIZERS = [Serializer.JSON, Serializer.ROCKETMQ]


def whole(head: bytes, body: bytes = b"") -> Command:
    [(serializer, header, found_body)] = FrameReader().feed(head + body)
    return decode(serializer, header, found_body)


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_a_request_comes_back_as_it_was(serializer: Serializer) -> None:
    command = whole(encode_request(PULL, 11, 5, 3, serializer=serializer), b"abc")
    assert (command.code, command.opaque, command.body, command.flag) == (11, 5, b"abc", 0)
    assert command.header(PullMessage) == PULL
    assert command.serializer is serializer
    assert language_name(command.language) == "PYTHON"
    assert command.version == PROTOCOL_VERSION


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_a_reply_repeats_opaque_and_serializer(serializer: Serializer) -> None:
    request = whole(encode_request(PULL, 11, 77, serializer=serializer))
    reply = whole(encode_reply(request, 19, PullMessageReply(0, 9, 1, 9), "OFFSET_OVERFLOW_ONE"))
    assert (reply.opaque, reply.code, reply.is_reply, reply.serializer) == (77, 19, True, serializer)
    assert reply.remark == "OFFSET_OVERFLOW_ONE"
    assert reply.header(PullMessageReply) == PullMessageReply(0, 9, 1, 9)


def test_a_reply_in_json_has_only_strings_in_its_fields() -> None:
    request = whole(encode_request(PULL, 310, 1))
    head = encode_reply(request, 0, SendMessageReply("7F0000010000", 3, 42))
    assert json.loads(head[8:]) == {
        "code": 0,
        "extFields": {
            "msgId": "7F0000010000",
            "queueId": "3",
            "queueOffset": "42",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        },
        "flag": 1,
        "language": "PYTHON",
        "opaque": 1,
        "serializeTypeCurrentRPC": "JSON",
        "version": 409,
    }


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_a_oneway_request_says_so(serializer: Serializer) -> None:
    command = whole(encode_request(PULL, 11, 1, oneway=True, serializer=serializer))
    assert command.is_oneway and not command.is_reply


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_extra_fields_travel_beside_the_header(serializer: Serializer) -> None:
    command = whole(encode_request(PULL, 11, 1, extra={"AccessKey": "ak"}, serializer=serializer))
    assert command.ext_fields()["AccessKey"] == "ak"
    assert command.header(PullMessage) == PULL


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":11,"opaque":1}',
        b'{"code":11,"opaque":1,"extFields":null,"remark":null,"language":null,"version":null}',
        b'{"code":11,"flag":0,"language":1,"opaque":1,"remark":"","version":63}\n',
        b' {"opaque":"1","code":"11","serializeTypeCurrentRPC":"JSON","unknown":[1,{"a":2}]}',
    ],
)
def test_missing_null_and_unknown_members_are_tolerated(header: bytes) -> None:
    command = decode(0, header, b"")
    assert (command.code, command.opaque, command.ext_fields()) == (11, 1, {})
    assert command.is_reply is False


@pytest.mark.parametrize(
    ("serializer", "header"),
    [
        (0, b""),
        (0, b"not json"),
        (0, b"[1,2]"),
        (0, b'{"opaque":1}'),
        (0, b'{"code":"many"}'),
        (0, b'{"code":1,"remark":"\xff\xfe"}'),
        (0, b'{"code":1' + b"9" * 5000 + b"}"),
        (0, b'{"code":1,"extFields":' + b"[" * 100_000 + b"}"),
        (2, b"{}"),
        (255, b"{}"),
        (1, b""),
        (1, b"\0" * 10),
        (1, bytes(17) + b"\x7f\xff\xff\xff"),
        (1, bytes(13) + b"\xff\xff\xff\xff" + bytes(4)),
        (1, bytes(17) + b"\0\0\0\x06" + b"\0\x7fabcd"),
        (1, bytes(17) + b"\0\0\0\x08" + b"\0\x01\xff\0\0\0\x01x"),
    ],
)
def test_a_damaged_header_is_a_clear_error(serializer: int, header: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(serializer, header, b"")


def binary(fields: bytes) -> bytes:
    """A binary header with these extFields."""
    return bytes(17) + len(fields).to_bytes(4, "big") + fields


@pytest.mark.parametrize(
    ("serializer", "header"),
    [
        (0, b'{"code":11,"extFields":{%b}}' % b",".join(b'"%d":1' % number for number in range(1200))),
        (0, b'{"code":11,"extFields":{%b}}' % b",".join([b'"":""'] * 1200)),
        (1, binary(b"".join(b"\0\x03%03d\0\0\0\0" % number for number in range(129)))),
        (1, binary(bytes(6 * 129))),
    ],
    ids=["json", "json, one name", "binary", "binary, one name"],
)
def test_a_header_with_too_many_fields_is_refused_before_they_are_decoded(serializer: int, header: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="more than 128 extFields"):
        decode(serializer, header, b"")


def test_no_header_takes_quadratic_time() -> None:
    begin = thread_time()
    with pytest.raises(RemoteProtocolError):
        decode(0, b'{"code":10,' + b"," * 1200 + b'"' + b'\\"' * 16_000, b"")
    assert thread_time() - begin < 0.2  # it was 2 s


def test_a_long_value_does_not_count_as_many_fields() -> None:
    value = '{"a\\":1},' * 3000
    fields = {str(number): "" for number in range(127)} | {"properties": value}
    header = msgspec.json.encode({"code": 11, "extFields": fields, "language": "GO", "remark": value})
    assert decode(0, header, b"").ext_fields() == fields


def test_a_code_too_large_for_the_binary_header_is_our_callers_error() -> None:
    with pytest.raises(LocalProtocolError, match="use the JSON header"):
        encode_request(PULL, 200050, 1, serializer=Serializer.ROCKETMQ)


def test_a_peer_cannot_set_what_decoding_sets() -> None:
    for code in (1, 310):
        header = b'{"code":%d,"<body>":"YWJj","<fields>":{"a":"b"},"<raw>":"YWJj","extFields":{"a":"g"}}' % code
        command = decode(0, header, b"real")
        assert (command.body, command.fields, command.ext_fields()) == (b"real", None, {"a": "g"})


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from(SERIALIZERS),
)
def test_any_text_survives_both_serialisations(text: str, number: int, serializer: Serializer) -> None:
    general = SendMessageV2("g", text, "TBW102", 4, number, 0, 1, 0, text)
    usual = SendMessageV2(text, text, "TBW102", 4, number, 0, 1, 0, text, 0, False, None, False, text)
    for header in (general, usual):
        command = whole(encode_request(header, 310, 1, serializer=serializer))
        assert command.header(SendMessageV2) == header


def test_of_two_codes_the_last_counts() -> None:
    command = decode(0, b'{"code":310,"code":11,"extFields":{"topic":"t"}}', b"")
    assert (type(command), command.code, command.ext_fields()) == (Command, 11, {"topic": "t"})
    with pytest.raises(RemoteProtocolError, match="the custom field <consumerGroup> is null"):
        command.header(PullMessage)
