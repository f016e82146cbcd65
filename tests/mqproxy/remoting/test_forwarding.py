"""Commands that go on."""

import pytest

from sparrowmq.mqproxy.broker_link import frame_of, size_of
from sparrowmq.protocol.requests.headers import EndTransaction, GetMaxOffset
from sparrowmq.protocol.signature import SigningKey, signed_fields
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.frame import FrameReader, Serializer

KEY = SigningKey("secret-of-user")
END = EndTransaction("g", 1, 2, 8, "id", from_transaction_check=True)


def command_of(raw):
    (parts,) = FrameReader().feed(raw)
    return codec.decode(*parts)


@pytest.mark.parametrize("serializer", Serializer)
@pytest.mark.parametrize("request_", [GetMaxOffset("orders", 0), END], ids=["plain", "decoded in one pass"])
def test_a_signature_stays_valid(serializer, request_):
    fields = signed_fields(request_.ext_fields() | {"unknown": "5"}, b"body", "user", KEY, None)
    extra = fields | {"unknown": "5"}
    raw = codec.encode_request(request_, request_.code, 7, 4, extra=extra, serializer=serializer) + b"body"
    command = command_of(raw)
    again = command_of(frame_of(command, 9))
    assert (again.code, again.opaque, again.flag, again.body) == (command.code, 9, 0, b"body")
    assert (again.version, again.ext_fields()) == (command.version, command.ext_fields())
    assert KEY.has_signed(again.ext_fields(), again.body)


def test_an_answer_keeps_its_code_and_its_words():
    request = command_of(codec.encode_request(GetMaxOffset("orders", 0), GetMaxOffset.code, 7))
    command = command_of(codec.encode_reply(request, 17, None, "no route: ü"))
    again = command_of(frame_of(command, 3, {"bname": "broker-a"}))
    assert (again.code, again.remark, again.is_reply) == (17, "no route: ü", True)
    assert again.ext_fields() == {"bname": "broker-a"}


@pytest.mark.parametrize("serializer", Serializer)
def test_all_that_a_command_keeps_is_counted(serializer):
    extra = {"unknown": "x" * 5000}
    raw = codec.encode_request(GetMaxOffset("orders", 0), 30, 7, 400, extra=extra, serializer=serializer)
    command = command_of(raw + bytes(400))
    assert 5400 < size_of(command) < 5700
    command.remark = command.language = "x" * 1000
    assert 7400 < size_of(command) < 7700


def test_words_of_a_header_that_mean_nothing_are_not_kept():
    command = codec.decode(0, b'{"code":30,"extFields":{"a":"1"},"unknown":"%b"}' % (b"x" * 5000), b"")
    assert size_of(command) == len(b'{"a":"1"}') and command.ext_fields() == {"a": "1"}
    assert size_of(codec.decode(0, b'{"code":30}', b"")) == 0
