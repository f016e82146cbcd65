"""The check of requests by users and policies."""

import pytest

from sparrowmq.auth.policies import Rules, parse_entry
from sparrowmq.auth.user_check import _ACTIONS_ON_NAMED, _READING_CODES, _SUPER_USER_CODES, UserCheck, UserRules
from sparrowmq.auth.users import User
from sparrowmq.errors import AccessDenied, DenialKind
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.requests import admin_headers as admin
from sparrowmq.protocol.requests import headers
from sparrowmq.protocol.requests.request_table import BY_CODE, ROWS, Access, Role
from sparrowmq.protocol.signature import SigningKey
from tests.auth.asked import beat, locks, pull, received, send
from tests.traced import kept_bytes

ALICE, ROOT = ("alice", "secretOfAlice"), ("root", "secretOfRoot")
ALLOWED = ""
MAIN = UserRules("main")


def check_for(*entries, rules=MAIN, **fields):
    """A check that knows root, and alice with entries such as `Topic:orders Pub` or `Topic:orders Pub Deny`."""
    parsed = []
    for text in entries:
        resource, actions, *rest = text.split()
        source = [each for each in rest if each[0].isdigit()]
        parsed.append(parse_entry(resource, actions.split(","), source, "Deny" if "Deny" in rest else "Allow"))
    users = {
        "alice": User("alice", SigningKey(ALICE[1]), rules=Rules(parsed), **fields),
        "root": User("root", SigningKey(ROOT[1]), is_admin=True),
    }
    return UserCheck(rules, lambda: users, lambda offset: "orders" if offset == 100 else None)


def asked(check, request, body=b"", who=ALICE, **received_with):
    """The resource that is denied, the whole reason for other denials, "" if it is allowed."""
    call = received(request, body, who, **received_with)
    try:
        check(*call)
    except AccessDenied as error:
        assert error.code == 16
        _, found, rest = error.remark.partition("no permission to access ")
        return rest.partition(" ")[0] if found else error.remark
    return ALLOWED


@pytest.mark.parametrize(
    ("request_", "body", "needed"),
    [
        (send("orders"), b"", ["Topic:orders Pub"]),
        (send("%RETRY%billing", "billing"), b"", ["Group:billing Sub"]),
        (pull("orders", "billing"), b"", ["Topic:orders Sub", "Group:billing Sub"]),
        (headers.HeartBeat(), beat(("billing", "orders")), ["Group:billing Sub", "Topic:orders Sub"]),
        (headers.LockBatchMq(), locks("billing", "orders"), ["Group:billing Sub", "Topic:orders Sub"]),
        (headers.GetMaxOffset("orders", 0), b"", ["Topic:orders Pub"]),
        (headers.GetMaxOffset("orders", 0), b"", ["Topic:orders Get"]),
        (headers.ViewMessage(100), b"", ["Topic:orders Get"]),
        (headers.ViewMessage(100), b"", ["Topic:orders Sub"]),
        (headers.QueryConsumerOffset("billing", "orders", 0), b"", ["Topic:orders Get", "Group:billing Sub"]),
        (
            headers.UpdateConsumerOffset("billing", "orders", 0, 1),
            b"",
            ["Topic:orders Sub", "Group:billing Update"],
        ),
        (admin.UpdateAndCreateTopic("orders", 4, 4, 6), b"", ["Topic:orders Create"]),
        (admin.DeleteTopic("orders"), b"", ["Topic:orders Delete"]),
        (admin.DeleteTopic("%RETRY%billing"), b"", ["Group:billing Delete"]),
        (admin.DeleteSubscriptionGroup("billing"), b"", ["Group:billing Delete"]),
        (admin.GetTopicStats("orders"), b"", ["Topic:orders Get"]),
        (
            admin.ResetOffset("orders", "billing", 0, True),
            b"",
            ["Topic:orders Update", "Group:billing Update"],
        ),
        (admin.GetConsumeStats("billing", "orders"), b"", ["Topic:orders Get", "Group:billing Get"]),
        (admin.GetBrokerConfig(), b"", ["Cluster:main Get"]),
        (admin.UpdateBrokerConfig(), b"", ["Cluster:main Update"]),
        (admin.UpdateAndCreateSubscriptionGroup(), b"{}", ["Cluster:main Update"]),
        (admin.GetAllTopicConfig(), b"", ["Cluster:main Get"]),
        (admin.GetTopicStats(""), b"", ["Cluster:main Update"]),
        (admin.CloneGroupOffset("a", "billing", "orders", False), b"", ["Cluster:main Update"]),
    ],
)
def test_a_request_needs_each_of_these_and_no_more(request_, body, needed):
    assert asked(check_for(*needed), request_, body) == ALLOWED
    for missing in needed:
        others = [each for each in needed if each is not missing]
        assert asked(check_for(*others), request_, body) == missing.split()[0]
        assert asked(check_for(*needed, f"{missing} Deny"), request_, body) == missing.split()[0]
        resource = missing.split()[0]
        assert asked(check_for(*others, f"{resource} List"), request_, body) == resource
        assert asked(check_for(*others, f"{missing} 10.0.0.0/8"), request_, body) == resource
        near = check_for(*others, f"{missing} 10.0.0.0/8")
        assert asked(near, request_, body, address="10.1.2.3:5000") == ALLOWED
    assert asked(check_for(), request_, body, who=ROOT) == ALLOWED


def test_a_request_without_a_known_user_or_its_signature_is_denied():
    check = check_for("* All")
    assert asked(check, send("orders"), who=None) == "username cannot be null."
    assert asked(check, send("orders"), who=("bob", "secret")) == "User:bob is not found."
    assert "check signature failed" in asked(check, send("orders"), who=("alice", ROOT[1]))
    assert "check signature failed" in asked(check, pull("orders", "g"), who=("alice", ROOT[1]))
    assert asked(check_for("* All", is_enabled=False), send("orders")) == "User:alice is disabled."


def test_only_the_user_that_signed_becomes_the_principal():
    check = check_for("Topic:orders Pub")
    call = received(send("orders"), b"", ALICE)
    check(*call)
    assert call[0].principal.access_key == "alice"
    for who in (("alice", ROOT[1]), ("bob", ROOT[1]), None):
        forged = received(send("orders"), b"", who)
        forged[0].principal = check._by_name()["root"]  # of the request before on this connection
        with pytest.raises(AccessDenied) as caught:
            check(*forged)
        assert forged[0].principal is None
        assert caught.value.kind in (DenialKind.WRONG_SIGNATURE, DenialKind.UNKNOWN_ACCOUNT)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"b":"orders"', b'"b":"orderX"'),
        (b"the body", b"the bodY"),
        (b'"AccessKey":"alice"', b'"AccessKey":"root"'),
        (b'"Signature":"', b'"Signature":"A'),
    ],
)
def test_a_frame_that_was_changed_on_the_way_is_denied(before, after):
    def change(frame):
        assert before in frame
        frame = frame.replace(before, after, 1)
        body = frame.index(b"the bod")
        header = frame[8:body]
        return (len(frame) - 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header + frame[body:]

    check = check_for("* All")
    assert "check signature failed" in asked(check, send("orders"), b"the body", changed=change)


def test_decisions_about_names_that_no_topic_can_have_are_not_kept():
    check = check_for("* All")
    with kept_bytes() as kept:
        for number in range(20):
            assert asked(check, send("t" * 100_000 + str(number))) == ALLOWED
    assert kept() < 1_000_000


def test_decisions_are_forgotten_when_users_change():
    users = {"alice": User("alice", SigningKey(ALICE[1]), rules=Rules([parse_entry("*", ["All"], [], "Allow")]))}
    held = [users]
    check = UserCheck(UserRules("main"), lambda: held[0], lambda offset: None)
    assert asked(check, send("orders")) == asked(check, send("orders")) == ALLOWED
    held[0] = {"alice": User("alice", SigningKey(ALICE[1]))}
    assert asked(check, send("orders")) == "Topic:orders"


def test_a_listed_request_needs_no_policy_and_on_both_lists_no_signature():
    code = int(RequestCode.GET_BROKER_RUNTIME_INFO)
    no_policy = check_for(rules=UserRules("main", authorization_codes=frozenset({code})))
    assert asked(no_policy, admin.GetBrokerRuntime()) == ALLOWED
    assert asked(no_policy, admin.GetBrokerRuntime(), who=None) == "username cannot be null."
    assert asked(no_policy, admin.GetBrokerConfig()) == "Cluster:main"
    no_signature = check_for(rules=UserRules("main", frozenset({code}), frozenset({code})))
    assert asked(no_signature, admin.GetBrokerRuntime(), who=None) == ALLOWED
    assert "check signature failed" in asked(no_signature, admin.GetBrokerRuntime(), who=("root", "wrong"))
    only = check_for(rules=UserRules("main", frozenset({code})))
    assert asked(only, admin.GetBrokerRuntime(), who=None) == "username cannot be null."


def test_every_request_for_administrators_needs_an_action_that_a_plain_user_lacks():
    theirs = [row for row in ROWS if row.served_by & Role.BROKER and row.access in (Access.ADMIN, Access.CLUSTER)]
    check = UserCheck(UserRules("main"), dict, lambda offset: None)
    assert len(theirs) > 40
    for row in theirs:
        if row.code in _ACTIONS_ON_NAMED:
            assert row.topic or row.group, f"{row.name} names nothing, so it would be allowed to every user"
        elif row.code not in _SUPER_USER_CODES:
            _, (resource,) = check._administrator_action(row, admin.GetBrokerConfig())
            assert str(resource) == "Cluster:main"


def test_the_tables_name_only_requests_for_administrators():
    for code in {*_ACTIONS_ON_NAMED, *_READING_CODES, *_SUPER_USER_CODES}:
        row = BY_CODE[code]
        assert row.served_by & (Role.BROKER | Role.NAMESRV) and row.access in (
            Access.ADMIN,
            Access.CLUSTER,
        ), row.name
