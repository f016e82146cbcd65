"""Hosts as bytes: both families, both directions, and what is refused."""

import pytest

from sparrowmq.errors import ConfigError, LocalProtocolError, RemoteProtocolError
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


@pytest.mark.parametrize("text", ["", "localhost:1", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3:80"])
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="write ip:port"):
        hosts.pack(text)


@pytest.mark.parametrize("size", [0, 7, 9, 16, 21])
def test_a_host_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"not {size}"):
        hosts.unpack(bytes(size))


@pytest.mark.parametrize("address", ["localhost", "localhost:", ":9876", "h:0", "h:65536", "h:x", "", "h:-1"])
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ConfigError, match=r"as in 127\.0\.0\.1:9876"):
        hosts.split_address(address)


@pytest.mark.parametrize(
    "host", ["a..b", ".a", "a b", "a/b", "http://a", "x" * 64, "a:b", "[::1", "::g", "[]", "a@b", "[a"]
)
def test_what_is_no_host_is_refused_and_told_what_one_is(host: str) -> None:
    with pytest.raises(ConfigError, match="is not a host"):
        hosts.split_address(f"{host}:9876")


@pytest.mark.parametrize("host", ["a", "a.b-c.d_e", "a.", "10.0.0.1", "bücher.example", "x" * 63])
def test_names_and_ip_addresses_are_hosts(host: str) -> None:
    assert hosts.split_address(f"{host}:1") == (host, 1)


def test_addresses_are_split_at_the_last_colon() -> None:
    assert hosts.split_address("[::1]:9876") == ("::1", 9876)
    assert hosts.split_address("broker.example:10911") == ("broker.example", 10911)


def test_addresses_are_written_as_host_and_port() -> None:
    assert hosts.address_text(("127.0.0.1", 80)) == "127.0.0.1:80"
    assert hosts.address_text(("::1", 80, 0, 0)) == "[::1]:80"
    assert hosts.address_text(None) == "?"


@pytest.mark.parametrize(
    ("address", "counts_as"),
    [("10.0.0.1", "0A000001"), ("2001:db8::2", "20010DB800000000"), ("::ffff:10.0.0.1", "0A000001")],
)
def test_an_ipv6_address_counts_as_its_network(address: str, counts_as: str) -> None:
    packed = hosts.pack(f"[{address}]:1")[:-4]
    assert hosts.limit_key(packed).hex().upper() == counts_as
