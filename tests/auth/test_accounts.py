"""Accounts: what stands in a file, and what they may do by it."""

from typing import Any

import pytest

from sparrowmq.auth.accounts import parse_account, unknown_words
from sparrowmq.auth.users import PUB, SUB
from sparrowmq.errors import ConfigError

PERMS = {"DENY": 0, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}


def account(**fields: Any):
    return parse_account({"accessKey": "RocketMQ", "secretKey": "12345678"} | fields)


@pytest.mark.covers("S-ACL-03")
@pytest.mark.parametrize("key", ["accessKey", "secretKey"])
@pytest.mark.parametrize("value", ["", "123456", "密钥密钥密钥", None])
def test_a_key_needs_more_than_six_characters(key, value):
    with pytest.raises(ConfigError, match=f"its {key} has . characters; it must have more than 6"):
        account(**{key: value})
    assert account(**{key: "1234567"})


def test_what_is_wrong_is_told_without_the_secret():
    with pytest.raises(ConfigError) as caught:
        account(secretKey="s3cr3t")
    assert "s3cr3t" not in str(caught.value) and "'RocketMQ'" in str(caught.value)
    assert "12345678" not in repr(account())


@pytest.mark.covers("S-ACL-05")
def test_what_is_not_listed_has_the_usual_permission_which_is_none_if_not_given():
    usual = account(defaultTopicPerm="PUB", defaultGroupPerm="SUB")
    assert usual.may("orders", PUB) and not usual.may("orders", SUB)
    assert usual.may("%RETRY%billing", SUB) and not usual.may("%RETRY%billing", PUB)
    for resource in ("orders", "%RETRY%billing"):
        assert not account().may(resource, PUB) and not account().may(resource, SUB)


@pytest.mark.covers("S-ACL-06")
@pytest.mark.parametrize(
    ("word", "allowed"),
    [*PERMS.items(), ("pub", 0), ("ALL", 0), ("PUB | SUB", 0), (" PUB ", PUB)],
)
def test_a_listed_permission_is_one_of_five_words_and_any_other_denies(word, allowed):
    listed = account(
        topicPerms=[f"orders={word}"],
        groupPerms=[f"billing={word}"],
        defaultTopicPerm="PUB|SUB",
        defaultGroupPerm="PUB|SUB",
    )
    for resource in ("orders", "%RETRY%billing"):
        assert listed.may(resource, PUB) == bool(allowed & PUB)
        assert listed.may(resource, SUB) == bool(allowed & SUB)
    assert listed.may("others", PUB) and listed.may("%RETRY%others", SUB)


def test_a_groups_permission_is_that_of_its_retry_topic():
    one = account(groupPerms=["billing=SUB"])
    assert one.may("%RETRY%billing", SUB) and not one.may("billing", SUB)


def test_words_that_are_no_permission_are_found():
    fields = {"defaultTopicPerm": "ALL", "topicPerms": ["a=PUB", "b=pub"], "groupPerms": ["c=SUB"]}
    assert unknown_words(fields) == ["ALL", "pub"]


def test_an_administrator_may_everything_unless_permissions_are_listed():
    assert account(admin="true").may("orders", PUB) and account(admin="yes").may("%RETRY%billing", SUB)
    listed = account(admin="true", topicPerms=["orders=PUB"])
    assert listed.is_admin and listed.may("orders", PUB)
    assert not listed.may("orders", SUB) and not listed.may("others", PUB)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topicPerms": ["orders"]}, "topicPerms has 'orders'"),
        ({"topicPerms": ["a=b=PUB"]}, "write name=PERM"),
        ({"groupPerms": "billing=SUB"}, "groupPerms must be a list"),
        ({"groupPerms": [["billing"]]}, "groupPerms must be a list"),
        ({"admin": "perhaps"}, "admin is 'perhaps'"),
        ({"whiteRemoteAddress": "10.*"}, "'10.*' is no address"),
        ({"secretKey": ["12345678"]}, "secretKey is a list"),
    ],
)
def test_an_account_that_says_something_else_is_refused(fields, words):
    with pytest.raises(ConfigError) as caught:
        account(**fields)
    assert words in str(caught.value)


def test_an_accounts_addresses_are_those_of_its_pattern():
    assert account(whiteRemoteAddress="10.0.0.*").addresses.has(bytes([10, 0, 0, 9]))
    assert not account(whiteRemoteAddress="").addresses and not account().addresses


def test_brokers_and_certificates_are_fields_of_ours():
    assert not account().is_broker and account().certificate == ""
    given = account(broker="true", certificate=" orders-service ")
    assert given.is_broker and given.certificate == "orders-service" and not given.is_admin
    with pytest.raises(ConfigError, match="broker is 'perhaps'"):
        account(broker="perhaps")


@pytest.mark.parametrize("names", [[], None, ""])
def test_an_empty_list_of_broker_names_is_refused_as_it_would_allow_every_name(names):
    with pytest.raises(ConfigError, match="'RocketMQ': brokerNames has no name"):
        account(broker="true", brokerNames=names)
    assert account(broker="true").broker_names == frozenset()
