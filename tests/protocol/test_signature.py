"""Signatures: those that the C++ client made, and all that must change them."""

import hmac
import tracemalloc
from base64 import b64encode
from typing import Any

import msgspec
import pytest

from sparrowmq.protocol.requests.headers import SendMessageV2
from sparrowmq.protocol.signature import SigningKey, content, signed_fields

# From the C++ client (PyPI rocketmq 0.4.4) with the credentials ak / sk.
REAL = [
    {"AccessKey": "ak", "OnsChannel": "X", "Signature": "cKPr5VA4ky9qqCrgvVDCAr+eI4M=", "topic": "TopicPy"},
    {
        "AccessKey": "ak",
        "OnsChannel": "X",
        "Signature": "aKbVxyYfWaHrmF4jVHKbvm6FFXI=",
        "clientID": "491-127.0.0.1@DEFAULT",
        "consumerGroup": "",
        "producerGroup": "PID-b",
    },
]


@pytest.mark.parametrize("fields", REAL)
def test_a_real_request_is_verified(fields: dict[str, str]) -> None:
    assert SigningKey("sk").has_signed(fields, b"")
    assert SigningKey("sk").has_signed(dict(reversed(fields.items())), b"")


@pytest.mark.parametrize(
    ("fields", "body", "secret"),
    [
        (REAL[0], b"", "sK"),
        (REAL[0], b"x", "sk"),
        ({**REAL[0], "topic": "TopicPz"}, b"", "sk"),
        ({**REAL[0], "more": "x"}, b"", "sk"),
        ({**REAL[0], "Signature": ""}, b"", "sk"),
        ({**REAL[0], "Signature": "ä\ud800"}, b"", "sk"),
        ({"AccessKey": "ak", "OnsChannel": "X", "topic": "TopicPy"}, b"", "sk"),
    ],
)
def test_a_changed_request_is_not_verified(fields: dict[str, str], body: bytes, secret: str) -> None:
    assert not SigningKey(secret).has_signed(fields, body)


def test_values_go_in_the_order_of_their_names_and_the_body_last() -> None:
    fields = {"b": "2", "a": "1", "Z": "0", "Signature": "s", "_UNIQUE_KEY_QUERY": "true"}
    assert content(fields, memoryview(b"body")) == b"012body"


def test_the_query_flag_may_be_added_after_signing() -> None:
    assert SigningKey("sk").has_signed({**REAL[0], "_UNIQUE_KEY_QUERY": "true"}, b"")


def test_the_query_flag_may_be_signed_as_javas_clients_do_from_4_9_4_on() -> None:
    fields = {"topic": "orders", "key": "k1", "_UNIQUE_KEY_QUERY": "true", "AccessKey": "ak"}
    made = hmac.digest(b"sk", b"aktruek1orders" + b"body", "sha1")
    fields["Signature"] = b64encode(made).decode()
    assert SigningKey("sk").has_signed(fields, b"body")
    assert not SigningKey("sk").has_signed({**fields, "_UNIQUE_KEY_QUERY": "false"}, b"body")


@pytest.mark.parametrize("token", [None, "sts-token"])
def test_what_a_client_signs_is_verified(token: str | None) -> None:
    fields = {"topic": "主题", "queueId": "0"}
    added = signed_fields(fields, b"body", "ak", SigningKey("secret12"), token)
    assert added.get("SecurityToken") == token
    assert SigningKey("secret12").has_signed({**fields, **added}, b"body")


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"queue_id": 31, "sys_flag": 32, "flag": -7, "born_timestamp": 1_795_144_375_341},
        {
            "properties": "主题\x01x\x02",
            "reconsume_times": 3,
            "unit_mode": True,
            "batch": False,
            "broker_name": "b",
        },
        {"may_be_stored": True, "broker_name": "b"},
        {"may_be_stored": False},
    ],
)
@pytest.mark.parametrize("token", [None, "sts-token"])
def test_a_send_is_verified_by_all_of_its_fields(changed: dict[str, Any], token: str | None) -> None:
    send = msgspec.structs.replace(SendMessageV2("group", "topic", "TBW102", 4, 0, 0, 1, 0), **changed)
    key = SigningKey("secret12")
    fields = send.ext_fields() | ({"OnsChannel": "ALIYUN"} if token else {})
    fields |= signed_fields(fields, b"body", "ak", key, token)
    assert key.has_signed(fields, b"body")
    assert not key.has_signed(fields, b"bodY")
    for name in fields:
        assert not key.has_signed(fields | {name: "ä"}, b"body")


def test_half_a_surrogate_pair_is_signed_as_java_writes_it() -> None:
    assert content({"i": "\ud800", "Signature": "s"}, b"x") == b"?x"


def test_an_empty_secret_signs_as_the_cpp_client_does_without_credentials() -> None:
    fields = {
        "AccessKey": "",
        "OnsChannel": "ALIYUN",
        "Signature": "aXCOOFlUvZNxvkZK3YhqSYBg/TI=",
        "topic": "TopicPy",
    }
    assert SigningKey("").sign(content(fields, b"")) == fields["Signature"]


@pytest.mark.parametrize("secret", ["", "k", "k" * 64, "k" * 65, "密钥" * 40])
def test_a_key_of_any_length_signs_as_hmac_does(secret: str) -> None:
    expected = b64encode(hmac.digest(secret.encode(), b"content", "sha1")).decode()
    key = SigningKey(secret)
    assert key.sign(b"content") == key.sign(b"content") == expected


def test_any_set_of_names_is_signed_in_order_however_many_sets_there_were() -> None:
    for number in range(1000):
        fields = {f"z{number}": "2", f"a{number}": "1"}
        assert content(fields, b"") == b"12"
    assert content({}, b"x") == content({"Signature": "s"}, b"x") == b"x"
    assert content({"only": "one"}, b"") == b"one"


def test_names_that_a_peer_made_long_are_not_kept() -> None:
    long = {"n" * 2000 + str(number): str(number) for number in range(128)}
    before = 0
    tracemalloc.start()
    try:
        for number in range(100):
            assert content({**long, f"{number:05}": "x"}, b"").startswith(b"x")
            before = before or tracemalloc.get_traced_memory()[0]
        assert tracemalloc.get_traced_memory()[0] - before < 100_000
    finally:
        tracemalloc.stop()
