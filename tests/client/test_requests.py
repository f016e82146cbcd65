"""Requests and their answers, between clients of a real cluster."""

import asyncio

import pytest

from sparrowmq.client.client import connect
from sparrowmq.errors import ClientClosed, ConfigError, InvalidMessage, RequestTimeout, SendFailed
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import Message
from sparrowmq.protocol.messages.properties import parse, render
from sparrowmq.protocol.requests.headers import PushReply
from sparrowmq.remoting.handler import Reply
from sparrowmq.testing.clock import ManualClock
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until


@pytest.fixture
async def answerer(cluster, mq):
    """Answers every message of the topic "prices" with "re: " and its body."""
    await mq.admin.create_topic("prices")

    async def answer(message):
        assert await message.reply(b"re: " + message.body)

    async with (
        connect(cluster.namesrv) as other,
        other.subscribe("prices", answer, group="pricing", start="earliest"),
    ):
        yield other


async def only(reader):
    """The one message that it gets, however long that takes."""
    while not (messages := await reader.poll()):
        pass
    (message,) = messages
    return message


async def test_a_request_has_its_answer(mq, answerer):
    answer = await mq.request("prices", b"EURUSD", tag="fx", keys="k", properties={"own": "1"}, timeout_s=10)
    assert answer.body == b"re: EURUSD" and len(answer.msg_id) == 32
    assert answer.queue.broker_name == "broker-0"
    with pytest.raises(InvalidMessage, match="not delivered by a consumer"):
        await answer.reply(b"and back")


async def test_request_and_answer_may_be_values(mq):
    await mq.admin.create_topic("prices")

    async def answer(message):
        await message.reply({"pair": message.json()["pair"], "price": "1.08"})

    async with mq.subscribe("prices", answer, group="pricing", start="earliest"):
        answered = await mq.request("prices", {"pair": "EURUSD"}, timeout_s=20)
    assert answered.json() == {"pair": "EURUSD", "price": "1.08"}
    assert answered.properties["contentType"] == "application/json"


async def test_many_requests_are_under_way_at_once_and_each_has_its_own_answer(mq, answerer):
    bodies = [b"%d" % number for number in range(300)]
    answers = await asyncio.gather(*(mq.request("prices", body, timeout_s=20) for body in bodies))
    assert [answer.body for answer in answers] == [b"re: " + body for body in bodies]
    assert not mq._network.answers._futures, "nothing is left of them"


async def test_a_reader_can_answer_what_it_polls(mq):
    await mq.admin.create_topic("prices")
    asking = asyncio.ensure_future(mq.request("prices", b"EURUSD", timeout_s=20))
    async with mq.pull_consumer(group="reader", start="earliest") as reader:
        reader.assign(await reader.queues("prices"))
        assert await (await only(reader)).reply(b"1")
    assert (await asking).body == b"1"


async def test_an_answer_that_comes_too_late_is_taken_for_nothing(cluster, mq):
    clock = ManualClock()
    await mq.admin.create_topic("prices")
    async with (
        connect(cluster.namesrv, clock=clock) as asker,
        mq.pull_consumer(group="reader", start="earliest") as reader,
    ):
        reader.assign(await reader.queues("prices"))
        asking = asyncio.ensure_future(asker.request("prices", b"EURUSD", timeout_s=0.05))
        message = await only(reader)
        await clock.advance(0.05)
        with pytest.raises(RequestTimeout, match="a consumer of prices did not answer"):
            await asking
        assert await message.reply(b"1"), "the asker is there, and took it"


async def test_an_asker_that_is_gone_has_no_answer(cluster, mq):
    await mq.admin.create_topic("prices")
    async with mq.pull_consumer(group="reader", start="earliest") as reader:
        reader.assign(await reader.queues("prices"))
        async with connect(cluster.namesrv) as asker:
            asking = asyncio.ensure_future(asker.request("prices", b"EURUSD", timeout_s=20))
            message = await only(reader)
            asking.cancel()
        assert not await message.reply(b"1")


async def test_what_is_no_request_cannot_be_answered(mq):
    await mq.send("prices", b"hello")
    async with mq.subscribe("prices", group="g", start="earliest") as prices:
        (message,) = await prices.take()
        with pytest.raises(InvalidMessage, match="asks for no answer"):
            await message.reply(b"1")
        message.ack()


async def test_two_brokers_pass_answers_of_either(tmp_path):
    async with Cluster(tmp_path, brokers=2) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("prices", queues=1)
        queues = await mq.queues("prices")

        async def answer(message):
            await message.reply(message.queue.broker_name.encode())

        async with mq.subscribe("prices", answer, group="pricing", start="earliest"):
            answers = [await mq.request("prices", b"x", queue=queue, timeout_s=10) for queue in queues]
    assert [answer.body for answer in answers] == [b"broker-0", b"broker-1"]


# Scripted -----------------------------------------------------------------------------------------------------------


async def test_a_request_says_who_asks_and_for_how_long(peer):
    peer.has("t")
    async with connect(peer.address, client_id="me") as mq:
        asking = asyncio.ensure_future(mq.request(Message("t", b"x", properties={"own": "1"}), timeout_s=2.5))
        await until(lambda: peer.sent)
        asked = parse(peer.sent[0].ext_fields()["i"])
        correlation_id = asked["CORRELATION_ID"]
        assert (asked["REPLY_TO_CLIENT"], asked["TTL"], asked["own"]) == ("me", "2500", "1")
        answered = render({"CORRELATION_ID": correlation_id})
        push = PushReply("p", "c_REPLY_TOPIC", "TBW102", 4, 0, 0, 1, 0, answered)
        await peer.sessions[0].call(push, b"1.0842")
        assert (await asking).body == b"1.0842"


async def test_time_counts_until_the_answer_is_here(peer):
    clock = ManualClock()
    peer.has("t")
    async with connect(peer.address, clock=clock) as mq:
        asking = asyncio.ensure_future(mq.request("t", b"x", timeout_s=7))
        await until(lambda: peer.sent)
        await clock.advance(6.9)
        assert not asking.done()
        await clock.advance(0.2)
        with pytest.raises(RequestTimeout, match="within 7 s"):
            await asking


async def test_a_request_that_cannot_be_sent_fails_at_once(peer):
    peer.has("t")
    peer.usual[RequestCode.SEND_MESSAGE_V2] = lambda _: Reply(ResponseCode.MESSAGE_ILLEGAL, remark="no")
    async with connect(peer.address) as mq:
        with pytest.raises(SendFailed):
            await mq.request("t", b"x", timeout_s=30)


async def test_an_answer_that_overtakes_the_brokers_word_counts(peer):
    """The broker stored the request and its word got lost; the answer shows that it was stored."""
    peer.has("t", queues=1)
    peer.usual[RequestCode.SEND_MESSAGE_V2] = lambda _: None
    async with connect(peer.address) as mq:
        queue = (await mq.queues("t"))[0]
        asking = asyncio.ensure_future(mq.request("t", b"x", queue=queue, timeout_s=5))
        await until(lambda: peer.sent)
        properties = parse(peer.sent[0].ext_fields()["i"])
        answered = render({"CORRELATION_ID": properties["CORRELATION_ID"]})
        await peer.sessions[0].call(PushReply("p", "t", "TBW102", 4, 0, 0, 1, 0, answered), b"1")
        peer.sessions[0].close()
        assert (await asking).body == b"1"


@pytest.mark.parametrize("timeout_s", [0, -1, float("inf"), None, "3", True])
async def test_a_time_limit_must_be_one(peer, timeout_s):
    async with connect(peer.address) as mq:
        with pytest.raises(ConfigError):
            await mq.request("t", b"x", timeout_s=timeout_s)


async def test_what_cannot_be_asked_is_refused(peer):
    peer.has("t")
    mq = connect(peer.address)
    async with mq:
        with pytest.raises(InvalidMessage, match="cannot be delayed"):
            await mq.request(Message("t", b"x", delay_level=3))
        with pytest.raises(InvalidMessage):
            await mq.request("t")
        with pytest.raises(InvalidMessage):
            await mq.request("t", b"")
    with pytest.raises(ClientClosed):
        await mq.request("t", b"x")


async def test_cancelling_a_request_leaves_nothing_behind(peer):
    peer.has("t")
    async with connect(peer.address) as mq:
        asking = asyncio.ensure_future(mq.request("t", b"x", timeout_s=30))
        await until(lambda: peer.sent)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not mq._network.answers._futures
