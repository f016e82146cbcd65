"""White lists: which addresses a pattern stands for."""

import ipaddress

import pytest

from sparrowmq.auth.addresses import Addresses


def packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


@pytest.mark.covers("S-ACL-02")
@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("192.168.1.7", ["192.168.1.7"], ["192.168.1.70", "192.168.7.1", "::1"]),
        ("*", ["1.2.3.4", "::1", "fe80::1"], []),
        ("*.*.*.*", ["1.2.3.4", "::1"], []),
        ("*:*:*:*:*:*:*:*", ["1.2.3.4", "::1"], []),
        ("192.168.1.*", ["192.168.1.0", "192.168.1.255"], ["192.168.2.1", "19.216.81.1"]),
        ("192.168.*.*", ["192.168.0.0", "192.168.255.9"], ["192.169.0.0"]),
        ("192.168.1-10.*", ["192.168.1.0", "192.168.10.255"], ["192.168.0.1", "192.168.11.1"]),
        ("192.168.1.10-20", ["192.168.1.10", "192.168.1.20"], ["192.168.1.9", "192.168.1.21"]),
        ("10.0.0.0-0", ["10.0.0.0"], ["10.0.0.1"]),
        ("192.168.*.5", ["192.168.9.5"], ["192.168.9.6"]),
        ("*.168.1.1", ["9.168.1.1"], ["9.169.1.1"]),
        ("192.168.1.{1,2, 3}", ["192.168.1.1", "192.168.1.3"], ["192.168.1.4"]),
        ("10.0.0.1,10.0.0.2", ["10.0.0.1", "10.0.0.2"], ["10.0.0.3"]),
        ("10.0.0.{1,2},10.1.*.*", ["10.0.0.2", "10.1.7.7"], ["10.0.0.3"]),
        ("fe80::1", ["fe80::1", "FE80:0:0:0:0:0:0:1"], ["fe80::2", "0.0.0.1"]),
        ("1050:0:0:0:5:600:300c:1", ["1050::5:600:300c:1"], ["1050::5:600:300c:2"]),
        ("fe80::1:*", ["fe80::1:0", "fe80::1:ffff"], ["fe80::2:1"]),
        ("2::ac5:78:1-200:*", ["2::ac5:78:200:9", "2::ac5:78:1:0"], ["2::ac5:78:201:9", "2::ac5:79:1:0"]),
        ("2::ac5:78:1-200", ["2::ac5:78:1ff"], ["2::ac5:78:201"]),
        ("fe80::{1,a}", ["fe80::1", "fe80::a"], ["fe80::2"]),
        ("10.0.0.1", ["::ffff:10.0.0.1"], ["::ffff:10.0.0.2"]),
        ("  ", [], ["1.2.3.4"]),
    ],
)
def test_a_pattern_stands_for_its_addresses_and_no_others(pattern, inside, outside):
    addresses = Addresses([pattern])
    assert [address for address in inside if not addresses.has(packed(address))] == []
    assert [address for address in outside if addresses.has(packed(address))] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "10.*",
        "10.0.0.256",
        "10.0.0.x",
        "10.0.0.20-10",
        "10.0.0.-5",
        "10.0.0.1-",
        "localhost",
        "10.0.0.{1,x}",
        "10.0.0.1/24",
        "fe80:::1",
        "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:8:*",
        "::12345",
        "10.0.0.0x1",
        "10.0.0.1,",
    ],
)
def test_what_is_no_pattern_is_refused_with_its_text(pattern):
    with pytest.raises(ValueError, match="is no address"):
        Addresses([pattern])


def test_several_patterns_stand_for_all_their_addresses_and_none_for_none():
    assert Addresses(["10.0.0.1", "", "10.0.0.2"]).has(packed("10.0.0.2"))
    assert not Addresses([]) and not Addresses([""]) and Addresses(["*"]) and Addresses(["10.0.0.1"])
