import asyncio

import pytest

from sparrowmq.client.client import connect
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import ConsumerList
from sparrowmq.protocol.requests.headers import OffsetReply
from sparrowmq.remoting.handler import Reply
from tests.client.conftest import until
from tests.client.popping.answers import ACK, CHANGE, POP, answers, fields, popped, rec
from tests.client.scripted import Scripted

PLACE = MessageQueue("t", "broker-a", -1)


@pytest.fixture
async def mq(peer):
    peer.has("t")
    answers(peer)
    peer.usual[POP] = lambda _: None
    async with connect(peer.address) as client:
        yield client


def consume(mq, handler=None, **tuning):
    return mq.subscribe("t", handler, group="g", mode="pop", **tuning)


async def test_handled_messages_are_acknowledged_one_by_one(peer, mq):
    peer.script(POP, popped(rec(7), rec(8)))
    seen: list[int] = []

    async def handle(message) -> None:
        seen.append(message.offset)

    async with consume(mq, handle, start="earliest") as consumer:
        await until(lambda: len(fields(peer, ACK)) == 2)
        assert consumer.queues == [PLACE]
    assert seen == [7, 8]
    asked = fields(peer, POP)[0]
    assert (asked["queueId"], asked["initMode"], asked["invisibleTime"]) == ("-1", "0", "60000")
    assert not fields(peer, RequestCode.UPDATE_CONSUMER_OFFSET)


async def test_every_member_pops_even_if_there_are_more_members_than_queues(peer, mq):
    peer.has("t", queues=1)
    members = ConsumerList(["a", "b", mq.client_id])
    peer.usual[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda _: Reply(body=members.encode())
    async with consume(mq) as consumer:
        await until(lambda: fields(peer, POP))
        assert consumer.queues == [PLACE]


async def test_it_pops_at_every_broker(peer, mq):
    async with Scripted("broker-b") as other:
        answers(other)
        other.usual[POP] = lambda _: None
        peer.has("t", others={"broker-b": other.address})
        async with consume(mq):
            await until(lambda: fields(peer, POP) and fields(other, POP))


async def test_failed_messages_come_again_or_become_dead_letters(peer, mq):
    peer.has("%RETRY%g")
    peer.script(POP, popped(rec(7), rec(8)))

    async def handle(message) -> None:
        if message.offset == 8:
            message.reject("broken")
        else:
            raise LookupError

    async with consume(mq, handle):
        await until(lambda: fields(peer, CHANGE) and fields(peer, ACK))
    assert [(each["offset"], each["invisibleTime"]) for each in fields(peer, CHANGE)] == [("7", "10000")]
    assert [each["offset"] for each in fields(peer, ACK)] == ["8"]
    assert [each["b"] for each in fields(peer, RequestCode.SEND_MESSAGE_V2)] == ["%RETRY%g"]


async def test_the_time_of_a_message_is_extended_while_it_is_handled(peer, mq):
    peer.script(POP, popped(rec(7), invisible_ms=400))
    may_end = asyncio.Event()

    async def handle(message) -> None:
        await may_end.wait()

    async with consume(mq, handle, invisible_s=0.4):
        await until(lambda: len(fields(peer, CHANGE)) >= 2)
        may_end.set()
        await until(lambda: fields(peer, ACK))
    first, second = fields(peer, CHANGE)[:2]
    assert first["invisibleTime"] == "400"
    assert first["extraInfo"] not in (second["extraInfo"], fields(peer, ACK)[0]["extraInfo"])
    assert len(fields(peer, ACK)) == 1


async def test_a_message_that_another_member_may_have_frees_its_place(peer, mq):
    peer.usual[CHANGE] = lambda _: Reply(ResponseCode.SYSTEM_ERROR, remark="no such receipt")
    peer.script(POP, popped(rec(7), invisible_ms=100))
    async with consume(mq, invisible_s=0.4) as consumer:
        state = consumer._assignment.process_queue_of
        await until(lambda: consumer.queues and state(PLACE).unsettled_count == 1)
        await until(lambda: state(PLACE).unsettled_count == 0)


async def test_leaving_shows_the_messages_that_were_not_handled(peer, mq):
    peer.script(POP, popped(rec(7), rec(8)))
    async with consume(mq) as consumer:
        async for message in consumer:
            message.ack()
            break
    assert [each["offset"] for each in fields(peer, ACK)] == ["7"]
    assert [(each["offset"], each["invisibleTime"]) for each in fields(peer, CHANGE)] == [("8", "10")]


async def test_leaving_waits_for_acks_under_way(peer, mq):
    peer.script(POP, popped(rec(7)))
    peer.script(ACK, None)
    consumer = consume(mq)
    await consumer.__aenter__()
    (message,) = await consumer.take()
    message.ack()
    leaving = asyncio.create_task(consumer.__aexit__(None, None, None))
    await until(lambda: fields(peer, ACK))
    await asyncio.sleep(0.02)
    assert not leaving.done()
    peer.sessions[0].reply(peer.requests(ACK)[0])
    await leaving


async def test_the_retry_topic_is_pulled_by_shared_queues(peer, mq):
    peer.has("%RETRY%g", queues=1)
    peer.usual |= {
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: lambda _: Reply(body=ConsumerList([mq.client_id]).encode()),
        RequestCode.QUERY_CONSUMER_OFFSET: lambda _: Reply(header=OffsetReply(offset=3)),
        RequestCode.UPDATE_CONSUMER_OFFSET: lambda _: Reply(),
        RequestCode.PULL_MESSAGE: lambda _: None,
    }
    async with consume(mq) as consumer:
        await until(lambda: fields(peer, RequestCode.PULL_MESSAGE) and fields(peer, POP))
        assert consumer.queues == [MessageQueue("%RETRY%g", "broker-a", 0), PLACE]
    assert {each["topic"] for each in fields(peer, POP)} == {"t"}
    assert {each["topic"] for each in fields(peer, RequestCode.PULL_MESSAGE)} == {"%RETRY%g"}


async def test_a_popped_topic_has_neither_positions_nor_a_lag_of_one_member(peer, mq):
    async with consume(mq) as consumer:
        await until(lambda: consumer.queues)
        for call in (lambda: consumer.seek(PLACE, 5), lambda: consumer.position(PLACE)):
            with pytest.raises(ConfigError, match="is popped"):
                call()
        with pytest.raises(ConfigError, match=r"mq.admin.lag"):
            await consumer.lag()


async def test_a_broker_that_cannot_pop_ends_the_consumer_with_advice(peer, mq):
    peer.usual[POP] = lambda _: Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    with pytest.raises(ConfigError, match="broker-a cannot pop"):
        async with consume(mq) as consumer:
            await consumer.closed()


@pytest.mark.parametrize(
    "tuning", [{"ordered": True}, {"broadcast": True}, {"on_assigned": print}, {"on_revoked": print}]
)
async def test_settings_that_need_queues_of_its_own_are_refused(mq, tuning):
    with pytest.raises(ConfigError, match=f"{next(iter(tuning))}= needs queues of its own"):
        consume(mq, **tuning)


@pytest.mark.parametrize(
    "tuning",
    [
        {"mode": "push"},
        {"mode": "pop", "invisible_s": 0},
        {"mode": "pop", "prefetch": -1},
        {"mode": "pop", "prefetch": 1.5},
        {"mode": "pull", "prefetch": 1},
    ],
)
async def test_wrong_modes_and_times_are_refused(mq, tuning):
    with pytest.raises(ConfigError, match=list(tuning)[-1]):
        mq.subscribe("t", group="g", **tuning)
