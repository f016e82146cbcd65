"""A signed send has all fields of a send, and nothing that was not signed."""

import msgspec
import pytest

from sparrowmq.protocol.requests.headers import SendMessageV2
from sparrowmq.protocol.requests.signed_send import SignedSend

SEND = SendMessageV2("group", "topic", "TBW102", 4, 0, 0, 1, 0)
KEYS = {"AccessKey": "ak", "Signature": "s"}


def test_a_signed_send_has_its_own_fields_in_their_order_behind_the_capital_ones() -> None:
    names = SendMessageV2.__struct_encode_fields__
    assert list(names[:-1]) == sorted(names[:-1]) and names[-1] == "MAY_BE_STORED"
    assert set(SignedSend.__struct_encode_fields__[: len(names)]) == set(names)


@pytest.mark.parametrize("added", [KEYS, KEYS | {"SecurityToken": "t", "OnsChannel": "ALIYUN"}])
def test_a_signed_send_is_a_send(added: dict[str, str]) -> None:
    signed = msgspec.convert(SEND.ext_fields() | added, SignedSend, strict=False)
    assert signed.code == SEND.code
    assert signed.ext_fields() == SEND.ext_fields() | added


@pytest.mark.parametrize("added", [{}, {"AccessKey": "ak"}, {"Signature": "s"}, KEYS | {"other": "x"}])
def test_one_without_keys_or_with_other_fields_is_none(added: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(SEND.ext_fields() | added, SignedSend, strict=False)
