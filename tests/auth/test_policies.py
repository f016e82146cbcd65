"""The rules of ACL 2.0: which entry decides."""

import ipaddress

import pytest

from sparrowmq.auth.policies import (
    Action,
    Decision,
    PolicyKind,
    Resource,
    ResourceKind,
    Rules,
    parse_entry,
    parse_pattern,
    parse_policy_kind,
)
from sparrowmq.errors import ConfigError

HERE = ipaddress.ip_address("10.1.2.3").packed
ORDERS = Resource(ResourceKind.TOPIC, "orders")


def entry(resource, decision="Allow", actions=("Pub",), ips=()):
    return parse_entry(resource, actions, ips, decision)


def decided(*entries, action=Action.PUB, resource=ORDERS, source=HERE, default=()):
    found = Rules(entries, default).decision(action, resource, source)
    return found.value if found else None


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("Topic:orders", True),
        ("topic:orders", True),
        ("Topic:order", False),
        ("Topic:order*", True),
        ("Topic:orders*", True),
        ("Topic:bills*", False),
        ("Topic:*", True),
        ("Group:orders", False),
        ("Group:*", False),
        ("Cluster:*", False),
        ("*", True),
    ],
)
def test_a_pattern_fits_a_name_a_prefix_or_any(pattern, fits):
    assert parse_pattern(pattern).fits(ORDERS) is fits
    assert str(parse_pattern(pattern)).lower() == pattern.lower()


@pytest.mark.parametrize("text", ["", "orders", "Topic:", "Topic", ":orders", "Queue:a", "Topic:a*b", "Topic:**"])
def test_an_invalid_resource_is_refused_with_examples(text):
    with pytest.raises(ConfigError, match=r"is not a resource; write Topic:orders"):
        parse_pattern(text)


def test_without_a_fitting_entry_nothing_is_decided():
    assert decided() is None
    assert decided(entry("Topic:orders", actions=["Sub"])) is None
    assert decided(entry("Topic:bills")) is None


def test_the_closest_resource_decides_in_any_order():
    rules = [
        entry("Topic:orders"),
        entry("Topic:order*", "Deny"),
        entry("Topic:o*"),
        entry("Topic:*", "Deny"),
    ]
    for some in (rules, rules[::-1]):
        assert decided(*some) == "Allow"
        assert decided(*some, resource=Resource(ResourceKind.TOPIC, "order")) == "Deny"
        assert decided(*some, resource=Resource(ResourceKind.TOPIC, "other")) == "Allow"
        assert decided(*some, resource=Resource(ResourceKind.TOPIC, "bills")) == "Deny"


def test_a_name_is_closer_than_a_prefix_of_the_same_length():
    assert decided(entry("Topic:orders*", "Deny"), entry("Topic:orders")) == "Allow"


def test_deny_wins_among_equally_close_entries():
    for pair in (
        [entry("Topic:orders"), entry("Topic:orders", "Deny")],
        [entry("*", "Deny"), entry("Topic:*")],
    ):
        assert decided(*pair) == decided(*pair[::-1]) == "Deny"


def test_custom_decides_before_default_even_if_default_is_closer():
    default = [entry("Topic:orders", "Deny"), entry("Topic:bills")]
    assert decided(entry("*"), default=default) == "Allow"
    assert decided(entry("Topic:o*"), resource=Resource(ResourceKind.TOPIC, "bills"), default=default) == "Allow"


def test_an_entry_counts_only_for_its_actions_and_addresses():
    both = entry("Topic:orders", actions=["pub", "Get"], ips=["10.1.0.0/16", "192.168.1.7"])
    assert decided(both) == decided(both, action=Action.GET) == "Allow"
    assert decided(both, action=Action.SUB) is None
    assert decided(both, source=ipaddress.ip_address("10.2.0.1").packed) is None
    assert decided(both, source=ipaddress.ip_address("192.168.1.7").packed) == "Allow"
    assert decided(both, source=ipaddress.ip_address("::ffff:10.1.9.9").packed) == "Allow"
    assert decided(both, source=ipaddress.ip_address("::a01:203").packed) is None
    assert decided(both, source=b"") is None
    for action in Action:
        assert decided(entry("*", actions=["All"]), action=action) == "Allow"


@pytest.mark.parametrize("ips", [["10.0.0"], [""], ["host"], ["10.0.0.0/33"], ["10.0.0.*"]])
def test_an_invalid_address_is_refused(ips):
    with pytest.raises(ConfigError, match="is not a source address"):
        entry("Topic:orders", ips=ips)


def test_other_words_are_refused_with_those_that_are_known():
    with pytest.raises(ConfigError, match="'Write' is not a valid action; write one of All, Pub, Sub"):
        entry("Topic:orders", actions=["Write"])
    with pytest.raises(ConfigError, match="has no action"):
        entry("Topic:orders", actions=[])
    with pytest.raises(ConfigError, match="'Perhaps' is not a valid decision; write one of Allow, Deny"):
        entry("Topic:orders", "Perhaps")
    with pytest.raises(ConfigError, match="is not a valid policy type"):
        parse_policy_kind("Mine")
    assert parse_policy_kind(None) is PolicyKind.CUSTOM
    assert parse_policy_kind("DEFAULT") is PolicyKind.DEFAULT
    assert entry("Topic:orders", "DENY").decision is Decision.DENY
