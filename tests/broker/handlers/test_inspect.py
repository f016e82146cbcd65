import json

from sparrowmq.config import parse_properties
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.admin_headers import GetBrokerConfig, GetBrokerRuntime
from sparrowmq.protocol.requests.bodies import KVTable
from sparrowmq.protocol.requests.headers import GetConsumerRunning


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


async def test_a_consumer_is_asked_itself_what_it_does(client, connect):
    member = await connect(lambda session, command: session.reply(command, body=b'{"jstack":"..."}'))
    await member.beat("one", "Orders")
    response = await client.call(GetConsumerRunning("g", "one", jstack_enable=True))
    assert response.body == b'{"jstack":"..."}'
    asked = member.pushed[-1]
    assert asked.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert asked.ext_fields() == {"consumerGroup": "g", "clientId": "one", "jstackEnable": "true"}


async def test_what_a_consumer_refuses_is_handed_on(client, connect):
    member = await connect(lambda session, command: session.reply(command, 1, remark="not now"))
    await member.beat("one", "Orders")
    error = await client.refusal(GetConsumerRunning("g", "one"))
    assert (error.code, error.remark) == (ResponseCode.SYSTEM_ERROR, "not now")


async def test_a_consumer_that_is_not_there_is_named(client):
    error = await client.refusal(GetConsumerRunning("g", "one"))
    assert (error.code, error.remark) == (ResponseCode.SYSTEM_ERROR, "The Consumer <g> <one> not online")


async def test_a_consumer_that_leaves_instead_of_answering_is_an_error(client, connect):
    member = await connect(lambda session, command: session.close())
    await member.beat("one", "Orders")
    error = await client.refusal(GetConsumerRunning("g", "one"))
    assert error.code == ResponseCode.SYSTEM_ERROR
    assert error.remark.startswith("invoke consumer <g> <one> Exception")
