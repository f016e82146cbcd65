import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.remoting.listener import check_not_public, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_this_machine_alone_reaches_loopback(host):
    assert is_loopback(host)
    check_not_public(host, insecure=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "192.168.1.5", "203.0.113.9", "broker-a.example", ""])
def test_a_public_address_needs_the_operators_word(host):
    with pytest.raises(ConfigError, match="--insecure"):
        check_not_public(host, insecure=False)
    check_not_public(host, insecure=True)
