"""Access control: our client at the brokers of Apache and at ours, and the clients and mqadmin of others at ours."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import sparrowmq
from sparrowmq import AccessDenied, Credentials, SendFailed
from tests.interop.access_matrix import signed
from tests.interop.apache import ApacheBroker, ApacheNamesrv
from tests.interop.clients import Client, CppClient, NodeClient
from tests.interop.conftest import GO, NODE, start_client
from tests.interop.servers import APACHE, OURS, SETTINGS, OurBroker, OurNamesrv, Target
from tests.interop.test_mqadmin import Admin

LIMIT_S = 30.0
USER, ADMIN = ("shopWebsite", "secretOfShop"), ("administrator", "secretOfAdmin")
SUBSCRIBER = ("subscriber", "secretOfSubscriber")
OURS_OF_5 = "ours-5"  # with users that it made of the same accounts
FOREIGN = ("cpp", "go", "node", "java-4-9-8", "java-5-4-0")
ACCOUNTS = """
accounts:
- accessKey: shopWebsite
  secretKey: secretOfShop
  topicPerms: [{topics}, prices=SUB]
  groupPerms: [{groups}, CLIENT_INNER_PRODUCER=SUB]
- accessKey: subscriber
  secretKey: secretOfSubscriber
  defaultGroupPerm: DENY
  topicPerms: [unpaid=SUB]
  groupPerms: [bill-concurrent=SUB, bill-orderly=SUB]
- accessKey: administrator
  secretKey: secretOfAdmin
  admin: true
""".format(
    topics=", ".join(["orders=PUB|SUB", *(f"orders-{name}=PUB|SUB" for name in FOREIGN)]),
    groups=", ".join(["billing=SUB", *(f"billing-{name}=SUB" for name in FOREIGN)]),
)
# 5.3 has forgotten aclEnable. It takes its accounts from the same file, once, and signatures are as they were.
_PROVIDERS = "org.apache.rocketmq.auth.{0}.provider.Local{1}MetadataProvider"
AUTH_OF_5 = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationMetadataProvider": _PROVIDERS.format("authentication", "Authentication"),
    "authorizationMetadataProvider": _PROVIDERS.format("authorization", "Authorization"),
    "migrateAuthFromV1Enabled": "true",
}


@contextmanager
def cluster(name: str, folder: Path) -> Iterator[Target]:
    """A cluster whose broker has access control."""
    if name in (OURS, OURS_OF_5):
        (folder / "plain_acl.yml").write_text(ACCOUNTS)
        keys = AUTH_OF_5 if name == OURS_OF_5 else {"aclEnable": "true"}
        ours_conf = {**keys, "aclFile": str(folder / "plain_acl.yml")}
        with OurNamesrv() as ours, OurBroker(ours.address, folder / "store", ours_conf) as started:
            yield Target(name, ours.address, started.address)
        return
    version = name.removeprefix("apache-")
    conf = SETTINGS | ({"aclEnable": "true"} if name == APACHE else {**AUTH_OF_5, "authConfigPath": folder / "auth"})
    with ApacheNamesrv(version) as namesrv:
        broker = ApacheBroker(version, namesrv.address, folder / "store", conf)
        (broker.home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
        with broker:
            yield Target(name, namesrv.address, broker.address)
            broker.kill()


@pytest.fixture(
    scope="module",
    params=[
        OURS,
        OURS_OF_5,
        pytest.param(APACHE, marks=pytest.mark.slow),
        pytest.param("apache-5.4.0", marks=[pytest.mark.slow, pytest.mark.nightly]),
    ],
)
def namesrv(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(request.param, tmp_path_factory.mktemp("acl")) as target:
        yield target.namesrv


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with cluster(OURS, tmp_path_factory.mktemp("acl")) as target:
        yield target


def connect(namesrv: str, keys: tuple[str, str] | None) -> sparrowmq.Client:
    return sparrowmq.connect(namesrv, credentials=Credentials(*keys) if keys else None)


@pytest.mark.covers("S-ACL-08", "S-ACL-10")
@pytest.mark.cell("acl")
async def test_our_client_does_what_its_account_may_and_is_told_what_it_may_not(namesrv: str) -> None:
    async with sparrowmq.Admin(namesrv, credentials=Credentials(*ADMIN)) as admin:
        for topic in ("orders", "prices"):
            await admin.create_topic(topic, exist_ok=True)
    async with connect(namesrv, USER) as mq:
        sent = await mq.send("orders", b"paid")
        assert [result.status for result in await mq.send_many([sparrowmq.Message("orders", b"batch")] * 3)]
        with pytest.raises(SendFailed) as caught:
            await mq.send("prices", b"1.08")
        words = (
            "No default permission for topic:prices",
            f"{USER[0]} has no permission to access Topic:prices",
        )
        assert any(each in str(caught.value.cause) for each in words)
        assert isinstance(caught.value.cause, AccessDenied) and not caught.value.is_in_doubt
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
        (None, "No accessKey is configured|username cannot be null"),
        (("strangerHere", "secretOfShop"), "No acl config for strangerHere|User:strangerHere is not found"),
        ((USER[0], "secretOfNobody"), "[Cc]heck signature failed"),
    ],
)
async def test_whoever_is_not_known_is_denied_at_once(namesrv: str, keys: tuple[str, str] | None, words: str) -> None:
    async with sparrowmq.Admin(namesrv, credentials=Credentials(*ADMIN)) as admin:
        await admin.create_topic("orders", exist_ok=True)
    began = time.monotonic()
    async with connect(namesrv, keys) as mq:
        with pytest.raises(SendFailed, match=words) as caught:
            await mq.send("orders", b"paid")
    assert isinstance(caught.value.cause, AccessDenied)
    assert time.monotonic() - began < 3, "it was asked again and again"


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cpp", GO, NODE, "java-4.9.8", pytest.param("java-5.4.0", marks=pytest.mark.nightly)])
@pytest.mark.cell("acl", columns=["cpp", "go", "node", "java-4.9.8", "java-5.4.0"])
def test_a_foreign_client_signs_and_is_denied_what_its_account_may_not(ours: Target, name: str) -> None:
    spelled = name.replace(".", "-")
    orders, prices, group = f"orders-{spelled}", f"prices-{spelled}", f"billing-{spelled}"
    with asyncio.Runner() as runner:
        runner.run(_create(ours.namesrv, orders, prices, f"%RETRY%{group}"))
    signing = {"access": USER[0], "secret": USER[1]}
    with start_client(name, ours) as client:
        assert_denied(client, orders, "No accessKey is configured")
        with client.producing(**signing):
            assert client.send(orders, "signed")
            client.send(orders, "signed and large ", times=2000)
            assert_denied(client, prices, f"No default permission for topic:{prices}")
            with client.consume(group, orders, **signing) as consumer:
                consumer.wait_for_bodies(["signed", "signed and large " * 2000])
        with client.producing(access=USER[0], secret="secretOfNobody"):
            assert_denied(client, orders, "Check signature failed")
    assert [stored(ours, topic) for topic in (orders, prices)] == [2, 0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["java-4.9.8", pytest.param("java-5.4.0", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("side", [OURS, OURS_OF_5])
def test_a_message_of_java_is_a_dead_letter_though_the_account_may_only_subscribe(
    name: str, side: str, tmp_path: Path
) -> None:
    with cluster(side, tmp_path) as target, asyncio.Runner() as runner, start_client(name, target) as client:
        groups = {mode: f"bill-{mode}" for mode in ("concurrent", "orderly")}
        runner.run(_create(target.namesrv, "unpaid", *(f"%RETRY%{group}" for group in groups.values())))
        with client.producing(access=ADMIN[0], secret=ADMIN[1]):
            client.send("unpaid", "bill")
        for mode, group in groups.items():
            signing = {"access": SUBSCRIBER[0], "secret": SUBSCRIBER[1]}
            with client.consume(group, "unpaid", mode=mode, fail=99, retries=1, **signing) as consumer:
                consumer.wait_until(partial(has_dead_letter, target, group), "no dead letter")


def assert_denied(client: Client, topic: str, words: str) -> None:
    """The client tells its caller of a failure, and somewhere our words; C++ and Node keep those to themselves."""
    with pytest.raises(AssertionError, match=r"still failed|No route info|AclException") as caught:
        client.send(topic, "denied")
    assert isinstance(client, CppClient | NodeClient) or words in f"{caught.value} {client.said()}"


def has_dead_letter(target: Target, group: str) -> bool:
    return stored(target, f"%DLQ%{group}") == 1


def stored(target: Target, topic: str) -> int:
    """How many messages a topic has."""
    ends = 0
    for queue_id in range(8):
        reply = target.ask(30, signed({"topic": topic, "queueId": queue_id}, b"", *ADMIN))
        ends += int(reply.fields["offset"]) if reply.code == 0 else 0
    return ends


async def _create(namesrv: str, *topics: str) -> None:
    async with sparrowmq.Admin(namesrv, credentials=Credentials(*ADMIN)) as admin:
        for topic in topics:
            await admin.create_topic(topic, exist_ok=True)


@pytest.mark.slow
@pytest.mark.slow
def test_mqadmin_signs_and_changes_accounts(ours: Target) -> None:
    with Admin() as admin:
        check_accounts_by(admin, ours.namesrv)


def check_accounts_by(admin: Admin, namesrv: str) -> None:
    def said(*words: str, keys: tuple[str, str] = ADMIN) -> str:
        admin.sign(*keys)
        answer = admin.call(*words, "-n", namesrv)
        return str(answer["out"]) + str(answer["err"])

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
