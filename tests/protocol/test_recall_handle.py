import base64

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.recalls import RecallHandle

RAW = b"v1 Orders broker-a 1795144375342 7F00000100002A139A551C2B4D5E0000"
HANDLE = RecallHandle("Orders", "broker-a", 1_795_144_375_341, "7F00000100002A139A551C2B4D5E0000")


def test_a_handle_has_the_bytes_of_javas():
    assert str(HANDLE) == base64.urlsafe_b64encode(RAW).decode()


def test_a_handle_is_read_with_and_without_its_padding():
    assert RecallHandle.parse(str(HANDLE)) == RecallHandle.parse(str(HANDLE).rstrip("=")) == HANDLE


@pytest.mark.parametrize(
    "raw",
    [b"", b"v2 Orders broker-a 5 id", b"v1 Orders broker-a 5", b"v1 Orders broker-a x id", b"v1  a 5 id", b"\xff\xfe",
     b"v1 Orders broker-a " + b"9" * 30 + b" id"],
)  # fmt: skip
def test_what_is_no_handle_is_refused(raw):
    with pytest.raises(ConfigError, match="recall handle is invalid"):
        RecallHandle.parse(base64.urlsafe_b64encode(raw).decode())


@pytest.mark.parametrize("text", ["", "!", "ä", "a" * 5, "\0"])
def test_what_is_not_even_base64_is_refused(text):
    with pytest.raises(ConfigError, match="recall handle is invalid"):
        RecallHandle.parse(text)
