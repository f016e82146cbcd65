"""Clients of the remoting protocol at the process `mqproxy`, in front of our brokers and Apache's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import sparrowmq
from sparrowmq import Credentials, ReceivedMessage, SendFailed
from tests.interop.child import Child, scratch
from tests.interop.clients import Client, JavaClient
from tests.interop.conftest import GO, JAVA_5, NODE, start_client
from tests.interop.our_client import until
from tests.interop.servers import OURS, OurBroker, OurNamesrv, Target, running
from tests.interop.test_access import ADMIN, OURS_OF_5, USER, cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

APACHES = [
    pytest.param("apache-5.4.0", marks=[pytest.mark.slow]),
    pytest.param("apache-4.9.7", marks=[pytest.mark.slow, pytest.mark.nightly]),
]


class OurProxy(Child):
    """`mqproxy` as an operator starts it."""

    def __init__(self, namesrv: str, keys: tuple[str, str] | None = None) -> None:
        account = {"ROCKETMQ_ACCESS_KEY": keys[0], "ROCKETMQ_SECRET_KEY": keys[1]} if keys else {}
        words = ["proxy", "-n", namesrv, "--port", "0", "--remoting-port", "0"]
        super().__init__(scratch("mqproxy"), [sys.executable, "-m", "sparrowmq", *words], **account)

    def _wait_ready(self) -> None:
        self.wait_for("remoting clients at ")

    @property
    def address(self) -> str:
        return self.said().split()[-1]


@contextmanager
def behind(name: str, folder: Path) -> Iterator[Target]:
    """A broker, and mqproxy in the place of its name server."""
    with running(name, folder) as target, OurProxy(target.namesrv) as proxy:
        yield replace(target, namesrv=proxy.address)


@contextmanager
def before_two(folder: Path) -> Iterator[tuple[Target, Target]]:
    """Two of our brokers; each with mqproxy in the place of their name server."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(OurNamesrv())
        brokers = [
            stack.enter_context(OurBroker(namesrv.address, folder / name, {"brokerName": name}))
            for name in ("broker-a", "broker-b")
        ]
        proxy = stack.enter_context(OurProxy(namesrv.address))
        first, second = (Target(OURS, proxy.address, broker.address) for broker in brokers)
        yield first, second


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with behind(OURS, tmp_path_factory.mktemp("one")) as target:
        yield target


@pytest.mark.slow
@pytest.mark.cell("mqproxy", columns=["cpp", "go", "node", "java-4.9.8", "java-5.4.0"])
@pytest.mark.parametrize("name", ["cpp", "java-4.9.8", JAVA_5, GO, NODE])
def test_foreign_client_sends_and_consumes(one: Target, name: str) -> None:
    topic, group = f"orders-{name.replace('.', '-')}", f"billing-{name.replace('.', '-')}"
    one.create_topic(topic, f"{topic}-retry")
    one.create_group(group, retries=3)
    with start_client(name, one) as client:
        for number in range(4):
            client.send(topic, f"m{number}", tags="TagA" if number else "TagB", colour="red")
        with client.consume(f"{group}-tags", topic, "TagA") as consumer:
            received = consumer.wait_for_bodies(["m1", "m2", "m3"])
        assert len(received) == 3 and {event["colour"] for event in received} == {"red"}
        client.send(f"{topic}-retry", "again")
        with client.consume(group, f"{topic}-retry", fail=1) as consumer:
            assert [event["body"] for event in consumer.wait_for(2)] == ["again", "again"]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.8", pytest.param("5.4.0", marks=pytest.mark.slow)])
def test_java_reaches_the_queues_of_two_brokers(version: str, tmp_path: Path) -> None:
    with before_two(tmp_path) as places:
        for place in places:
            place.create_topic("orders", "paid")
            place.create_group("billing", retries=3)
        with JavaClient(version, places[0].namesrv) as java:
            bodies = [f"m{number}" for number in range(8)]
            for body in bodies:
                java.send("orders", body)
            java.send("orders", "one|two", how="batch")
            java.send("orders", "alone", how="oneway")
            java.send("orders", "called", how="async")
            bodies += ["one", "two", "alone", "called"]
            for place in places:  # each has some of them
                assert sum(place.end_of("orders", queue) for queue in (0, 1)) < len(bodies)
            with java.consume("billing", "orders", fail=1) as consumer:
                received = consumer.wait_for(2 * len(bodies))
                assert all(place.members("billing") for place in places)
            assert sorted(event["body"] for event in received) == sorted(bodies * 2)
            with java.consume("in-order", "orders", mode="orderly") as consumer:
                consumer.wait_for_bodies(bodies)
            assert sorted(java.pull("pulling", "orders", len(bodies))) == sorted(bodies)
            ends = (
                ("commit", "unknown"),
                ("rollback", "unknown"),
                ("unknown", "commit"),
                ("unknown", "rollback"),
            )
            for now, later in ends:
                java.transact("payers", "paid", f"{now}-{later}", now, later)
            with java.consume("cashier", "paid") as consumer:
                consumer.wait_for_bodies(["commit-unknown", "unknown-commit"])
                consumer.wait_until(lambda: len(java.checks()) >= 2, "no check of both")
                assert sorted(consumer.bodies()) == ["commit-unknown", "unknown-commit"]


@pytest.fixture(scope="module", params=[OURS, *APACHES])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with behind(request.param, tmp_path_factory.mktemp("place")) as target:
        target.create_topic("orders", "paid")
        yield target


@pytest.mark.cell("mqproxy", columns=["ours", "apache-5.4.0", "apache-4.9.7"])
async def test_our_client_sends_consumes_and_ends_transactions(place: Target) -> None:
    async with sparrowmq.connect(place.namesrv, group="payers") as mq:
        asked: list[bytes] = []

        @mq.check("payers")
        def check(message: ReceivedMessage) -> bool:
            asked.append(message.body)
            return True

        await asyncio.gather(*(mq.send("orders", b"%d" % number) for number in range(8)))
        for group, is_ordered in (("billing", False), ("in-order", True)):
            found = await consumed(mq, "orders", 8, group=group, ordered=is_ordered)
            assert found == [b"%d" % number for number in range(8)]
        async with mq.transaction("paid", b"later") as transaction:
            await transaction.unknown()
        assert await consumed(mq, "paid", 1, group="cashier") == [b"later"] == asked[:1]


async def consumed(mq: sparrowmq.Client, topic: str, count: int, **how: Any) -> list[bytes]:
    """The first bodies that a new group gets, in their order."""
    found: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        found.append(message.body)

    async with mq.subscribe(topic, handle, start="earliest", **how):
        await until(lambda: len(found) >= count)
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("side", [OURS_OF_5, pytest.param(APACHES[0], marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", ["cpp", "java-4.9.8"])
def test_accounts_of_foreign_clients_are_checked(side: str, name: str, tmp_path: Path) -> None:
    topic, group = f"orders-{name.replace('.', '-')}", f"billing-{name.replace('.', '-')}"
    with cluster(side, tmp_path) as target, OurProxy(target.namesrv, ADMIN) as proxy:
        asyncio.run(_create(target.namesrv, topic, group))
        at = replace(target, namesrv=proxy.address)
        user, wrong = (
            dict(zip(("access", "secret"), USER, strict=True)),
            {"access": USER[0], "secret": "wrong"},
        )
        with start_client(name, at) as client, client.producing(**user):
            client.send(topic, "signed")
            with client.consume(group, topic, **user) as consumer:
                consumer.wait_for_bodies(["signed"])
        for keys in ({}, wrong):
            with start_client(name, at) as client:
                assert _is_refused(client, topic, keys)
        asyncio.run(_check_rights_of_ours(proxy.address, topic))


async def _create(namesrv: str, topic: str, group: str) -> None:
    async with sparrowmq.Admin(namesrv, credentials=Credentials(*ADMIN)) as admin:
        await admin.create_topic(topic, queues=2)
        await admin.create_topic("prices", queues=1)
        await admin.create_group(group)


def _is_refused(client: Client, topic: str, keys: Mapping[str, str]) -> bool:
    try:
        with client.producing(**keys):
            client.send(topic, "not allowed")
    except AssertionError:
        return True
    return False


async def _check_rights_of_ours(address: str, topic: str) -> None:
    async with sparrowmq.connect(address, credentials=Credentials(*USER)) as mq:
        await mq.send(topic, b"ours")
        with pytest.raises(SendFailed, match="permission"):
            await mq.send("prices", b"1.08")
