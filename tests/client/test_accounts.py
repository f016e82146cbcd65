"""Access control between our client and our broker: each of its rules by itself, as a user and an operator see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from sparrowmq.client.client import Client, connect
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.errors import AccessDenied, ConfigError, SendFailed, SparrowError
from sparrowmq.testing.clock import ManualClock
from sparrowmq.testing.cluster import Cluster

KEYS = ("shopUser", "secretOfShop")
ADMIN = ("operator", "secretOfOperator")
OPERATOR = """
- accessKey: operator
  secretKey: secretOfOperator
  admin: true
  defaultTopicPerm: DENY
"""
SHOP = """
- accessKey: shopUser
  secretKey: secretOfShop
"""

Guarded = Callable[[str], AbstractAsyncContextManager[Cluster]]


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    """A cluster whose accounts are those of a text."""

    @asynccontextmanager
    async def started(text: str) -> AsyncIterator[Cluster]:
        file = tmp_path / "plain_acl.yml"
        file.write_text(text)
        async with Cluster(tmp_path / "cluster", acl=True, acl_file=file) as cluster:
            async with signed(cluster, *ADMIN) as operator:
                for topic in ("orders", "prices"):
                    await operator.admin.create_topic(topic, queues=1, exist_ok=True)
            yield cluster

    return started


def account(*lines: str) -> str:
    """The accounts of a shop and of an operator, with some lines more for the shop's."""
    return "accounts:" + SHOP + "".join(f"  {line}\n" for line in lines) + OPERATOR


def signed(cluster: Cluster, *keys: str) -> Client:
    return connect(cluster.namesrv, credentials=Credentials(*keys) if keys else None)


async def may_send(cluster: Cluster, topic: str, *keys: str) -> str:
    """Nothing if a send succeeds, else why it was denied."""
    async with signed(cluster, *keys) as mq:
        try:
            await mq.send(topic, b"x")
        except SendFailed as failed:
            assert isinstance(failed.cause, AccessDenied)
            return str(failed.cause)
    return ""


async def may_read(cluster: Cluster, topic: str, group: str, *keys: str) -> str:
    """Nothing if a message is got, else why it was denied."""
    async with signed(cluster, *keys) as mq:
        try:
            async with mq.pull_consumer(group=group, start="earliest") as reader:
                reader.assign(await reader.queues(topic))
                while not await reader.poll():
                    pass
        except AccessDenied as denied:
            return str(denied)
    return ""


@pytest.mark.covers("S-ACL-02")
@pytest.mark.parametrize("pattern", ["127.0.0.1", "127.0.0.*", "127.0.0.1-9", "127.0.0.{1,2}", "*"])
async def test_who_comes_from_a_white_address_needs_no_keys(guarded: Guarded, pattern: str) -> None:
    async with guarded(f"globalWhiteRemoteAddresses: ['{pattern}']\n" + account()) as cluster:
        assert await may_send(cluster, "orders") == ""


@pytest.mark.covers("S-ACL-02")
@pytest.mark.parametrize("pattern", ["127.0.0.2", "127.0.1.*", "127.0.0.2-9", "127.0.0.{2,3}"])
async def test_who_comes_from_elsewhere_does(guarded: Guarded, pattern: str) -> None:
    text = f"globalWhiteRemoteAddresses: ['{pattern}']\n" + account(f"whiteRemoteAddress: '{pattern}'")
    async with guarded(text) as cluster:
        assert "No accessKey is configured" in await may_send(cluster, "orders")
        assert "Check signature failed" in await may_send(cluster, "orders", KEYS[0], "another secret")


@pytest.mark.covers("S-ACL-02", "S-ACL-07")
async def test_an_accounts_own_address_counts_before_its_signature_and_its_permissions(
    guarded: Guarded,
) -> None:
    async with guarded(account("whiteRemoteAddress: 127.0.0.*", "topicPerms: [orders=DENY]")) as cluster:
        assert await may_send(cluster, "orders", KEYS[0], "another secret") == ""
        assert "No accessKey is configured" in await may_send(cluster, "orders")


@pytest.mark.covers("S-ACL-03")
@pytest.mark.parametrize(("key", "secret"), [("sixsix", "secretOfShop"), ("shopUser", "sixsix"), ("", "secretOfShop")])
async def test_too_short_a_key_is_no_account(guarded: Guarded, key: str, secret: str) -> None:
    text = account().replace(KEYS[0], key).replace(KEYS[1], secret)
    with pytest.raises(ConfigError, match=r"plain_acl\.yml"):
        async with guarded(text):
            pass


@pytest.mark.covers("S-ACL-03")
async def test_keys_of_seven_characters_are_one(guarded: Guarded) -> None:
    text = account("defaultTopicPerm: PUB").replace(KEYS[0], "sevenAB").replace(KEYS[1], "secretA")
    async with guarded(text) as cluster:
        assert await may_send(cluster, "orders", "sevenAB", "secretA") == ""
        assert "No acl config for sixsix" in await may_send(cluster, "orders", "sixsix", "secretA")


@pytest.mark.covers("S-ACL-04")
async def test_operators_alone_change_topics_groups_and_settings(guarded: Guarded) -> None:
    anything = ("defaultTopicPerm: PUB|SUB", "defaultGroupPerm: PUB|SUB")
    async with guarded(account(*anything)) as cluster, signed(cluster, *KEYS) as mq:
        for change in (
            lambda client: client.admin.create_topic("made"),
            lambda client: client.admin.change_topic("orders", queues=2),
            lambda client: client.admin.delete_topic("prices"),
            lambda client: client.admin.create_group("made"),
            lambda client: client.admin.delete_group("made"),
        ):
            with pytest.raises(SparrowError, match="Need admin permission"):
                await change(mq)
            async with signed(cluster, *ADMIN) as operator:
                await change(operator)


PERMISSIONS = {
    "DENY": (False, False),
    "PUB": (True, False),
    "SUB": (False, True),
    "PUB|SUB": (True, True),
}


@pytest.mark.covers("S-ACL-05")
@pytest.mark.covers("S-ACL-06")
@pytest.mark.parametrize(("name", "allowed"), PERMISSIONS.items())
@pytest.mark.parametrize("how", ["named", "usual", "named before usual"])
async def test_a_topics_permission_is_to_send_to_read_or_both(
    guarded: Guarded, name: str, allowed: tuple[bool, bool], how: str
) -> None:
    lines = {
        "named": [f"topicPerms: [orders={name}]"],
        "usual": [f"defaultTopicPerm: {name}"],
        "named before usual": [
            f"topicPerms: [orders={name}]",
            f"defaultTopicPerm: {'DENY' if all(allowed) else 'PUB|SUB'}",
        ],
    }
    async with (
        guarded(account("defaultGroupPerm: SUB", *lines[how])) as cluster,
        signed(cluster, *ADMIN) as operator,
    ):
        await operator.send("orders", b"there")
        sent, read = await may_send(cluster, "orders", *KEYS), await may_read(cluster, "orders", "g", *KEYS)
        assert (sent == "", read == "") == allowed
        assert all("permission for topic:orders" in why or "deny" in why.lower() for why in (sent, read) if why)


@pytest.mark.covers("S-ACL-05", "S-ACL-06")
async def test_a_group_needs_a_permission_too_and_has_none_by_itself(guarded: Guarded) -> None:
    lines = ("defaultTopicPerm: SUB", "groupPerms: [mine=SUB, theirs=DENY]")
    async with guarded(account(*lines)) as cluster, signed(cluster, *ADMIN) as operator:
        await operator.send("prices", b"there")
        assert await may_read(cluster, "prices", "mine", *KEYS) == ""
        assert "group:theirs" in await may_read(cluster, "prices", "theirs", *KEYS)
        assert "group:others" in await may_read(cluster, "prices", "others", *KEYS)


@pytest.mark.parametrize(
    ("lines", "topic", "group", "reason"),
    [
        ((), "prices", "mine", "group:mine"),
        (("defaultTopicPerm: SUB", "groupPerms: [mine=SUB]"), "prices", "others", "group:others"),
        (("topicPerms: [orders=SUB]", "defaultGroupPerm: SUB"), "prices", "mine", "topic:prices"),
    ],
)
async def test_a_consumer_without_rights_is_an_error_at_once(
    guarded: Guarded, lines: tuple[str, ...], topic: str, group: str, reason: str
) -> None:
    async with guarded(account(*lines)) as cluster, signed(cluster, *KEYS) as mq:
        with pytest.raises(AccessDenied, match=reason):
            async with mq.subscribe(topic, lambda message: None, group=group):
                pass
        async with mq.pull_consumer(group=group) as reader:
            await reader.subscribe(topic)
            with pytest.raises(AccessDenied, match=reason):
                while True:
                    await reader.poll()


async def test_a_consumer_without_keys_is_an_error_at_once(guarded: Guarded) -> None:
    async with guarded(account()) as cluster, signed(cluster) as mq:
        with pytest.raises(AccessDenied, match="No accessKey is configured"):
            async with mq.subscribe("orders", group="g"):
                pytest.fail("it was entered")


@pytest.mark.slow
async def test_a_consumer_that_loses_its_rights_ends_with_the_error(guarded: Guarded, tmp_path: Path) -> None:
    lines = ("defaultTopicPerm: SUB", "defaultGroupPerm: SUB")
    async with (
        guarded(account(*lines)) as cluster,
        signed(cluster, *ADMIN) as operator,
        signed(cluster, *KEYS) as mq,
    ):
        with pytest.raises(AccessDenied, match="topic:orders"):
            async with mq.subscribe("orders", group="g", start="earliest") as consumer:
                await operator.send("orders", b"x")
                (first,) = await consumer.take(1)
                first.ack()
                denied = account("topicPerms: [orders=DENY]", "defaultGroupPerm: SUB")
                (tmp_path / "plain_acl.yml").write_text(denied)
                async with asyncio.timeout(30):
                    while True:
                        await operator.send("orders", b"y")
                        for message in await consumer.take(1):
                            message.ack()


@pytest.mark.covers("S-ACL-07")
async def test_an_operator_may_all_but_not_without_the_right_signature(guarded: Guarded) -> None:
    """And not if permissions are listed, by which operators go too; the usual one does not count for them."""
    async with guarded(account()) as cluster:
        assert await may_send(cluster, "orders", *ADMIN) == ""
        assert "Check signature failed" in await may_send(cluster, "orders", ADMIN[0], "another secret")
    async with guarded(account() + "  topicPerms: [orders=PUB, prices=DENY]\n") as cluster:
        assert await may_send(cluster, "orders", *ADMIN) == ""
        assert "topic:prices" in await may_send(cluster, "prices", *ADMIN)


@pytest.mark.covers("S-ACL-01")
async def test_accounts_count_as_they_stand_in_the_file_and_without_access_control_not_at_all(
    tmp_path: Path,
) -> None:
    clock, file = ManualClock(), tmp_path / "plain_acl.yml"
    file.write_text(account("defaultTopicPerm: DENY"))
    async with Cluster(tmp_path / "on", clock=clock, acl=True, acl_file=file) as cluster:
        assert "topic:orders" in await may_send(cluster, "orders", *KEYS)
        file.write_text(account("defaultTopicPerm: PUB"))
        await clock.advance(5)
        assert await may_send(cluster, "orders", *KEYS) == ""
    async with Cluster(tmp_path / "off", acl_file=file) as cluster:
        assert await may_send(cluster, "orders") == ""
