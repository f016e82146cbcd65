"""Users of ACL 2.0, and the question that both ACLs answer."""

import ipaddress

import pytest

from sparrowmq.auth.accounts import parse_account
from sparrowmq.auth.policies import Action, Resource, ResourceKind, Rules, parse_entry
from sparrowmq.auth.users import PUB, SUB, User, principals
from sparrowmq.protocol.requests.user_headers import UserEntry
from sparrowmq.protocol.signature import SigningKey

HERE = ipaddress.ip_address("10.1.2.3").packed
HOST = HERE + bytes(4)
TOPIC, GROUP = Resource(ResourceKind.TOPIC, "orders"), Resource(ResourceKind.GROUP, "billing")
CLUSTER = Resource(ResourceKind.CLUSTER, "main")
KEY = SigningKey("a password")
OWN = ["rmq_sys_sparrow_state", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "main_REPLY_TOPIC", ""]


def user(*entries, **fields):
    return User("app", KEY, rules=Rules([parse_entry(*each) for each in entries]), **fields)


def unlimited(is_enabled=True):
    """A user with authorizationEnabled=false."""
    entry = UserEntry("app", "a password", "Normal", "enable" if is_enabled else "disable")
    return principals({"app": entry}, {}, is_unlimited=True)["app"]


def allow(resource, *actions, decision="Allow", ips=()):
    return resource, actions, ips, decision


@pytest.mark.parametrize("resource", [TOPIC, GROUP, CLUSTER])
def test_a_user_without_policies_may_do_nothing(resource):
    assert not any(user().may_do(action, resource, HERE) for action in Action)


def test_a_super_user_may_do_everything_until_it_is_switched_off():
    for name in ("orders", *OWN):
        assert user(is_admin=True).may_do(Action.SUB, Resource(ResourceKind.TOPIC, name), HERE)
        off = user(is_admin=True, is_enabled=False)
        assert not off.may_do(Action.SUB, Resource(ResourceKind.TOPIC, name), HERE)


def test_a_user_that_is_switched_off_may_do_nothing():
    on = user(allow("*", "All"))
    assert on.may_do(Action.PUB, TOPIC, HERE)
    assert not user(allow("*", "All"), is_enabled=False).may_do(Action.PUB, TOPIC, HERE)
    assert not unlimited(is_enabled=False).may_do(Action.PUB, TOPIC, HERE)


@pytest.mark.parametrize("name", OWN)
def test_no_policy_gives_the_brokers_own_topics_to_others(name):
    for some in (user(allow("*", "All"), allow(f"Topic:{name}*", "All")), unlimited()):
        assert some.may_do(Action.SUB, TOPIC, HERE)
        assert not some.may_do(Action.SUB, Resource(ResourceKind.TOPIC, name), HERE)
        assert not some.may_do(Action.SUB, Resource(ResourceKind.GROUP, "CID_RMQ_SYS_TRANS"), HERE)


def test_every_user_may_write_traces_unless_an_entry_denies_it():
    traces = Resource(ResourceKind.TOPIC, "RMQ_SYS_TRACE_TOPIC")
    assert user().may_do(Action.PUB, traces, HERE)
    assert not user().may_do(Action.SUB, traces, HERE)
    assert not user(allow("Topic:*", "Pub", decision="Deny")).may_do(Action.PUB, traces, HERE)


def test_dead_letters_need_the_permission_of_their_group_too():
    letters = Resource(ResourceKind.TOPIC, "%DLQ%billing")
    assert not user(allow("Topic:*", "Sub")).may_do(Action.SUB, letters, HERE)
    assert user(allow("Topic:*", "Sub"), allow("Group:billing", "Sub")).may_do(Action.SUB, letters, HERE)


def test_handlers_ask_a_user_as_they_ask_an_account():
    some = user(allow("Topic:orders", "Pub", ips=["10.1.0.0/16"]), allow("Group:billing", "Sub"))
    assert some.may_from(HOST, "orders", PUB)
    assert some.may_from(HOST, "orders", PUB | SUB)
    assert not some.may_from(HOST, "orders", SUB)
    assert not some.may_from(bytes(8), "orders", PUB)
    assert some.may("%RETRY%billing", SUB) and not some.may("%RETRY%other", SUB)
    assert "password" not in repr(some)


def test_an_account_of_4_x_answers_the_same_question():
    fields = {
        "accessKey": "RocketMQ",
        "secretKey": "12345678",
        "topicPerms": ["orders=PUB"],
        "groupPerms": ["billing=SUB"],
    }
    account, admin = (
        parse_account(fields),
        parse_account(fields | {"admin": "true", "topicPerms": [], "groupPerms": []}),
    )
    assert account.may("orders", PUB, HERE) and not account.may("orders", SUB, HERE)
    assert account.may("orders", PUB | SUB, HERE) and account.may("%RETRY%billing", SUB, HERE)
    for action in Action:
        assert not account.may_do(action, CLUSTER, HERE)
        assert admin.may_do(action, CLUSTER, HERE) and admin.may_do(action, TOPIC, HERE)
    assert not account.may_do(Action.DELETE, TOPIC, HERE)


def test_an_accounts_own_addresses_count_for_topics_and_not_for_the_cluster():
    account = parse_account({"accessKey": "RocketMQ", "secretKey": "12345678", "whiteRemoteAddress": "10.1.2.*"})
    assert account.may("orders", PUB, HERE) and account.may("%RETRY%billing", SUB, HERE)
    assert not account.may("orders", PUB, bytes(4)) and not account.may("orders", PUB)
    assert not account.may_do(Action.UPDATE, CLUSTER, HERE)
    everywhere = parse_account({"accessKey": "RocketMQ", "secretKey": "12345678", "whiteRemoteAddress": "*"})
    assert everywhere.may("orders", PUB, HERE) and not everywhere.may("orders", PUB)


def test_traces_may_be_written_by_an_account_whatever_it_lists():
    fields = {"accessKey": "RocketMQ", "secretKey": "12345678", "topicPerms": ["RMQ_SYS_TRACE_TOPIC=DENY"]}
    assert parse_account(fields).may("RMQ_SYS_TRACE_TOPIC", PUB)
    assert not parse_account(fields).may("RMQ_SYS_TRACE_TOPIC", SUB)


def test_decisions_are_kept_for_a_limited_number_of_names():
    some = user(allow("Topic:orders", "Pub"))
    for number in range(3000):
        assert not some.may(f"orders-{number}", PUB, HERE)
    assert some.may("orders", PUB, HERE) and len(some._decisions) <= 1000


@pytest.mark.parametrize(
    ("entries", "may"),
    [
        ([], False),
        ([allow("Topic:*", "Pub", decision="Deny")], False),
        ([allow("Topic:*", "Sub")], False),
        ([allow("Topic:orders", "Pub")], True),
        ([allow("*", "All")], True),
    ],
)
def test_a_user_may_publish_if_an_entry_allows_it_for_some_topic(entries, may):
    assert user(*entries).may_publish == may
    assert not user(*entries, is_enabled=False).may_publish
    assert user(*entries, is_admin=True).may_publish and unlimited().may_publish


@pytest.mark.parametrize(
    ("fields", "may"),
    [
        ({}, False),
        ({"defaultTopicPerm": "PUB"}, True),
        ({"defaultTopicPerm": "SUB", "topicPerms": ["orders=SUB"]}, False),
        ({"topicPerms": ["orders=PUB"]}, True),
        ({"admin": "true"}, True),
        ({"whiteRemoteAddress": "10.1.2.*"}, True),
    ],
)
def test_an_account_may_publish_if_it_may_send_to_some_topic(fields, may):
    account = parse_account({"accessKey": "app-one", "secretKey": "12345678", **fields})
    assert account.may_publish == may
