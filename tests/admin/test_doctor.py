"""What is found wrong with a cluster. Nothing here goes to an address outside this machine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sparrowmq.admin import catalogue
from sparrowmq.admin.admin import Admin
from sparrowmq.admin.catalogue import broker_figures
from sparrowmq.admin.doctor import (
    _busy,
    _clock,
    _consume_starts,
    _disk,
    _disk_full_share,
    _offsets_outside_queues,
    _starts_at_end,
)
from sparrowmq.admin.findings import Finding, Verdict
from sparrowmq.admin.groups import GroupLag, QueueLag
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.client.client import connect
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import CONDITION
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat, Heartbeat
from sparrowmq.protocol.requests.headers import HeartBeat, UpdateConsumerOffset
from sparrowmq.protocol.requests.namesrv_headers import RegisterBroker
from sparrowmq.protocol.requests.registration_bodies import RegisterBrokerBody
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing import Cluster

NOBODY = "127.0.0.1:9"


def wrong(findings: list[Finding], *words: str) -> Finding:
    """The one finding that is not well and says all of this."""
    (found,) = [
        each for each in findings if each.verdict is not Verdict.OK and all(word in each.what for word in words)
    ]
    assert found.mend and found.check
    return found


@asynccontextmanager
async def registered(namesrv: str, name: str, address: str, number: int = 0) -> AsyncIterator[None]:
    """A broker that says that it is there; a name server believes it as long as the connection lasts."""
    pool = Pool(SystemClock())
    try:
        session = await pool.session(namesrv)
        await session.call(RegisterBroker(name, address, "DefaultCluster", "", number), RegisterBrokerBody().encode())
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


@asynccontextmanager
async def full() -> AsyncIterator[str]:
    """The address of a server that ends each connection, as one that has too many."""
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_servers_that_take_no_more_connections_are_not_said_to_hang(tmp_path):
    async with (
        full() as address,
        Cluster(tmp_path) as cluster,
        registered(cluster.namesrv, "busy", address),
        Admin([cluster.namesrv, address]) as admin,
    ):
        findings = await admin.examine()
    for what in (f"broker busy (master) at {address} takes no more connections", f"name server {address}"):
        found = wrong(findings, what)
        assert "`ulimit -n`" in found.mend and "kill" not in found.mend


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
        assert f"mqbroker -n {cluster.namesrv}" in wrong(await admin.examine(), "no broker is registered").mend


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
    ("figures", "words"), [({"memberId": "2"}, "its members elect one"), ({}, "make a slave the master")]
)
async def test_members_that_elect_their_master_need_no_operator(tmp_path, monkeypatch, figures, words):
    async def told(servers, address):
        return await broker_figures(servers, address) | figures

    monkeypatch.setattr(catalogue, "broker_figures", told)
    async with Cluster(tmp_path) as cluster, Admin(cluster.namesrv) as admin:
        port = cluster.brokers[0].address.rpartition(":")[2]
        async with registered(cluster.namesrv, "headless", f"localhost:{port}", number=1):
            found = wrong(await admin.examine(), "broker headless has no master")
    assert words in found.mend and found.stops


async def test_a_broker_that_takes_no_messages_is_told(tmp_path):
    async with Cluster(tmp_path, permission=4) as cluster, Admin(cluster.namesrv) as admin:
        assert "it takes no messages" in wrong(await admin.examine(), "(drained").what


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


@pytest.mark.parametrize("used", ["0.87", "0.96"])
def test_a_nearly_full_disk_is_one_finding(used):
    (found,) = _disk("broker a", {"commitLogDiskRatio": used, f"{CONDITION}disk_nearly_full": "{}"})
    assert found.verdict is Verdict.OK, "the condition is the other one"


@pytest.mark.parametrize(
    ("off_s", "verdict", "words"),
    [
        (61, Verdict.WRONG, "61 s ahead"),
        (-3600, Verdict.WRONG, "3600 s behind"),
        (-60, Verdict.WARNING, "60 s behind"),
        (2, Verdict.OK, "the same time"),
    ],
)
def test_a_clock_is_compared_with_ours(off_s, verdict, words):
    began_ms, runs_s = 1_700_000_000_000, 90_061
    status = {
        "bootTimestamp": str(began_ms + off_s * 1000),
        "runtime": "[ 1 days, 1 hours, 1 minutes, 1 seconds ]",
    }
    (found,) = _clock("broker a", status, began_ms + runs_s * 1000)
    assert found.verdict is verdict and words in found.what


def test_a_clock_that_went_back_behind_the_start_of_the_broker_is_compared_with_ours():
    status = {"bootTimestamp": "1700000000000", "runtime": "[ -1 days, 23 hours, 1 minutes, 0 seconds ]"}
    (found,) = _clock("broker a", status, 1_700_000_000_000 + 60_000)
    assert found.what == "the clock of broker a is 3600 s behind"


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
        found = wrong(await mq.admin.examine(group="g"), "no member of g is online, and 1 messages wait")
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


async def test_members_that_do_not_answer_want_what_their_heartbeats_say(tmp_path):
    pools = [Pool(SystemClock()), Pool(SystemClock())]
    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        sessions = [await pool.session(cluster.brokers[0].address) for pool in pools]
        for topic, session in zip(("t", "u"), sessions, strict=True):
            await mq.admin.create_topic(topic)
            consumer = ConsumerBeat("g", subscription_data_set=[Subscription(topic, "b || a")])
            await session.call(HeartBeat(), Heartbeat(topic, [], [consumer]).encode())
        found = wrong(await mq.admin.examine(group="g"), "the members of g want different things")
        assert "t: {'t': 'a || b'}" in found.what and "u: {'u': 'a || b'}" in found.what
        await sessions[0].call(HeartBeat(), Heartbeat("t", [], [ConsumerBeat("h")]).encode())
        wrong(await mq.admin.examine(group="h"), "nothing says what 1 of the 1 members of h subscribe")
    for pool in pools:
        pool.close()


async def test_dead_letters_are_told(tmp_path):
    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        await mq.send("t", b"x")
        async with mq.subscribe("t", group="g", start="earliest", max_reconsume_times=0) as messages:
            (await anext(aiter(messages))).retry()
            while not await mq.admin.dead_letters("g"):
                pass
        assert "`sparrowmq dlq list g`" in wrong(await mq.admin.examine(group="g"), "g has dead letters").mend


def test_the_limit_of_the_disk_is_the_brokers():
    assert BrokerSettings().disk_full_ratio == _disk_full_share({"scrubRate": "1", "diskMaxUsedSpaceRatio": "75"})
    late = BrokerSettings(disk_max_used_percent=95)
    assert late.disk_full_ratio == _disk_full_share({"scrubRate": "1", "diskMaxUsedSpaceRatio": "95"}) == 0.95
    apache = {"diskMaxUsedSpaceRatio": "95", "diskSpaceWarningLevelRatio": "85"}
    assert (_disk_full_share(apache), _disk_full_share({})) == (0.85, 0.90)


async def test_a_disk_that_may_get_fuller_is_not_told_to_be_full(tmp_path):
    async with Cluster(tmp_path, disk_max_used_percent=95) as cluster, Admin(cluster.namesrv) as admin:
        settings = await admin.broker_settings("broker-0")
    (found,) = _disk("broker a", {"commitLogDiskRatio": "0.92"}, _disk_full_share(settings))
    assert found.verdict is Verdict.WARNING and "from 95% on" in found.what


@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ({}, Verdict.OK),
        ({"sendThreadPoolQueueHeadWaitTimeMills": "199"}, Verdict.OK),
        ({"sendThreadPoolQueueHeadWaitTimeMills": "200"}, Verdict.WARNING),
        ({"sendThreadPoolQueueSize": "10000"}, Verdict.WARNING),
        ({"pageCacheLockTimeMills": "1000"}, Verdict.WARNING),
    ],
)
def test_a_broker_that_is_too_busy_for_sends_is_told(told, verdict):
    still = {"sendThreadPoolQueueHeadWaitTimeMills": "0", "sendThreadPoolQueueSize": "0"}
    (found,) = _busy("broker a", still | {"sendThreadPoolQueueCapacity": "10000"} | told, {})
    assert found.verdict is verdict and ("SYSTEM_BUSY" in found.what) is (verdict is Verdict.WARNING)
    patient = {"waitTimeMillsInSendQueue": "5000"}
    (found,) = _busy("broker a", still | {"sendThreadPoolQueueHeadWaitTimeMills": "300"}, patient)
    assert found.verdict is Verdict.OK


async def test_a_group_ahead_of_a_topic_that_was_made_anew_is_told(tmp_path):
    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("t", queues=1)
        await mq.send("t", b"x")
        await mq.admin.create_group("g")
        ahead = UpdateConsumerOffset(consumer_group="g", topic="t", queue_id=0, commit_offset=50)
        await mq.admin.servers.ask(cluster.brokers[0].address, ahead)
        found = wrong(await mq.admin.examine(group="g"), "g is 49 messages ahead of the end of t")
        assert found.verdict is Verdict.WRONG and "group reset g t earliest" in found.mend


def test_messages_that_were_deleted_before_they_were_taken_are_told():
    queue = MessageQueue("t", "a", 0)
    lag = GroupLag("g", (QueueLag(queue, 100, 20, None),), 0.0)
    (found,) = _offsets_outside_queues("g", lag, {"t": {queue: range(50, 100)}})
    assert found.verdict is Verdict.WARNING and "30 messages of t were deleted before g consumed them" in found.what
    assert _offsets_outside_queues("g", lag, {"t": {queue: range(20, 100)}}) == []


async def test_a_group_that_begins_at_the_end_of_what_is_there_is_told(tmp_path):
    queue, nothing = MessageQueue("t", "a", 0), GroupLag("g", (), 0.0)
    held = {"t": {queue: range(3)}, "empty": {queue: range(0)}}
    (found,) = _starts_at_end("g", nothing, held, {"CONSUME_FROM_LAST_OFFSET"})
    assert "the 3 messages that are there do not come" in found.what and "earliest" in found.mend
    assert _starts_at_end("g", nothing, held, {"CONSUME_FROM_FIRST_OFFSET"}) == []
    begun = GroupLag("g", (QueueLag(queue, 3, 0, None),), 0.0)
    assert _starts_at_end("g", begun, held, {"CONSUME_FROM_LAST_OFFSET"}) == []
    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("t")
        async with mq.subscribe("t", group="g"):
            while not await mq.admin.members("g"):
                await asyncio.sleep(0)
            assert await _consume_starts(mq.admin.servers, "g") == {"CONSUME_FROM_LAST_OFFSET"}
