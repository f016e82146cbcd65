import json

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.requests.admin_headers import (
    GetBrokerConfig,
    GetBrokerRuntime,
    RestartBroker,
    ViewBrokerStats,
)
from sparrowmq.protocol.requests.bodies import BrokerStats, KVTable
from sparrowmq.settings.settings_files import parse_properties


async def test_settings_are_told_as_a_properties_file(desk, client):
    response = await client.call(GetBrokerConfig())
    told = parse_properties(response.body.decode())
    assert (told["brokerName"], told["brokerRole"], told["autoCreateTopicEnable"]) == (
        "broker-a",
        "ASYNC_MASTER",
        "true",
    )
    assert (told["filterServerNums"], told["traceOn"], told["useTLS"]) == ("0", "true", "false")
    assert told["storePathCommitLog"] == str(desk.settings.store_path / "commitlog")
    assert told["maxTransferBytesOnMessageInDisk"] == told["maxTransferBytesOnMessageInMemory"]
    assert json.loads(response.header.version) == {"counter": 0, "timestamp": desk.status.started_ms}


async def test_figures_are_texts_by_name(desk, client):
    for _ in range(3):
        desk.send(b"x")
    body = (await client.call(GetBrokerRuntime())).body
    assert KVTable.decode(body).table["msgPutTotalTodayNow"] == "3"
    assert all(isinstance(value, str) for value in json.loads(body)["table"].values())


async def test_what_came_into_a_topic_is_told_for_the_last_minute_hour_and_day(desk, client):
    await desk.traffic.sample()
    for number in range(30):
        desk.send(b"%d" % number)
    await desk.clock.advance(10)
    await desk.traffic.sample()
    stats = BrokerStats.decode((await client.call(ViewBrokerStats("TOPIC_PUT_NUMS", "Orders"))).body)
    assert (stats.stats_minute.sum, stats.stats_minute.tps, stats.stats_day.sum) == (30, 3.0, 30)
    error = await client.refusal(ViewBrokerStats("TOPIC_PUT_NUMS", "Bills"))
    assert error.remark == "The stats <TOPIC_PUT_NUMS> <Bills> not exist"


async def test_only_a_broker_that_has_not_begun_again_is_restarted_and_not_inside_another_program(desk, client):
    began = desk.status.started_ms
    with pytest.raises(RemoteError, match=f"started at {began}, not at {began - 1}"):
        await client.call(RestartBroker(boot_timestamp=began - 1))
    with pytest.raises(RemoteError, match="inside another program"):
        await client.call(RestartBroker(boot_timestamp=began))
