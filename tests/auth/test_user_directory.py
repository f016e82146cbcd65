"""Principals from stored users, and users from the accounts of 4.x."""

import logging

import pytest

from sparrowmq.auth.document import Document
from sparrowmq.auth.first_users import users_from_accounts
from sparrowmq.auth.policies import Action, Resource, ResourceKind
from sparrowmq.auth.users import (
    complete_user,
    merge_policies,
    principals,
    remove_policies,
)
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.requests.user_headers import Policy, PolicyRule, UserEntry
from tests.auth.asked import SAMPLE

ORDERS = Resource(ResourceKind.TOPIC, "orders")
PUB_ORDERS = Policy("Custom", [PolicyRule("Topic:orders", ["Pub"], None, "Allow")])


def one(user, *policies, is_unlimited=False):
    return principals({"alice": user}, {"alice": list(policies)}, is_unlimited=is_unlimited)["alice"]


def test_a_stored_user_becomes_a_principal_with_its_policies():
    alice = one(UserEntry("alice", "secret", "Normal", "enable"), PUB_ORDERS)
    assert alice.access_key == "alice" and not alice.is_admin and "alice" in alice.colleagues
    assert alice.may_do(Action.PUB, ORDERS, b"") and not alice.may_do(Action.SUB, ORDERS, b"")
    assert one(UserEntry("alice", "secret", "super", "enable")).is_admin
    assert one(UserEntry("alice", "secret", "Normal"), is_unlimited=True).may_do(Action.SUB, ORDERS, b"")


@pytest.mark.parametrize("password", [None, ""])
def test_a_user_without_a_password_may_do_nothing(password):
    assert not one(UserEntry("alice", password, "Super", "enable")).is_enabled


@pytest.mark.parametrize("status", ["disable", "DISABLE"])
def test_a_user_that_is_switched_off_is_so_in_any_spelling(status):
    assert not one(UserEntry("alice", "secret", "Super", status)).is_enabled


def test_broken_policies_deny_everything_and_are_logged(caplog):
    broken = Policy("Custom", [PolicyRule("Queue:orders", ["Pub"], None, "Deny")])
    with caplog.at_level(logging.ERROR):
        alice = one(UserEntry("alice", "secret", "Normal", "enable"), PUB_ORDERS, broken)
    assert not alice.may_do(Action.PUB, ORDERS, b"")
    assert "user alice may do nothing until its policies are fixed" in caplog.text


def test_absent_members_are_the_former_or_the_usual_ones():
    made = complete_user(UserEntry("alice", "secret", "SUPER"))
    assert made == UserEntry("alice", "secret", "Super", "enable")
    assert complete_user(UserEntry("alice", user_status="Disable"), made) == UserEntry(
        "alice", "secret", "Super", "disable"
    )
    assert complete_user(UserEntry("alice", "secret")).user_type == "Normal"


@pytest.mark.parametrize("name", ["", "a b", "a\n", "a" * 256, "User:a", "ä"])
def test_an_invalid_name_is_refused(name):
    with pytest.raises(ConfigError, match="is invalid"):
        complete_user(UserEntry(name, "secret", "Normal", "enable"))


def test_entries_are_merged_by_kind_and_resource():
    more = Policy(None, [PolicyRule("topic:orders", ["sub", "get"], [" 10.0.0.1 "], "DENY")])
    default = Policy("default", [PolicyRule("*", ["All"], None, "Allow")])
    assert merge_policies([PUB_ORDERS], [default, more]) == [
        Policy("Custom", [PolicyRule("Topic:orders", ["Sub", "Get"], ["10.0.0.1"], "Deny")]),
        Policy("Default", [PolicyRule("*", ["All"], None, "Allow")]),
    ]
    assert merge_policies([], []) == []


def test_entries_are_removed_by_kind_and_resource():
    both = Policy("Custom", [*PUB_ORDERS.entries, PolicyRule("Group:*", ["Sub"], None, "Allow")])
    default = Policy("Default", PUB_ORDERS.entries)
    assert remove_policies([both, default], None, None) == []
    assert remove_policies([both, default], "custom", None) == [default]
    assert remove_policies([both, default], None, "topic:orders") == [Policy("Custom", both.entries[1:])]
    assert remove_policies([both, default], "Default", "Topic:orders") == [both]
    with pytest.raises(ConfigError):
        remove_policies([both], "Mine", None)


def test_accounts_of_4_x_become_users_with_the_same_permissions(tmp_path):
    found = {user.username: (user, policies) for user, policies in users_from_accounts([Document(SAMPLE, tmp_path)])}
    user, policies = found["RocketMQ"]
    assert user == UserEntry("RocketMQ", "12345678", "Normal", "enable")
    alice = principals({"a": user}, {"a": policies}, is_unlimited=False)["a"]

    def may(kind, name):
        return [each.value for each in (Action.PUB, Action.SUB) if alice.may_do(each, Resource(kind, name), b"")]

    assert may(ResourceKind.TOPIC, "topicA") == [] and may(ResourceKind.TOPIC, "topicB") == ["Pub", "Sub"]
    assert may(ResourceKind.TOPIC, "topicC") == ["Sub"] and may(ResourceKind.TOPIC, "other") == []
    assert may(ResourceKind.GROUP, "groupA") == [] and may(ResourceKind.GROUP, "groupC") == ["Sub"]
    assert may(ResourceKind.GROUP, "other") == ["Sub"]
    assert found["rocketmq2"][0].user_type == "Super"
