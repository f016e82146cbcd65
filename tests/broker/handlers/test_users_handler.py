"""Users and policies over the wire: codes 3001 to 3010."""

from typing import Any

import pytest

from sparrowmq.errors import AccessDenied, RemoteError
from sparrowmq.protocol.requests import admin_headers as admin_requests
from sparrowmq.protocol.requests.user_headers import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    Policy,
    PolicyRule,
    UpdateAcl,
    UpdateUser,
    UserEntry,
    UserPolicies,
    decode_policies,
    decode_users,
)
from tests.broker.live import live_broker, send_request
from tests.broker.test_access_control import Pools

ADMIN, ALICE = ("admin", "secretOfAdmin"), ("alice", "secretOfAlice")
SETTINGS: dict[str, Any] = {
    "authentication": True,
    "authorization": True,
    "cluster": "main",
    "first_user": '{"username":"admin","password":"secretOfAdmin"}',
}


def policies(*rules, kind="Custom", subject="User:alice"):
    entries = [PolicyRule(resource, list(actions), None, decision) for resource, actions, decision in rules]
    return UserPolicies(subject, [Policy(kind, entries)]).encode()


@pytest.fixture
async def who(tmp_path):
    async with live_broker(tmp_path / "stores", **SETTINGS) as live:
        people = Pools(live.broker.address)
        yield people
        people.close()


@pytest.fixture
async def admin(who):
    return await who.session(*ADMIN)


@pytest.fixture
async def alice(who, admin):
    await admin.call(CreateUser("alice"), UserEntry(password=ALICE[1]).encode())
    return await who.session(*ALICE)


async def denied(session, request, body=b""):
    with pytest.raises(AccessDenied) as caught:
        await session.call(request, body)
    assert caught.value.code == 16
    return caught.value.remark


async def test_a_user_is_created_shown_changed_and_deleted(who, admin):
    one = await who.session(*ALICE)
    assert "User:alice is not found" in await denied(one, send_request())
    await admin.call(CreateUser("alice"), UserEntry(password=ALICE[1]).encode())
    shown = UserEntry.decode((await admin.call(GetUser("alice"))).body)
    assert shown == UserEntry("alice", ALICE[1], "Normal", "enable")
    with pytest.raises(RemoteError, match="The user alice exists"):
        await admin.call(CreateUser("alice"), UserEntry(password="other").encode())
    await admin.call(UpdateUser("alice"), UserEntry(user_status="DISABLE").encode())
    assert UserEntry.decode((await admin.call(GetUser("alice"))).body).user_status == "disable"
    assert "User:alice is disabled" in await denied(one, send_request())
    await admin.call(UpdateUser("alice"), UserEntry(user_status="enable", password="changedSecret").encode())
    assert "check signature failed" in await denied(one, send_request())
    await admin.call(DeleteUser("alice"))
    await admin.call(DeleteUser("alice"))
    assert (await admin.call(GetUser("alice"))).body == b""
    assert "User:alice is not found" in await denied(one, send_request())


async def test_users_are_listed_by_a_part_of_the_name(admin, alice):
    names = [user.username for user in decode_users((await admin.call(ListUsers())).body)]
    assert sorted(names) == ["admin", "alice"]
    assert [user.username for user in decode_users((await admin.call(ListUsers("lic"))).body)] == ["alice"]
    assert (await admin.call(ListUsers("zzz"))).body == b""


async def test_policies_take_effect_at_once(admin, alice):
    assert "User:alice has no permission to access Topic:orders" in await denied(alice, send_request())
    await admin.call(CreateAcl("User:alice"), policies(("Topic:orders", ["Pub"], "Allow")))
    await alice.call(send_request())
    await admin.call(UpdateAcl("User:alice"), policies(("Topic:ord*", ["Pub"], "Deny")))
    await alice.call(send_request())
    await admin.call(UpdateAcl("User:alice"), policies(("Topic:orders", ["All"], "Deny")))
    await denied(alice, send_request())
    await admin.call(DeleteAcl("User:alice", resource="Topic:orders"))
    await denied(alice, send_request())
    await admin.call(DeleteAcl("User:alice"))
    assert (await admin.call(GetAcl("User:alice"))).body == b""


async def test_policies_are_kept_by_resource_and_shown(admin, alice):
    await admin.call(CreateAcl("User:alice"), policies(("topic:orders", ["pub"], "ALLOW")))
    await admin.call(CreateAcl("User:alice"), policies(("Topic:orders", ["Sub", "Get"], "Allow")))
    await admin.call(CreateAcl("User:alice"), policies(("Group:*", ["Sub"], "Allow"), kind="Default"))
    shown = UserPolicies.decode((await admin.call(GetAcl("User:alice"))).body)
    assert shown.subject == "User:alice" and [each.policy_type for each in shown.policies] == [
        "Custom",
        "Default",
    ]
    assert shown.policies[0].entries == [PolicyRule("Topic:orders", ["Sub", "Get"], None, "Allow")]
    assert decode_policies((await admin.call(ListAcls())).body) == [shown]
    (some,) = decode_policies((await admin.call(ListAcls("ali", "Group"))).body)
    assert [each.policy_type for each in some.policies] == ["Default"]
    assert (await admin.call(ListAcls("bob"))).body == b""
    await admin.call(DeleteAcl("User:alice", "Default"))
    shown = UserPolicies.decode((await admin.call(GetAcl("User:alice"))).body)
    assert [each.policy_type for each in shown.policies] == ["Custom"]


@pytest.mark.parametrize(
    ("request_", "body", "words"),
    [
        (CreateUser("bob"), b"{}", "needs a password"),
        (CreateUser("b b"), UserEntry(password="secretOfBob").encode(), "is invalid"),
        (CreateUser("bob"), UserEntry(password="x", user_type="Root").encode(), "write one of Super, Normal"),
        (UpdateUser("bob"), b"{}", "The user bob does not exist"),
        (CreateAcl("User:bob"), policies(("*", ["All"], "Allow")), "The user bob does not exist"),
        (CreateAcl("alice"), policies(("*", ["All"], "Allow")), "write User:NAME"),
        (CreateAcl("User:alice"), b"{}", "have no entry"),
        (CreateAcl("User:alice"), policies(("Topic", ["All"], "Allow")), "is not a resource"),
        (CreateAcl("User:alice"), policies(("*", ["Any"], "Allow")), "is not a valid action"),
        (DeleteAcl("User:alice"), b"", "has no policies"),
    ],
)
async def test_an_invalid_change_changes_nothing(admin, alice, request_, body, words):
    with pytest.raises(RemoteError, match=words):
        await admin.call(request_, body)
    assert len(decode_users((await admin.call(ListUsers())).body)) == 2
    assert (await admin.call(ListAcls())).body == b""


async def test_only_super_users_may_see_or_change_users(admin, alice):
    await admin.call(CreateAcl("User:alice"), policies(("*", ["All"], "Allow")))
    for request, body in (
        (CreateUser("bob"), UserEntry(password="secretOfBob", user_type="Super").encode()),
        (UpdateUser("alice"), UserEntry(user_type="Super").encode()),
        (UpdateUser("admin"), UserEntry(password="stolen").encode()),
        (DeleteUser("admin"), b""),
        (GetUser("admin"), b""),
        (ListUsers(), b""),
        (CreateAcl("User:alice"), policies(("*", ["All"], "Allow"))),
        (UpdateAcl("User:alice"), policies(("*", ["All"], "Allow"))),
        (DeleteAcl("User:alice"), b""),
        (GetAcl("User:alice"), b""),
        (ListAcls(), b""),
        (admin_requests.GetBrokerClusterAclConfig(), b""),
    ):
        assert "has no permission to access Cluster:main" in await denied(alice, request, body)


async def test_a_broker_without_users_refuses_all_of_it(tmp_path):
    async with live_broker(tmp_path / "stores") as live:
        for request in (CreateUser("bob"), GetUser("bob"), ListUsers(), CreateAcl("User:bob"), ListAcls()):
            with pytest.raises(RemoteError, match="set authenticationEnabled=true and initAuthenticationUser"):
                await live.session.call(request, b"{}")
