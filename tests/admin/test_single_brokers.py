import asyncio
from random import randbytes

import pytest

from sparrowmq.admin import brokers
from sparrowmq.admin.admin import Admin
from sparrowmq.client.client import connect
from sparrowmq.errors import ChangeFailed, ConfigError, NetworkError, NoBroker, RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.store.retention import Cleaning
from sparrowmq.testing import Cluster


async def test_a_broker_is_asked_by_its_name_or_its_address(two, admin):
    for broker in ("broker-1", two.brokers[1].address):
        assert (await admin.broker_settings(broker))["brokerName"] == "broker-1"
        assert int((await admin.broker_figures(broker))["msgPutTotalTodayNow"]) >= 0
    with pytest.raises(NoBroker, match=r"no broker 'absent' .* there is broker-0, broker-1"):
        await admin.broker_settings("absent")
    with pytest.raises(NetworkError):
        await admin.broker_settings("127.0.0.1:1")


async def test_settings_of_one_broker_change_and_wrong_ones_change_nothing(admin):
    await admin.change_broker("broker-0", {"fileReservedTime": "71", "maxMessageSize": "1000000"})
    with pytest.raises(RemoteError):
        await admin.change_broker("broker-0", {"fileReservedTime": "70", "maxMessageSize": "x"})
    told = [(await admin.broker_settings(broker))["fileReservedTime"] for broker in ("broker-0", "broker-1")]
    assert told[0] == "71" != told[1]
    with pytest.raises(ConfigError, match="nothing is to be changed"):
        await admin.change_broker("broker-0", {})


async def test_producers_use_other_brokers_while_one_is_drained(two, admin):
    await admin.create_topic("orders", queues=2)
    assert await admin.drain("broker-0") > 0
    async with connect(two.namesrv) as mq:
        sent = [await mq.send("orders", b"x") for _ in range(8)]
        assert {each.queue.broker_name for each in sent} == {"broker-1"}
    assert await admin.undrain("broker-0") > 0
    async with connect(two.namesrv) as mq:
        sent = [await mq.send("orders", b"x") for _ in range(8)]
        assert {each.queue.broker_name for each in sent} == {"broker-0", "broker-1"}
    with pytest.raises(NoBroker, match="absent"):
        await admin.drain("absent")


async def test_messages_that_expired_are_not_waited_for(tmp_path):
    async with Cluster(tmp_path, commit_log_file_bytes=1 << 16) as cluster, Admin(cluster.namesrv) as admin:
        await admin.create_topic("orders", queues=1)
        async with connect(cluster.namesrv) as mq:
            for _ in range(8):
                await mq.send("orders", randbytes(20_000))
            async with mq.pull_consumer(group="billing", start="earliest") as reader:
                reader.assign(await reader.queues("orders"))
                await reader.poll(1)
                await reader.commit()
        assert await admin.behind("broker-0") == {"billing": 7}
        store = cluster.brokers[0].store
        store.checkpoint()
        list(store.retention.run(SystemClock().now_ms() + 100 * 3_600_000, Cleaning.FILES))
        assert await admin.behind("broker-0") == {"billing": 2}


@pytest.mark.slow
async def test_a_drain_is_kept_by_the_broker_so_restarts_do_not_forget_it(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("# ours\n")
    cluster = Cluster(tmp_path / "stores", 2, register_period_ms=10_000)
    async with cluster, Admin(cluster.namesrv) as admin:
        broker = cluster.brokers[0]
        broker._live_settings._file = file
        await admin.create_topic("orders", queues=2)
        await admin.drain("broker-0")
        assert "drained=true" in file.read_text()
        cluster._namesrv.routes.expire(lambda _: 1e9)  # it forgets all brokers, as at a restart
        while {each.name for each in await admin.brokers()} != {"broker-0", "broker-1"}:
            await asyncio.sleep(0.05)
        async with connect(cluster.namesrv) as mq:
            sent = [await mq.send("orders", b"x") for _ in range(8)]
        assert {each.queue.broker_name for each in sent} == {"broker-1"}
        await admin.undrain("broker-0")
        assert "drained=false" in file.read_text() and not broker.settings_now.drained


async def test_a_name_server_that_is_away_is_told_with_those_that_took_it(two):
    async with Admin(f"{two.namesrv};127.0.0.1:1") as admin:
        with pytest.raises(ChangeFailed, match=two.namesrv):
            await admin.drain("broker-0")


async def test_groups_are_behind_by_what_they_did_not_handle_yet(two, admin):
    await admin.create_topic("orders", queues=1)
    async with connect(two.namesrv) as mq:
        queues = {queue.broker_name: queue for queue in await mq.queues("orders")}
        for _ in range(3):
            await mq.send("orders", b"x", queue=queues["broker-0"])
    await admin.create_group("billing")
    await admin.reset("billing", "orders", 1)
    assert await admin.behind("broker-0") == {"billing": 2}
    assert not any((await admin.behind("broker-1")).values())


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"getTransferredTps": "7.5 2 1"}, 7.5),
        ({"getTransferedTps": "7.5 2 1"}, 7.5),
        ({"getTransferredTps": "3 2 1", "getTransferedTps": "7.5 2 1"}, 3.0),
        ({"getTransferredTps": "0.0 0 0"}, 0.0),
        ({"getTransferredTps": ""}, None),
        ({"getTransferredTps": " "}, None),
        ({"getTransferredTps": "many"}, None),
        ({}, None),
    ],
)
def test_a_rate_is_read_in_either_spelling(told, expected):
    assert brokers.per_second(told, *brokers.OUT_RATES) == expected
