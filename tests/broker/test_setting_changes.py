"""Each setting that can change while a broker runs, and what then is otherwise."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.broker import Broker, apply_store_settings, remedy_words
from sparrowmq.broker.broker_settings import FIXED, BrokerSettings
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.admin_headers import (
    GetAllTopicConfig,
    GetBrokerConfig,
    UpdateAndCreateTopicList,
    UpdateBrokerConfig,
)
from sparrowmq.protocol.requests.bodies import TopicConfig, TopicConfigList, TopicRoute
from sparrowmq.protocol.requests.headers import QueryMessage, ViewMessage
from sparrowmq.protocol.requests.namesrv_headers import GetRoute
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.quota_rules import parse
from sparrowmq.settings.live_settings import live_keys
from sparrowmq.settings.settings import load
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.testing import Cluster
from tests.broker.live import SUBSCRIPTION, SUSPEND, Live, live_broker


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    async with live_broker(tmp_path) as live:
        yield live


async def change(live: Live, **values: object) -> None:
    body = settings_text.render({key: str(value) for key, value in values.items()})
    await live.session.call(UpdateBrokerConfig(), body)


async def refused(asked: object) -> RemoteError:
    with pytest.raises(RemoteError) as error:
        await asked  # type: ignore[misc]
    return error.value


async def test_the_largest_body(live: Live) -> None:
    await live.send(b"x" * 1000)
    await change(live, maxMessageSize="999")
    assert "maxMessageSize is 999" in str(await refused(live.send(b"x" * 1000)))
    shown = settings_text.parse((await live.session.call(GetBrokerConfig())).body)
    assert shown["maxMessageSize"] == "999"


async def test_what_clients_may_do_and_name_servers_tell(live: Live) -> None:
    await live.send()
    await live.pull()

    async def perms() -> set[int]:
        pool = Pool(SystemClock())
        try:
            session = await pool.session(live.cluster.namesrv)
            route = TopicRoute.decode((await session.call(GetRoute("orders"))).body)
        finally:
            pool.close()
        return {queue.perm for queue in route.queue_datas}

    await change(live, brokerPermission=4)
    assert (await refused(live.send())).code == ResponseCode.NO_PERMISSION
    await live.pull()
    async with asyncio.timeout(10):
        while await perms() != {4}:
            await asyncio.sleep(0.01)
    await change(live, brokerPermission=2)
    await live.send()
    assert (await refused(live.pull())).code == ResponseCode.NO_PERMISSION
    await change(live, brokerPermission=6)
    async with asyncio.timeout(10):
        while await perms() != {6}:
            await asyncio.sleep(0.01)
    await change(live, drained="true")
    async with asyncio.timeout(10):
        while await perms() != {4}:
            await asyncio.sleep(0.01)
    await live.send()  # from a producer that does not know it yet


async def test_where_those_go_on_that_are_far_behind(live: Live) -> None:
    await live.send()
    for changed, whom_next in (
        ({"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": 0}, 1),
        ({"accessMessageInMemoryMaxRatio": 40}, 0),
        ({"accessMessageInMemoryMaxRatio": 0, "slaveReadEnable": "false"}, 0),
    ):
        await change(live, **changed)
        assert (await live.pull()).header.suggest_which_broker_id == whom_next


async def test_whether_sends_make_topics_and_with_how_many_queues(live: Live) -> None:
    await change(live, autoCreateTopicEnable="false")
    assert (await refused(live.send(topic="new"))).code == ResponseCode.TOPIC_NOT_EXIST
    await change(live, autoCreateTopicEnable="true", defaultTopicQueueNums=3)
    await live.send(topic="new")
    told = (await live.session.call(GetAllTopicConfig())).body
    assert json.loads(told)["topicConfigTable"]["new"]["writeQueueNums"] == 3


async def test_whether_consumers_make_groups(live: Live) -> None:
    await live.send()
    await change(live, autoCreateSubscriptionGroup="false")
    assert (await refused(live.pull(consumer_group="g9"))).code == 26
    await change(live, autoCreateSubscriptionGroup="true")
    await live.pull(consumer_group="g9")


async def test_how_much_an_answer_to_a_pull_holds(live: Live) -> None:
    for _ in range(20):
        await live.send(b"x" * 300)
    await change(live, maxTransferCountOnMessageInMemory=5)
    assert len(await live.messages()) == 5
    await change(live, maxTransferCountOnMessageInMemory=32, maxTransferBytesOnMessageInMemory=1024)
    assert 0 < len(await live.messages()) < 5


async def test_how_long_a_pull_waits(live: Live) -> None:
    await live.send()
    await change(live, longPollingEnable="false", shortPollingTimeMills=1)
    waits: dict[str, Any] = {
        "offset": 1,
        "sys_flag": SUBSCRIPTION | SUSPEND,
        "suspend_timeout_millis": 25_000,
    }
    assert (await asyncio.wait_for(live.pull(**waits), 10)).code == ResponseCode.PULL_NOT_FOUND


def test_how_the_store_flushes_and_deletes(tmp_path: Path) -> None:
    store = MessageStore.open(StoreSettings(path=tmp_path, commit_log_file_size=1 << 20, index=False))
    settings = BrokerSettings(retention_h=1, delete_when="05", disk_max_used_percent=92, flush_interval_ms=7)
    apply_store_settings(settings, store)
    store.close()
    now = store.settings
    assert (now.retention_hours, now.delete_when, now.flush_interval_ms) == (1, "05", 7)
    assert (now.disk_clean_ratio, now.disk_force_ratio, now.disk_full_ratio) == (0.92, 0.92, 0.92)


async def test_a_name_server_is_told_in_its_new_period(live: Live) -> None:
    await change(live, registerNameServerPeriod="10s", registerBrokerTimeoutMills=500)
    shown = settings_text.parse((await live.session.call(GetBrokerConfig())).body)
    assert (shown["registerNameServerPeriod"], shown["registerBrokerTimeoutMills"]) == ("10000", "500")


async def test_what_is_shown_can_be_sent_back(live: Live) -> None:
    """Tools send back what they were shown, with one setting changed."""
    shown = settings_text.parse((await live.session.call(GetBrokerConfig())).body)
    assert shown["brokerIP2"] == "127.0.0.1"
    fixed = {key: shown[key] for key in (*FIXED, "brokerIP2", "storePathCommitLog", "useTLS")}
    await change(live, **fixed | {"maxMessageSize": "999"})
    again = settings_text.parse((await live.session.call(GetBrokerConfig())).body)
    assert again == shown | {"maxMessageSize": "999"}


async def test_what_cannot_change_is_refused_with_its_name(live: Live) -> None:
    for key, words in (
        ("regionId", "no effect"),
        ("brokerIP2", "cannot change"),
        ("storePathCommitLog", "cannot change"),
        ("enableDLegerCommitLog", "enableControllerMode=true"),
        ("useTLS", "cannot change"),
        ("brokerName", "cannot change"),
        ("nonsense", "no setting"),
        ("destroyMapedFileIntervalForcibly", "no effect"),
        ("haSecret", "cannot change"),
    ):
        error = await refused(change(live, **{key: "x"}))
        assert error.code == ResponseCode.SYSTEM_ERROR and key in str(error) and words in str(error)


async def test_a_change_is_kept_in_the_brokers_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# ours\nmaxMessageSize=100\n")
    settings = BrokerSettings(port=0, store_path=tmp_path / "store", commit_log_file_bytes=1 << 20, index=False)
    async with Broker(settings, SystemClock(), file) as broker:
        pool = Pool(SystemClock())
        session = await pool.session(broker.address)
        await session.call(UpdateBrokerConfig(), b"maxMessageSize=200\n")
        pool.close()
    assert load(file) == {"maxMessageSize": "200"} and file.read_text().startswith("# ours")


async def test_how_much_the_log_says_changes(tmp_path: Path) -> None:
    ours = logging.getLogger("sparrowmq")
    before = ours.level
    try:
        async with Cluster(tmp_path) as cluster:
            pool = Pool(SystemClock())
            session = await pool.session(cluster.brokers[0].address)
            await session.call(UpdateBrokerConfig(), b"logLevel=ERROR\n")
            pool.close()
        assert ours.level == logging.ERROR
    finally:
        ours.setLevel(before)


async def test_from_when_on_a_request_is_slow_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def slow() -> list[str]:
        return [line for line in caplog.messages if line.startswith("slow request UPDATE_BROKER_CONFIG")]

    file = tmp_path / "broker.conf"
    file.touch()
    settings = BrokerSettings(
        port=0,
        store_path=tmp_path / "store",
        commit_log_file_bytes=1 << 20,
        index=False,
        slow_request_ms=0,
    )
    async with Broker(settings, SystemClock(), file) as broker:
        pool = Pool(SystemClock())
        session = await pool.session(broker.address)
        for number in range(20):
            await session.call(UpdateBrokerConfig(), b"maxMessageSize=%d\n" % (1000 + number))
        assert slow() == []
        async with asyncio.timeout(30):
            while not slow():  # each writes the broker's file, which takes a millisecond now and then
                await session.call(UpdateBrokerConfig(), b"slowRequestMillis=1\n")
        pool.close()


def test_every_setting_that_can_change_is_tried_here() -> None:
    text = Path(__file__).read_text()
    by_the_store = {
        "fileReservedTime",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "flushIntervalCommitLog",
        "scrubRate",
        "setAsideDays",
        "setAsideLimit",
    }
    tried = {key for key in live_keys(BrokerSettings) if f"{key}=" in text or f'"{key}":' in text}
    assert live_keys(BrokerSettings) - tried == by_the_store


async def test_quotas_change_while_the_broker_runs(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send()
        await change(live, quotas="topic:orders requests=2/h; address:127.0.0.0/8 topics=1/d connections=2")
        for _ in range(2):
            await live.send()
        error = await refused(live.send())
        assert (error.code, "topic orders is used up: requests=2/h" in error.remark) == (2, True)
        assert (await refused(live.pull())).code == 215
        await live.send(topic="new")
        assert "topics=1/d" in (await refused(live.send(topic="newer"))).remark
        assert "request=1/s" in (await refused(change(live, quotas="topic:orders request=1/s"))).remark
        host, port = live.broker.address.split(":")
        readers = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        ended = await readers[1][0].read()
        assert ended == b"", "with this test's there are three"
        await change(live, quotas="")
        await live.send()
        assert (await live.pull()).code == 0
        for _, writer in readers:
            writer.close()


async def test_pulled_bytes_and_held_pulls_count(tmp_path: Path) -> None:
    async with live_broker(tmp_path, quotas=parse("topic:orders bytes=500/d held=1")) as live:
        await live.send(bytes(100))
        for _ in range(2):
            assert (await live.pull(offset=1, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=1)).code == 19
        held = asyncio.ensure_future(
            live.pull(offset=1, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=20_000)
        )
        await live.pull(topic="orders", queue_id=1)
        assert (
            "held=1"
            in (await refused(live.pull(queue_id=1, sys_flag=SUBSCRIPTION | SUSPEND, suspend_timeout_millis=9))).remark
        )
        held.cancel()
        for _ in range(2):
            await live.pull()
        assert "bytes=500/d" in (await refused(live.pull())).remark


@pytest.mark.parametrize("ask", [QueryMessage("orders", "k", 32, 0, 1 << 62), ViewMessage(0)])
async def test_messages_in_other_answers_count_like_pulled_ones(tmp_path: Path, ask: Any) -> None:
    async with live_broker(tmp_path, quotas=parse("address:* bytes=500/d")) as live:
        await live.send(bytes(400), properties={"KEYS": "k"})
        await live.session.call(ask)
        assert "bytes=500/d" in (await refused(live.session.call(ask))).remark


async def test_a_list_of_new_topics_counts_each_of_them(tmp_path: Path) -> None:
    async with live_broker(tmp_path, quotas=parse("address:* topics=2/d")) as live:
        body = TopicConfigList([TopicConfig(f"t{number}") for number in range(3)]).encode()
        error = await refused(live.session.call(UpdateAndCreateTopicList(), body))
        assert (error.code, "topics=2/d" in error.remark) == (2, True)


async def test_limits_of_held_pulls_change_while_the_broker_runs(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send()
        waits: dict[str, Any] = {
            "offset": 1,
            "sys_flag": SUBSCRIPTION | SUSPEND,
            "suspend_timeout_millis": 20_000,
        }
        await change(live, maxHeldPulls=1)
        held = asyncio.ensure_future(live.pull(**waits))
        await live.pull()
        assert "maxHeldPulls is 1" in (await refused(live.pull(**waits))).remark
        await live.session.call(UpdateBrokerConfig(), b"maxHeldPulls=1000\nmaxHeldPullsPerConnection=1\n")
        assert "maxHeldPullsPerConnection is 1" in (await refused(live.pull(**waits))).remark
        held.cancel()


def test_commands_of_remedies_have_the_audit_log_of_the_broker(tmp_path: Path) -> None:
    settings = BrokerSettings(store_path=tmp_path)
    assert remedy_words(settings, None)["DENIED"] == str(tmp_path / "audit-denied.log")
    moved = BrokerSettings(store_path=tmp_path, audit_path=tmp_path / "log" / "access.log")
    assert remedy_words(moved, None)["DENIED"] == str(tmp_path / "log" / "access-denied.log")
