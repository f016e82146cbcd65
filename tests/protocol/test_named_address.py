"""Addresses of brokers behind a proxy, and requests that name them."""

from sparrowmq.protocol.hosts import split_broker, with_broker
from sparrowmq.protocol.signature import SIGNATURE, SigningKey, signer
from sparrowmq.protocol.wire.connection import naming


def test_an_address_names_its_broker():
    assert split_broker(with_broker("[::1]:8080", "broker-a")) == ("[::1]:8080", "broker-a")
    assert split_broker("127.0.0.1:8080") == ("127.0.0.1:8080", "")


def test_requests_name_the_broker():
    named = naming("broker-a", None)
    assert named is not None and named({"topic": "T"}, b"") == {"bname": "broker-a"}
    assert naming("", None) is None


def test_the_signature_covers_the_name():
    named = naming("broker-a", signer("user", "secret-of-user"))
    assert named is not None
    fields = {"topic": "T"} | named({"topic": "T"}, b"body")
    assert fields["bname"] == "broker-a" and SIGNATURE in fields
    key = SigningKey("secret-of-user")
    assert key.has_signed(fields, b"body")
    assert not key.has_signed(fields | {"bname": "broker-b"}, b"body")
