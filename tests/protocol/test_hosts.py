"""Hosts as bytes: both families, both directions, and what is refused."""

import pytest

from sparrowmq.errors import LocalProtocolError, RemoteProtocolError
from sparrowmq.protocol import hosts

CASES = [
    ("127.0.0.1:11911", "7F00000100002E87"),
    ("255.255.255.255:65535", "FFFFFFFF0000FFFF"),
    ("[::1]:10911", "00000000000000000000000000000001" + "00002A9F"),
    ("[2001:db8::2]:1", "20010DB8000000000000000000000002" + "00000001"),
]


@pytest.mark.parametrize(("text", "raw"), CASES)
def test_a_host_has_the_same_bytes_in_both_directions(text: str, raw: str) -> None:
    assert hosts.pack(text).hex().upper() == raw
    assert hosts.unpack(bytes.fromhex(raw)) == text


@pytest.mark.parametrize(
    "text", ["", "localhost:1", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3:80"]
)
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="write ip:port"):
        hosts.pack(text)


@pytest.mark.parametrize("size", [0, 7, 9, 16, 21])
def test_a_host_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"not {size}"):
        hosts.unpack(bytes(size))
