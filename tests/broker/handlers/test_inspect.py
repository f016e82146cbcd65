import json

from sparrowmq.config import parse_properties
from sparrowmq.protocol.requests.admin_headers import GetBrokerConfig, GetBrokerRuntime
from sparrowmq.protocol.requests.bodies import KVTable


async def test_settings_are_told_as_a_properties_file(desk, client):
    response = await client.call(GetBrokerConfig())
    told = parse_properties(response.body.decode())
    assert (told["brokerName"], told["brokerRole"], told["autoCreateTopicEnable"]) == (
        "broker-a",
        "ASYNC_MASTER",
        "true",
    )
    assert json.loads(response.header.version) == {"counter": 0, "timestamp": desk.status.started_ms}


async def test_figures_are_texts_by_name(desk, client):
    desk.received.value = 3
    body = (await client.call(GetBrokerRuntime())).body
    assert KVTable.decode(body).table["msgPutTotalTodayNow"] == "3"
    assert all(isinstance(value, str) for value in json.loads(body)["table"].values())
