import pytest

from sparrowmq.console.console_settings import ConsoleSettings
from sparrowmq.console.users import Accounts
from sparrowmq.errors import ConfigError

NOBODY = Accounts({})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_the_loopback_needs_nothing(host):
    assert ConsoleSettings(NOBODY, host=host).port == 8082


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "mq.example.org"])
def test_an_address_that_others_reach_needs_encryption_or_that_it_is_meant(host):
    with pytest.raises(ConfigError, match="--certificate and --key, or --insecure"):
        ConsoleSettings(NOBODY, host=host)
    ConsoleSettings(NOBODY, host=host, insecure=True)
    ConsoleSettings(NOBODY, host=host, certificate="a", key="b")


def test_metrics_where_others_reach_them_have_to_be_meant():
    with pytest.raises(ConfigError, match="metrics need no log-in"):
        ConsoleSettings(NOBODY, metrics_port=0, metrics_host="0.0.0.0")
    ConsoleSettings(NOBODY, metrics_port=0, metrics_host="0.0.0.0", insecure=True)


def test_half_of_https_is_told():
    with pytest.raises(ConfigError, match="both"):
        ConsoleSettings(NOBODY, certificate="a")


@pytest.mark.parametrize("proxy", ["proxy.example.org", "10.0.0.1/24", "*", ""])
def test_a_trusted_proxy_is_an_address_or_a_network(proxy):
    with pytest.raises(ConfigError, match="give the address of the proxy, or a network"):
        ConsoleSettings(NOBODY, trusted_proxy=["10.0.0.0/24", proxy])
    ConsoleSettings(NOBODY, trusted_proxy=["10.0.0.0/24", "::1"])


@pytest.mark.parametrize("prefix", ["mq", "/mq/", "//mq", "/"])
def test_a_prefix_is_a_path(prefix):
    with pytest.raises(ConfigError, match="write it as /mq"):
        ConsoleSettings(NOBODY, prefix=prefix)
