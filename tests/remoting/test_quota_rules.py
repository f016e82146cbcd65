import pytest

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.errors import ConfigError
from sparrowmq.remoting.quota_rules import QUOTAS, Rate, parse
from sparrowmq.settings.setting_kinds import Unreadable
from sparrowmq.settings.settings import build

TEXT = "account:billing requests=1000/s bytes=10MB/s; address:10.0.0.0/8 connections=100; topic:* bytes=5m/m"


def test_rules_are_read_and_written():
    account, address, topic = parse(TEXT)
    assert account.rates == {"requests": Rate(1000, 1), "bytes": Rate(10 << 20, 1)}
    assert (str(address.network), address.counts) == ("10.0.0.0/8", {"connections": 100})
    assert (topic.name, topic.rates) == ("*", {"bytes": Rate(5 << 20, 60)})
    assert QUOTAS.render(parse(TEXT)) == TEXT
    assert parse(" ; ") == ()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("acount:billing requests=1/s", "'acount:billing' is not the start of a rule; write account:NAME"),
        ("account: requests=1/s", "'account:' is not the start of a rule"),
        ("account:billing", "account:billing has no limit"),
        ("account:billing request=1/s", "'request=1/s': account:billing can have the limits requests, bytes"),
        ("account:billing requests=1000", "write it as requests=1000/s"),
        ("account:billing requests=1k/s", "write it as requests=1000/s"),
        ("account:billing bytes=10MB", "write it as bytes=10MB/s"),
        ("account:billing bytes=10XB/s", "write it as bytes=10MB/s"),
        ("account:billing connections=1/s", "write it as connections=100"),
        ("account:billing requests=0/s", "a rate must be at least 1"),
        ("topic:orders connections=1", "topic:orders can have the limits requests, bytes, held"),
        ("address:10.0.0.300 held=1", "'10.0.0.300' is not an address"),
        ("topic:a held=1; topic:a bytes=1/s", "topic:a has two rules"),
    ],
)
def test_a_typo_is_a_clear_error(text, error):
    with pytest.raises(Unreadable, match=error):
        parse(text)
    with pytest.raises(ConfigError, match=f"quotas is wrong: .*{error}"):
        build(BrokerSettings, {"quotas": text}, "broker.conf")
