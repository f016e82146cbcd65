"""Commands that go on."""

import pytest

from sparrowmq.mqproxy.remoting.forwarding import forwarded
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
    again = command_of(forwarded(command, 9))
    assert (again.code, again.opaque, again.flag, again.body) == (command.code, 9, 0, b"body")
    assert (again.version, again.ext_fields()) == (command.version, command.ext_fields())
    assert KEY.has_signed(again.ext_fields(), again.body)


def test_an_answer_keeps_its_code_and_its_words():
    request = command_of(codec.encode_request(GetMaxOffset("orders", 0), GetMaxOffset.code, 7))
    command = command_of(codec.encode_reply(request, 17, None, "no route: ü"))
    again = command_of(forwarded(command, 3, {"bname": "broker-a"}))
    assert (again.code, again.remark, again.is_reply) == (17, "no route: ü", True)
    assert again.ext_fields() == {"bname": "broker-a"}
