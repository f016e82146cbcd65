"""Access control between us and others: our client at Apache's broker and ours, Java's client and mqadmin at ours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import sparrowmq
from sparrowmq import AccessDenied, Credentials, SendFailed
from tests.interop.apache import ApacheBroker, ApacheNamesrv, mqadmin
from tests.interop.clients import JavaClient
from tests.interop.servers import APACHE, OURS, SETTINGS, OurBroker, OurNamesrv

pytestmark = [pytest.mark.interop]

LIMIT_S = 30.0
USER, ADMIN = ("shopWebsite", "secretOfShop"), ("administrator", "secretOfAdmin")
ACCOUNTS = """
accounts:
- accessKey: shopWebsite
  secretKey: secretOfShop
  topicPerms: [orders=PUB|SUB, prices=SUB]
  groupPerms: [billing=SUB, CLIENT_INNER_PRODUCER=SUB]
- accessKey: administrator
  secretKey: secretOfAdmin
  admin: true
"""


@contextmanager
def cluster(name: str, folder: Path) -> Iterator[str]:
    """The name server of a cluster whose broker has access control."""
    if name == OURS:
        (folder / "plain_acl.yml").write_text(ACCOUNTS)
        conf = {"aclEnable": "true", "aclFile": folder / "plain_acl.yml"}
        with OurNamesrv() as ours, OurBroker(ours.address, folder / "store", conf):
            yield ours.address
        return
    with ApacheNamesrv("4.9.7") as namesrv:
        broker = ApacheBroker("4.9.7", namesrv.address, folder / "store", {**SETTINGS, "aclEnable": "true"})
        (broker.home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
        with broker:
            yield namesrv.address
            broker.kill()


@pytest.fixture(scope="module", params=[OURS, pytest.param(APACHE, marks=pytest.mark.java)])
def namesrv(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(request.param, tmp_path_factory.mktemp("acl")) as address:
        yield address


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(OURS, tmp_path_factory.mktemp("acl")) as address:
        yield address


def connect(namesrv: str, keys: tuple[str, str] | None) -> sparrowmq.Client:
    return sparrowmq.connect(namesrv, credentials=Credentials(*keys) if keys else None)


@pytest.mark.covers("S-ACL-08", "S-ACL-10")
async def test_our_client_does_what_its_account_may_and_is_told_what_it_may_not(namesrv: str) -> None:
    async with sparrowmq.Admin(namesrv, credentials=Credentials(*ADMIN)) as admin:
        for topic in ("orders", "prices"):
            await admin.create_topic(topic, exist_ok=True)
    async with connect(namesrv, USER) as mq:
        sent = await mq.send("orders", b"paid")
        assert [result.status for result in await mq.send_many([sparrowmq.Message("orders", b"batch")] * 3)]
        with pytest.raises(SendFailed) as caught:
            await mq.send("prices", b"1.08")
        assert "No default permission for topic:prices" in str(caught.value.__cause__)
        assert isinstance(caught.value.__cause__, AccessDenied) and not caught.value.is_in_doubt
        async with mq.subscribe("orders", group="billing") as consumer:
            bodies = set()
            async with asyncio.timeout(LIMIT_S):
                async for message in consumer:
                    bodies.add(message.body)
                    message.ack()
                    if b"paid" in bodies and b"batch" in bodies:
                        break
        assert sent.msg_id


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (None, "No accessKey is configured"),
        (("strangerHere", "secretOfShop"), "No acl config for strangerHere"),
        ((USER[0], "secretOfNobody"), "Check signature failed for accessKey=shopWebsite"),
    ],
)
async def test_whoever_is_not_known_is_denied_at_once(
    namesrv: str, keys: tuple[str, str] | None, words: str
) -> None:
    async with sparrowmq.Admin(namesrv, credentials=Credentials(*ADMIN)) as admin:
        await admin.create_topic("orders", exist_ok=True)
    began = time.monotonic()
    async with connect(namesrv, keys) as mq:
        with pytest.raises(SendFailed, match=words):
            await mq.send("orders", b"paid")
    assert time.monotonic() - began < 3, "it was asked again and again"


@pytest.mark.java
def test_javas_client_signs_and_shows_denials(ours: str) -> None:
    with asyncio.Runner() as runner:
        runner.run(_create(ours, "orders", "prices"))
    signing = {"access": USER[0], "secret": USER[1]}
    with JavaClient("4.9.8", ours) as client:
        with pytest.raises(AssertionError, match="still failed"):
            client.send("orders", "unsigned")
        assert "AclException: No accessKey is configured" in client.said()
        client.call("produce", group="shop", **signing)
        assert client.send("orders", "hello")
        with client.consume("billing", "orders", **signing) as consumer:
            consumer.wait_for_bodies(["hello"])
        with pytest.raises(AssertionError, match="still failed"):
            client.send("prices", "1.08")
        assert "AclException: No default permission for topic:prices" in client.said()


async def _create(namesrv: str, *topics: str) -> None:
    async with sparrowmq.Admin(namesrv, credentials=Credentials(*ADMIN)) as admin:
        for topic in topics:
            await admin.create_topic(topic, exist_ok=True)


@pytest.mark.java
def test_mqadmin_signs_and_changes_accounts(ours: str) -> None:
    def said(*words: str, keys: tuple[str, str] | None = ADMIN) -> str:
        done = mqadmin("4.9.7", *words, "-n", ours, keys=keys)
        return done.stdout + done.stderr

    assert "create topic to" in said("updateTopic", "-c", "DefaultCluster", "-t", "made")
    assert "Need admin permission for request code=17" in said(
        "updateTopic", "-c", "DefaultCluster", "-t", "never", keys=USER
    )
    new = ("-c", "DefaultCluster", "-a", "accountOne", "-s", "secretOfOne", "-t", "orders=PUB", "-u", "SUB")
    assert "success" in said("updateAclConfig", *new)
    shown = said("getAclConfig", "-c", "DefaultCluster")
    assert "accountOne" in shown and "secretOfOne" in shown and "orders=PUB" in shown
    assert "secretOf" not in said("getAclConfig", "-c", "DefaultCluster", keys=USER)
    assert "success" in said("updateGlobalWhiteAddr", "-c", "DefaultCluster", "-g", "10.0.0.1,10.0.0.2")
    assert "broker-a" in said("clusterAclConfigVersion", "-c", "DefaultCluster")
    assert "success" in said("deleteAclConfig", "-c", "DefaultCluster", "-a", "accountOne")
    assert "accountOne" not in said("getAclConfig", "-c", "DefaultCluster")
