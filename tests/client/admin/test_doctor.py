"""What is found wrong with a cluster. Nothing here goes to an address outside this machine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sparrowmq.broker.config import BrokerSettings
from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.doctor import Finding, Verdict, _clock, _disk, _way_to
from sparrowmq.client.client import connect
from sparrowmq.clock import SystemClock
from sparrowmq.protocol.requests.namesrv_headers import RegisterBroker
from sparrowmq.protocol.requests.registration import RegisterBrokerBody
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing import Cluster

NOBODY = "127.0.0.1:9"


def wrong(findings: list[Finding], *words: str) -> Finding:
    """The one finding that is not well and says all of this."""
    (found,) = [
        each
        for each in findings
        if each.verdict is not Verdict.OK and all(word in each.what for word in words)
    ]
    assert found.mend and found.check
    return found


@asynccontextmanager
async def registered(namesrv: str, name: str, address: str) -> AsyncIterator[None]:
    """A broker that says that it is there; a name server believes it as long as the connection lasts."""
    pool = Pool(SystemClock())
    try:
        session = await pool.session(namesrv)
        await session.call(
            RegisterBroker(name, address, "DefaultCluster", "", 0), RegisterBrokerBody().encode()
        )
        yield
    finally:
        pool.close()


async def test_of_a_cluster_that_is_well_nothing_is_wrong(tmp_path):
    async with Cluster(tmp_path, brokers=2) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("orders")
        await mq.admin.create_group("billing")
        findings = await mq.admin.examine("orders", "billing")
        assert not [each for each in findings if each.verdict is Verdict.WRONG]
        said = " ".join(each.what for each in findings)
        assert "broker-0 (master)" in said and "broker-1 (master)" in said and "orders has 8 queues" in said


async def test_a_name_server_that_does_not_answer_is_named(tmp_path):
    async with Cluster(tmp_path) as cluster, Admin([cluster.namesrv, NOBODY]) as admin:
        found = wrong(await admin.examine(), f"name server {NOBODY} does not answer")
        assert found.verdict is Verdict.WRONG and "mqnamesrv" in found.mend


async def test_without_any_name_server_that_is_all_there_is_to_say():
    async with Admin(NOBODY) as admin:
        (found,) = await admin.examine("orders", "billing")
        assert found.verdict is Verdict.WRONG


async def test_a_cluster_without_brokers_is_told_how_to_get_one(tmp_path):
    async with Cluster(tmp_path, brokers=0) as cluster, Admin(cluster.namesrv) as admin:
        assert (
            f"mqbroker -n {cluster.namesrv}" in wrong(await admin.examine(), "no broker is registered").mend
        )


async def test_name_servers_that_know_different_brokers_are_told_apart(tmp_path):
    async with (
        Cluster(tmp_path / "a") as one,
        Cluster(tmp_path / "b", brokers=0) as other,
        Admin([one.namesrv, other.namesrv]) as admin,
    ):
        found = wrong(await admin.examine(), "know different brokers", f"{other.namesrv} lacks broker-0")
        assert "namesrvAddr" in found.mend


async def test_a_broker_that_cannot_be_reached_where_clients_are_sent(tmp_path):
    async with Cluster(tmp_path) as cluster, Admin(cluster.namesrv) as admin:
        async with registered(cluster.namesrv, "hidden", NOBODY):
            found = wrong(await admin.examine(), "broker hidden (master)", "cannot be reached")
        assert found.verdict is Verdict.WRONG and "brokerIP1" in found.mend and NOBODY in found.check


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("172.17.0.1:10911", "inside a container"),
        ("172.31.9.9:10911", "inside a container"),
        ("127.0.0.1:10911", "on its own machine only"),
        ("192.168.1.5:10911", "no firewall"),
        ("[2001:db8::1]:10911", "no firewall"),
        ("broker-a.internal:10911", "can be resolved"),
    ],
)
def test_what_may_keep_clients_away_goes_by_the_address(address, words):
    assert words in _way_to(address)


async def test_a_broker_that_takes_no_messages_is_told(tmp_path):
    async with Cluster(tmp_path, permission=4) as cluster, Admin(cluster.namesrv) as admin:
        assert "it takes no messages" in wrong(await admin.examine(), "is set so").what


@pytest.mark.parametrize(
    ("used", "verdict", "words"),
    [
        ("0.95", Verdict.WRONG, "takes no messages: 95% of its disk is used (CODE 14"),
        ("0.90", Verdict.WRONG, "CODE 14"),
        ("0.8", Verdict.WARNING, "from 90% on"),
        ("0.5", Verdict.OK, "50%"),
    ],
)
def test_a_disk_is_judged_by_how_full_it_is(used, verdict, words):
    (found,) = _disk("broker a", {"commitLogDiskRatio": used})
    assert found.verdict is verdict and words in found.what


@pytest.mark.parametrize(("off_s", "words"), [(60, "60 s ahead"), (-60, "60 s behind"), (2, "the same time")])
def test_a_clock_is_compared_with_ours(off_s, words):
    began_ms, runs_s = 1_700_000_000_000, 90_061
    status = {
        "bootTimestamp": str(began_ms + off_s * 1000),
        "runtime": "[ 1 days, 1 hours, 1 minutes, 1 seconds ]",
    }
    (found,) = _clock("broker a", status, began_ms + runs_s * 1000)
    assert words in found.what


async def test_a_topic_that_no_broker_has_is_told_in_the_words_of_java(tmp_path):
    async with Cluster(tmp_path) as cluster, Admin(cluster.namesrv) as admin:
        found = wrong(await admin.examine("missing"), "No route info of this topic")
        assert "sparrowmq topic create missing" in found.mend and "autoCreateTopicEnable" in found.mend


async def test_a_topic_that_may_only_be_read_is_told(tmp_path):
    async with Cluster(tmp_path) as cluster, Admin(cluster.namesrv) as admin:
        await admin.create_topic("archive", perm="r")
        assert "perm 4" in wrong(await admin.examine("archive"), "archive has").what


async def test_a_group_that_nobody_knows_is_told(tmp_path):
    async with Cluster(tmp_path) as cluster, Admin(cluster.namesrv) as admin:
        assert wrong(await admin.examine(group="missing"), "no broker knows consumer group missing")


async def test_messages_that_nobody_waits_for_are_told(tmp_path):
    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        await mq.send("t", b"x")
        await mq.admin.create_group("g")
        await mq.admin.reset("g", "t", "earliest")
        found = wrong(await mq.admin.examine(group="g"), "nobody of g is on line, and 1 messages wait")
        assert found.verdict is Verdict.WRONG


async def test_members_that_want_different_things_are_told(tmp_path):
    async with (
        Cluster(tmp_path) as cluster,
        connect(cluster.namesrv) as one,
        connect(cluster.namesrv) as other,
    ):
        await one.admin.create_topic("t")
        async with one.subscribe("t", group="g", tag="a"), other.subscribe("t", group="g", tag="b"):
            while len(await one.admin.members("g")) < 2:
                await asyncio.sleep(0)
            found = wrong(await one.admin.examine(group="g"), "subscription not latest")
            assert "a group of their own" in found.mend


async def test_dead_letters_are_told(tmp_path):
    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        await mq.send("t", b"x")
        async with mq.subscribe("t", group="g", start="earliest", max_reconsume_times=0) as messages:
            (await anext(aiter(messages))).retry()
            while not await mq.admin.dead_letters("g"):
                pass
        assert "Admin.dead_letters" in wrong(await mq.admin.examine(group="g"), "g has dead letters").mend


def test_the_limit_of_the_disk_is_the_brokers():
    from sparrowmq.client.admin.doctor import DISK_FULL

    assert BrokerSettings().disk_full_ratio == DISK_FULL
