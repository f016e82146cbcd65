"""What tools ask consumers through the broker."""

import pytest

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import InvokeGetConsumerStatus
from sparrowmq.protocol.requests.client_bodies import ConsumerStatus
from sparrowmq.protocol.requests.headers import ConsumeMessageDirectly, GetConsumerRunning

QUEUE = MessageQueue("Orders", "broker-a", 0)


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


async def test_a_consumer_handles_a_stored_message_on_demand(desk, client, connect):
    member = await connect(lambda session, command: session.reply(command, body=b'{"consumeResult":"CR_LATER"}'))
    await member.beat("one", "Orders")
    desk.send(b"before")
    desk.send(b"this one", KEYS="k")
    message = desk.stored()[1]
    response = await client.call(ConsumeMessageDirectly("g", "one", message.offset_id))
    assert response.body == b'{"consumeResult":"CR_LATER"}'
    asked = member.pushed[-1]
    assert (asked.code, asked.is_oneway) == (RequestCode.CONSUME_MESSAGE_DIRECTLY, False)
    assert asked.ext_fields() == {
        "consumerGroup": "g",
        "clientId": "one",
        "msgId": message.offset_id,
        "brokerName": "broker-a",
    }
    assert record.decode(asked.body) == message


@pytest.mark.parametrize(
    ("msg_id", "remark"),
    [
        ("7F00000100002A9F" + "F" * 16, "can not find message"),
        ("", "not an offset message id"),
        (None, "not an offset message id"),
    ],
)
async def test_a_message_that_is_not_there_is_handled_by_nobody(client, connect, msg_id, remark):
    member = await connect()
    await member.beat("one", "Orders")
    pushed = len(member.pushed)
    error = await client.refusal(ConsumeMessageDirectly("g", "one", msg_id))
    assert error.code == ResponseCode.SYSTEM_ERROR and remark in error.remark
    assert len(member.pushed) == pushed


async def test_every_member_or_one_tells_where_it_stands(client, connect):
    def tells(offset):
        body = ConsumerStatus({QUEUE: offset}).encode()
        return lambda session, command: session.reply(command, body=body)

    for name, answer in (("one", tells(1)), ("two", tells(2)), ("mute", lambda session, _: session.close())):
        await (await connect(answer)).beat(name, "Orders")
    body = (await client.call(InvokeGetConsumerStatus("Orders", "g"))).body
    assert ConsumerStatus.decode(body).consumer_table == {"one": {QUEUE: 1}, "two": {QUEUE: 2}}
    body = (await client.call(InvokeGetConsumerStatus("Orders", "g", "two"))).body
    assert ConsumerStatus.decode(body).consumer_table == {"two": {QUEUE: 2}}


async def test_nobody_stands_anywhere_in_a_group_without_members(client):
    error = await client.refusal(InvokeGetConsumerStatus("Orders", "g"))
    assert (error.code, error.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "No Any Consumer online in the consumer group: [g]",
    )
