import socket

import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.cluster.name_servers import NameServerList, addresses_of, local_ip
from sparrowmq.errors import ConfigError


def test_one_name_server_is_asked_until_another_is_wanted():
    servers = NameServerList(["a:1", "b:2", "c:3"], lambda most: 4)
    assert [next(servers.in_turn()) for _ in range(3)] == ["b:2"] * 3
    given = servers.in_turn()
    assert [next(given), next(given)] == ["b:2", "c:3"]
    assert list(servers.in_turn()) == ["c:3", "a:1", "b:2"]
    assert str(servers) == "a:1;b:2;c:3"


@pytest.mark.covers("S-CFG-10")
def test_clients_begin_at_random_name_servers():
    addresses = ["a:1", "b:2", "c:3"]
    assert {next(NameServerList(addresses).in_turn()) for _ in range(200)} == set(addresses)


@pytest.mark.covers("S-CFG-01")
@pytest.mark.covers("S-CFG-11")
@pytest.mark.parametrize(
    "given",
    ["a:1;b.example.com:2", " a:1 ; b.example.com:2;a:1;", ["a:1", "b.example.com:2"], "a:1,b.example.com:2"],
)
def test_addresses_are_given_in_any_usual_form(given):
    assert addresses_of(given) == (["a:1", "b.example.com:2"], None)


@pytest.mark.covers("S-CFG-08", "S-CFG-09")
def test_the_environment_is_asked_when_nothing_is_given(monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876")
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN", "names.example.com")
    assert addresses_of(None) == (["10.0.0.1:9876"], None)
    assert addresses_of("a:1") == (["a:1"], None)
    monkeypatch.delenv("NAMESRV_ADDR")
    assert addresses_of(None) == ([], "http://names.example.com:8080/rocketmq/nsaddr")
    monkeypatch.setenv("ROCKETMQ_NAMESRV_DOMAIN", "names.example.com:80")
    monkeypatch.setenv("ROCKETMQ_NAMESRV_SUBGROUP", "test")
    assert addresses_of(None) == ([], "http://names.example.com:80/rocketmq/test")
    assert addresses_of("https://names.example.com/x") == ([], "https://names.example.com/x")


def test_no_address_at_all_says_what_to_do(monkeypatch):
    for name in ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_DOMAIN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=r"connect.*or set NAMESRV_ADDR"):
        addresses_of(None)
    for wrong in ("localhost:", "a:x", ["a:1", "no host:1"], "a..b"):
        with pytest.raises(ConfigError, match=r"host:port|is not a host"):
            addresses_of(wrong)


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("localhost", ["localhost:9876"]),
        ("a;b:1,10.0.0.1", ["a:9876", "b:1", "10.0.0.1:9876"]),
        (["[::1]", "[::1]:1"], ["[::1]:9876", "[::1]:1"]),
        (["a", "a:9876"], ["a:9876"]),
    ],
)
def test_without_a_port_it_is_that_of_name_servers(given, addresses):
    assert addresses_of(given) == (addresses, None)


@pytest.mark.covers("S-CFG-02")
def test_a_machine_of_two_networks_finds_the_address_that_the_name_server_sees(monkeypatch):
    class Routed(socket.socket):
        def connect(self, address) -> None:
            self.peer = address[0]

        def getsockname(self) -> tuple[str, int]:
            return ("10.1.0.7" if self.peer.startswith("10.") else "192.168.0.7"), 5

    monkeypatch.setattr(socket, "socket", Routed)
    for address, own in (("10.1.0.1:9876", "10.1.0.7"), ("192.168.0.1:9876", "192.168.0.7")):
        assert local_ip([address]) == own
        assert connect(address).client_id.startswith(f"{own}@")
        assert connect(address, client_id="1.2.3.4@mine").client_id == "1.2.3.4@mine"


def test_the_address_is_the_one_that_the_name_server_sees():
    assert local_ip(["127.0.0.1:9876"]) == "127.0.0.1"
    assert local_ip(["[::1]:9876"]) in ("::1", "127.0.0.1")


def test_a_name_server_given_by_name_is_no_obstacle():
    ip = local_ip(["name.invalid:9876"])
    assert ip.count(".") == 3 or ":" in ip
