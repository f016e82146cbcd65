"""The plan of a closed cluster: its settings are those of the servers, and all of them protect."""

from __future__ import annotations

from typing import Any

import pytest

from sparrowmq.auth.accounts import parse_account
from sparrowmq.auth.document import Document
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.member import check_member_settings
from sparrowmq.broker.replication.ha_master import check_role
from sparrowmq.cli.secure import ClusterOptions, Plan, make_plan
from sparrowmq.errors import ConfigError
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.remoting.tls.tls_settings import ClientAuth, TlsMode
from sparrowmq.settings.settings import build

SIZES: list[dict[str, Any]] = [
    {},
    {"name_servers": 2, "brokers": 3, "slaves": 1},
    {"hosts": ("10.0.0.1", "10.0.0.2", "mq.example"), "name_servers": 3, "brokers": 4, "slaves": 2},
    {"brokers": 3, "has_failover": True, "hosts": ("10.0.0.1", "::1"), "etcd": 3},
]


def settings_of(made: Plan) -> list[BrokerSettings | NamesrvSettings]:
    """The settings of all servers; each key is one that there is, and has an effect."""
    found: list[BrokerSettings | NamesrvSettings] = []
    for path, text in made.texts.items():
        if not path.endswith(".conf"):
            continue
        given = dict(line.split("=", 1) for line in text.splitlines())
        kind: Any = BrokerSettings if path.endswith("broker.conf") else NamesrvSettings
        settings, report = build(kind, given, path)
        assert not report.unknown and not report.without_effect
        found.append(settings)
    return found


@pytest.mark.parametrize("size", SIZES)
def test_every_server_is_closed(size: dict[str, Any]) -> None:
    made = make_plan(ClusterOptions(place="/etc/mq", **size))
    for settings in settings_of(made):
        assert settings.acl and settings.tls_mode is TlsMode.ENFORCING
        assert settings.client_auth is ClientAuth.REQUIRE and not settings.insecure
        if isinstance(settings, BrokerSettings):
            (check_member_settings if settings.failover else check_role)(settings)
            assert settings.ha_secret and len(settings.ha_secret) == 48 and settings.fast_port == 0


@pytest.mark.parametrize("size", SIZES)
def test_no_address_is_used_twice(size: dict[str, Any]) -> None:
    used: list[tuple[str, int | None]] = []
    for settings in settings_of(make_plan(ClusterOptions(place="/etc/mq", **size))):
        if isinstance(settings, BrokerSettings):
            used += [(settings.ip, settings.port), (settings.ip, settings.ha_port)]
        elif settings.bind_address != "0.0.0.0":
            used.append((settings.bind_address, settings.port))
    assert len(set(used)) == len(used) > 1


def test_a_slave_is_on_another_host_than_its_master() -> None:
    made = make_plan(ClusterOptions(place="/etc/mq", hosts=("10.0.0.1", "10.0.0.2"), brokers=2, slaves=1))
    where = {(each.name, each.broker_id): each.ip for each in settings_of(made) if isinstance(each, BrokerSettings)}
    assert where[("broker-a", 0)] != where[("broker-a", 1)] and where[("broker-b", 0)] != where[("broker-b", 1)]


def test_each_account_has_its_certificate_and_no_more_rights_than_it_needs() -> None:
    made = make_plan(
        ClusterOptions(place="/etc/mq", brokers=2, slaves=1, clients=("orders-service", "billing-service"))
    )
    texts = {text for path, text in made.texts.items() if path.endswith("accounts.yml")}
    assert len(texts) == 1, "all servers have the same accounts"
    accounts = [parse_account(fields) for fields in Document(texts.pop(), "accounts.yml").accounts]
    assert {each.certificate for each in accounts} <= {each.name for each in made.certificates}
    assert [each.access_key for each in accounts if each.is_admin] == ["administrator"]
    assert {each.access_key: each.broker_names for each in accounts if each.is_broker} == {
        "broker-a": {"broker-a"},
        "broker-a-slave-1": {"broker-a"},
        "broker-b": {"broker-b"},
        "broker-b-slave-1": {"broker-b"},
    }
    assert len({each.access_key for each in accounts}) == 7
    environment = made.texts["orders-service/environment"]
    assert "ROCKETMQ_ACCESS_KEY=orders-service\n" in environment and "NAMESRV_ADDR='127.0.0.1:9876'" in environment


def test_etcd_has_an_authority_of_its_own_that_signs_for_brokers_only() -> None:
    made = make_plan(ClusterOptions(place="/etc/mq", brokers=2, has_failover=True))
    of_etcd = {each.stem for each in made.certificates if each.authority == "etcd-ca"}
    assert of_etcd == {
        "etcd-1/certificate.pem",
        "broker-a-1/etcd-certificate.pem",
        "broker-a-2/etcd-certificate.pem",
    }
    assert made.texts["etcd-1/etcd.yml"].count("client-cert-auth: true") == 2


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"hosts": ("10.0.0.1;10.0.0.2",)}, "is not an address"),
        ({"has_failover": True, "slaves": 1}, "does not go with --failover"),
        ({"clients": ("shop",)}, "more than 6 letters"),
        ({"clients": ("orders service",)}, "is not a valid account name"),
        ({"clients": ("administrator",)}, "the name is taken"),
        ({"clients": ("broker-a",)}, "the name is taken"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_plan(ClusterOptions(place="/etc/mq", **wrong))
