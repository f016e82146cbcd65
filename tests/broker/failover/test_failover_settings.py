import pytest

from sparrowmq.broker.failover.failover_settings import FailoverSettings
from sparrowmq.errors import ConfigError
from sparrowmq.settings.settings import build


def parse(**given):
    return build(FailoverSettings, given, "broker.conf")[0]


def test_without_them_nobody_is_elected():
    settings = parse()
    assert not settings.failover
    settings.check_etcd()


def test_the_keys_are_those_of_the_page():
    settings = parse(
        enableControllerMode="true",
        etcdEndpoints="10.0.0.1:2379;10.0.0.2:2379",
        etcdPrefix="/mq/test",
        masterLeaseTime="10s",
        haMaxTimeSlaveNotCatchup="5s",
    )
    settings.check_etcd()
    assert settings.etcd == ("10.0.0.1:2379", "10.0.0.2:2379")
    assert (settings.etcd_prefix, settings.lease_s, settings.catch_up_ms) == ("/mq/test", 10, 5000)


def test_failover_without_an_etcd_says_what_is_missing():
    with pytest.raises(ConfigError, match="etcdEndpoints, the client ports of an etcd"):
        parse(enableControllerMode="true").check_etcd()


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"etcdUser": "root"}, "etcdUser and etcdPassword go together"),
        ({"etcdPassword": "secret"}, "etcdUser and etcdPassword go together"),
        ({"etcd.tls.trustCertPath": "/ca.pem"}, "set etcd.tls.enable=true"),
        (
            {"etcd.tls.enable": "true", "etcd.tls.certPath": "/c.pem"},
            r"etcd\.tls\.certPath and etcd\.tls\.keyPath",
        ),
    ],
)
def test_what_is_said_of_etcd_has_to_be_whole(given, what):
    with pytest.raises(ConfigError, match=what):
        parse(etcdEndpoints="10.0.0.1:2379", **given).check_etcd()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("etcdEndpoints", "http://10.0.0.1:2379"),
        ("etcdEndpoints", "10.0.0.1"),
        ("etcdPrefix", "sparrowmq"),
        ("etcdPrefix", "/a/"),
        ("etcdPrefix", "/"),
        ("etcdPrefix", "/a//b"),
        ("masterLeaseTime", "1"),
        ("masterLeaseTime", "0"),
        ("masterLeaseTime", "-4"),
        ("haMaxTimeSlaveNotCatchup", "10"),
    ],
)
def test_what_cannot_be_is_refused(key, value):
    with pytest.raises(ConfigError, match=key):
        parse(**{key: value})
