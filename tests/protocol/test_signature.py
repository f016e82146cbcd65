"""Signatures: those that the C++ client made, and all that must change them."""

import pytest

from sparrowmq.protocol.signature import content, sign, signed_fields, verify

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
    assert verify(fields, b"", "sk")
    assert verify(dict(reversed(fields.items())), b"", "sk")


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
    assert not verify(fields, body, secret)


def test_values_go_in_the_order_of_their_names_and_the_body_last() -> None:
    fields = {"b": "2", "a": "1", "Z": "0", "Signature": "s", "_UNIQUE_KEY_QUERY": "true"}
    assert content(fields, memoryview(b"body")) == b"012body"


def test_the_query_flag_may_be_added_after_signing() -> None:
    assert verify({**REAL[0], "_UNIQUE_KEY_QUERY": "true"}, b"", "sk")


@pytest.mark.parametrize("token", [None, "sts-token"])
def test_what_a_client_signs_is_verified(token: str | None) -> None:
    fields = {"topic": "主题", "queueId": "0"}
    added = signed_fields(fields, b"body", "ak", "secret12", token)
    assert added.get("SecurityToken") == token
    assert verify({**fields, **added}, b"body", "secret12")


def test_an_empty_secret_signs_as_the_cpp_client_does_without_credentials() -> None:
    fields = {
        "AccessKey": "",
        "OnsChannel": "ALIYUN",
        "Signature": "aXCOOFlUvZNxvkZK3YhqSYBg/TI=",
        "topic": "TopicPy",
    }
    assert sign(content(fields, b""), "") == fields["Signature"]
