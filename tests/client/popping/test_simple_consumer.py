import asyncio

import msgspec
import pytest

import sparrowmq
from sparrowmq.client.client import connect
from sparrowmq.client.hooks import Hooks
from sparrowmq.client.popping import simple_consumer
from sparrowmq.errors import ClientClosed, ConfigError, NoRoute, RemoteError, SparrowError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.bodies import QueueRoute
from sparrowmq.protocol.requests.client_bodies import Heartbeat
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack, HeartBeatReply
from sparrowmq.remoting.handler import Reply
from sparrowmq.testing import Cluster
from tests.client.conftest import until
from tests.client.popping.answers import (
    ACK,
    CHANGE,
    NOTHING,
    NOTIFICATION,
    OF_SLAVE,
    POP,
    answers,
    fields,
    found,
    popped,
    rec,
)
from tests.client.scripted import Scripted, stored


@pytest.fixture
async def mq(peer):
    peer.has("t")
    answers(peer)
    async with connect(peer.address) as client:
        yield client


@pytest.fixture
async def consumer(mq):
    async with mq.simple_consumer("t", group="g") as entered:
        yield entered


@pytest.fixture
async def other(peer, mq):
    """A second broker, which has the topic, too."""
    async with Scripted("broker-b") as second:
        answers(second)
        peer.has("t", others={"broker-b": second.address})
        yield second


async def test_messages_are_received_and_acknowledged_one_by_one(peer, consumer):
    peer.script(POP, popped(rec(7), rec(8)))
    first, second = await consumer.receive(2, invisible_s=12, wait_s=3)
    asked = fields(peer, POP)[0]
    assert (asked["maxMsgNums"], asked["invisibleTime"], asked["pollTime"]) == ("2", "12000", "0")
    await consumer.ack(second)
    assert [each["offset"] for each in fields(peer, ACK)] == ["8"]
    await consumer.ack([first, second])  # the second one is settled already
    assert [each["offset"] for each in fields(peer, ACK)] == ["8", "7"]


@pytest.mark.parametrize("wrong", [None, 7, "m1", [None]])
async def test_only_messages_are_acknowledged(consumer, wrong):
    with pytest.raises(ConfigError, match="was not received by a simple consumer; give a message of `receive`"):
        await consumer.ack(wrong)


async def test_nothing_there_is_an_empty_answer(peer, consumer):
    assert await consumer.receive(wait_s=0) == []
    assert len(fields(peer, POP)) == 1


async def test_a_heartbeat_has_the_subscriptions_and_goes_out_before_the_first_pop(peer, mq):
    async with mq.simple_consumer("t", group="g", tag="a", start="earliest") as consumer:
        await consumer.receive(wait_s=0)
        beats = [Heartbeat.decode(each.body) for each in peer.requests(RequestCode.HEART_BEAT)]
        (beat,) = beats[-1].consumer_data_set
        assert (beat.group_name, beat.consume_type, beat.message_model) == (
            "g",
            "CONSUME_ACTIVELY",
            "CLUSTERING",
        )
        assert [(each.topic, each.expression) for each in beat.subscription_data_set] == [("t", "a")]
        asked = fields(peer, POP)[0]
        assert (asked["exp"], asked["initMode"]) == ("a", "0")
    assert fields(peer, RequestCode.UNREGISTER_CLIENT)[0]["consumerGroup"] == "g"


async def test_many_messages_are_asked_for_in_portions_that_apache_gives(peer, consumer):
    peer.script(POP, popped(*map(rec, range(32))), popped(*map(rec, range(32, 40))))
    assert len(await consumer.receive(100)) == 40
    assert [each["maxMsgNums"] for each in fields(peer, POP)] == ["32", "32"]


async def test_each_broker_has_its_turn_to_be_first(peer, other, consumer):
    for broker in (peer, other):
        broker.usual[POP] = lambda _: popped(rec(7))
    brokers = [(await consumer.receive(1))[0].queue.broker_name for _ in range(4)]
    assert brokers in (["broker-a", "broker-b"] * 2, ["broker-b", "broker-a"] * 2)
    assert all(each["pollTime"] == "0" for each in fields(peer, POP))
    assert {each.queue.broker_name for each in await consumer.receive(2)} == {"broker-a", "broker-b"}


@pytest.mark.parametrize("code", [ResponseCode.FLOW_CONTROL, ResponseCode.FLUSH_SLAVE_TIMEOUT])
async def test_a_used_up_quota_and_slaves_that_are_behind_are_waited_out(peer, consumer, code):
    peer.script(POP, Reply(code, remark="not now"), popped(rec(7)))
    assert len(await consumer.receive(1)) == 1


async def test_a_broker_that_has_lost_the_topic_is_no_error(peer, other, consumer):
    """`topic move` takes the topic from a broker."""
    gone = Reply(ResponseCode.TOPIC_NOT_EXIST, remark="topic[t] not exist")
    peer.usual[POP] = other.usual[POP] = lambda _: popped(rec(7))
    assert len(await consumer.receive(2)) == 2
    peer.usual[POP] = lambda _: gone
    peer.routes["t"] = msgspec.structs.replace(peer.routes["t"], queue_datas=[QueueRoute("broker-b", 4, 4, 6)])
    for _ in range(2):
        assert len(await consumer.receive(1)) == 1


async def test_a_topic_that_no_broker_has_any_more_is_an_error(peer, consumer):
    peer.script(POP, Reply(ResponseCode.TOPIC_NOT_EXIST, remark="topic[t] not exist"))
    peer.routes.clear()
    with pytest.raises(NoRoute):
        await consumer.receive(1)


async def test_with_several_brokers_it_waits_at_all_and_keeps_the_requests(peer, other, consumer):
    receiving = asyncio.create_task(consumer.receive())
    await until(lambda: fields(peer, NOTIFICATION) and fields(other, NOTIFICATION))
    other.script(POP, popped(rec(7)))
    waiting = other.requests(NOTIFICATION)[0]
    other.sessions[0].reply(waiting, 0, found().header)
    assert [each.queue.broker_name for each in await receiving] == ["broker-b"]
    assert await consumer.receive(wait_s=0.05) == []
    assert len(fields(peer, NOTIFICATION)) == 1


async def test_a_broker_that_is_away_is_waited_out(peer, other, consumer):
    await other._server.stop()
    peer.script(POP, NOTHING, popped(rec(7)))
    peer.usual[NOTIFICATION] = lambda _: found()
    assert len(await consumer.receive(1)) == 1


async def test_a_silent_broker_delays_the_messages_of_others_only_once(peer, other, consumer, monkeypatch):
    monkeypatch.setattr(simple_consumer, "ANSWER_LIMIT_S", 0.1)
    peer.script(POP, None)
    other.usual[POP] = lambda _: popped(rec(7))
    async with asyncio.timeout(10):
        for _ in range(4):
            (message,) = await consumer.receive(1, wait_s=0)
            assert message.queue.broker_name == "broker-b"
            monkeypatch.setattr(simple_consumer, "ANSWER_LIMIT_S", 60.0)
        assert len(fields(peer, POP)) == 1
        late = popped(rec(8))
        peer.sessions[0].reply(peer.requests(POP)[0], 0, late.header, None, late.body)
        await until(lambda: fields(peer, CHANGE))  # it is visible again
        peer.usual[POP] = lambda _: late
        both = {(await consumer.receive(1, wait_s=0))[0].queue.broker_name for _ in range(2)}
    assert both == {"broker-a", "broker-b"}


async def test_without_an_answer_of_the_only_broker_a_receive_ends_in_time(peer, consumer, monkeypatch):
    monkeypatch.setattr(simple_consumer, "ANSWER_LIMIT_S", 0.1)
    peer.script(POP, None)
    async with asyncio.timeout(10):
        assert await consumer.receive(wait_s=0.2) == []


async def test_a_former_master_that_refuses_is_waited_out(peer, consumer):
    peer.script(POP, OF_SLAVE, OF_SLAVE, popped(rec(7)))
    assert len(await consumer.receive(1)) == 1


async def test_errors_that_stay_are_raised_and_those_that_pass_are_not(peer, consumer):
    peer.script(POP, Reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark="cannot parse"))
    with pytest.raises(RemoteError, match="cannot parse"):
        await consumer.receive()
    beats = len(fields(peer, RequestCode.HEART_BEAT))
    peer.script(POP, Reply(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST), popped(rec(7)))
    assert len(await consumer.receive()) == 1
    assert len(fields(peer, RequestCode.HEART_BEAT)) == beats + 1


async def test_a_broker_without_pop_is_named_with_advice(peer, consumer):
    peer.script(POP, Reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
    with pytest.raises(ConfigError, match="cannot pop"):
        await consumer.receive()


async def test_a_topic_that_is_missing_is_an_error(consumer):
    await consumer.subscribe("missing")
    with pytest.raises(NoRoute):
        await consumer.receive()
    await consumer.unsubscribe("missing")
    await consumer.unsubscribe("t")
    with pytest.raises(ConfigError, match="no topic is subscribed"):
        await consumer.receive()


async def test_a_cancelled_receive_makes_its_messages_visible_again(peer, consumer):
    peer.script(POP, None)
    receiving = asyncio.create_task(consumer.receive())
    await until(lambda: fields(peer, POP))
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    answer = popped(rec(7))
    peer.sessions[0].reply(peer.requests(POP)[0], 0, answer.header, None, answer.body)
    await until(lambda: fields(peer, CHANGE))
    assert [(each["offset"], each["invisibleTime"]) for each in fields(peer, CHANGE)] == [("7", "10")]


async def test_receives_that_run_out_of_time_count_as_no_delivery(tmp_path):
    """A pop that waited at the broker would take the next message for a program that is gone."""
    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=1)
        async with mq.simple_consumer("orders", group="g", start="earliest", max_reconsume_times=3) as consumer:
            for _ in range(8):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.receive(), 0.05)
            await mq.send("orders", b"one")
            (message,) = await consumer.receive(wait_s=10)
            assert (message.body, message.reconsume_times) == (b"one", 0)


async def test_a_cancelled_receive_also_shows_what_it_had_already(peer, consumer):
    peer.script(POP, popped(*map(rec, range(32))), None)
    receiving = asyncio.create_task(consumer.receive(64))
    await until(lambda: len(fields(peer, POP)) == 2)
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    await until(lambda: len(fields(peer, CHANGE)) == 32)


async def test_a_message_that_was_acknowledged_does_not_settle_itself_again(peer, consumer):
    peer.has("%RETRY%g")
    peer.script(POP, popped(rec(7)))
    (message,) = await consumer.receive()
    await consumer.ack(message)
    message.reject("too late")
    await asyncio.sleep(0.05)
    assert len(fields(peer, ACK)) == 1
    assert not fields(peer, RequestCode.SEND_MESSAGE_V2)


async def test_an_ack_that_failed_is_sent_again_when_the_program_asks_again(peer, consumer):
    peer.script(POP, popped(rec(7), rec(8)))
    both = await consumer.receive()
    refusal = Reply(ResponseCode.SYSTEM_ERROR, remark="not now")
    peer.script(ACK, Reply(), refusal)
    with pytest.raises(RemoteError, match="not now"):
        await consumer.ack(both)
    await consumer.ack(both)  # the first one is settled already
    await consumer.ack(both)
    assert [each["offset"] for each in fields(peer, ACK)] == ["7", "8", "8"]


async def test_an_ack_that_was_cancelled_is_sent_again_when_the_program_asks_again(peer, consumer):
    peer.script(POP, popped(rec(7)))
    (message,) = await consumer.receive()
    peer.script(ACK, None)
    acking = asyncio.create_task(consumer.ack(message))
    await until(lambda: fields(peer, ACK))
    acking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await acking
    await consumer.change_invisible(message, 60)
    await consumer.ack(message)
    assert [each["offset"] for each in fields(peer, ACK)] == ["7", "7"]


async def test_a_message_whose_ack_failed_can_settle_itself(peer, consumer):
    peer.script(POP, popped(rec(7)))
    (message,) = await consumer.receive()
    peer.script(ACK, Reply(ResponseCode.SYSTEM_ERROR))
    with pytest.raises(RemoteError):
        await consumer.ack(message)
    message.ack()
    await until(lambda: len(fields(peer, ACK)) == 2)


async def test_leaving_waits_for_acks_under_way(peer, mq):
    peer.script(POP, popped(rec(7)))
    peer.script(ACK, None)
    consumer = await mq.simple_consumer("t", group="g").__aenter__()
    (message,) = await consumer.receive()
    message.ack()
    leaving = asyncio.create_task(consumer.__aexit__(None, None, None))
    await until(lambda: fields(peer, ACK))
    await asyncio.sleep(0.02)
    assert not leaving.done()
    peer.sessions[0].reply(peer.requests(ACK)[0])
    await leaving


async def test_a_lost_answer_of_an_orderly_pop_is_asked_for_with_the_same_attempt(peer, mq):
    async with mq.simple_consumer("t", group="g", order=True) as consumer:
        peer.script(POP, None, popped(rec(7)), popped(rec(8)))
        receiving = asyncio.create_task(consumer.receive())
        await until(lambda: fields(peer, POP))
        for session in peer.sessions:
            session.abort()
        assert len(await receiving) == 1
        await consumer.receive()
    first, again, later = (each["attemptId"] for each in fields(peer, POP))
    assert first == again != later
    assert fields(peer, POP)[0]["order"] == "true"


async def test_the_invisible_time_can_be_changed_until_the_message_is_settled(peer, consumer):
    peer.script(POP, popped(rec(7)))
    (message,) = await consumer.receive()
    await consumer.change_invisible(message, 120)
    assert [each["invisibleTime"] for each in fields(peer, CHANGE)] == ["120000"]
    await consumer.ack(message)
    with pytest.raises(ConfigError, match="settled already"):
        await consumer.change_invisible(message, 120)


async def test_a_dead_letter_is_sent_without_tries_and_then_acknowledged(peer, consumer):
    peer.script(POP, popped(rec(7, properties="POP_CK\x010 5 30000 0 0 broker-a 1 7\x02")))
    peer.has("%RETRY%g")
    (message,) = await consumer.receive()
    await consumer.dead_letter(message, "no such customer")
    (sent,) = fields(peer, RequestCode.SEND_MESSAGE_V2)
    assert (sent["b"], sent["l"]) == ("%RETRY%g", "0")
    assert "REJECT_REASON\x01no such customer" in sent["i"]
    assert "POP_CK" not in sent["i"]
    assert len(fields(peer, ACK)) == 1


@pytest.mark.parametrize("is_refused", [False, True])
async def test_a_broker_that_takes_a_reason_makes_the_dead_letter(peer, is_refused):
    peer.usual[RequestCode.HEART_BEAT] = lambda _: Reply(header=HeartBeatReply(takes_reasons=True))
    peer.has("t")
    peer.has("%RETRY%g")
    answers(peer)
    peer.script(POP, popped(rec(7)))
    code = ResponseCode.NO_PERMISSION if is_refused else ResponseCode.SUCCESS
    peer.script(RequestCode.CONSUMER_SEND_MSG_BACK, Reply(code, remark="only reads"))
    async with connect(peer.address) as mq, mq.simple_consumer("t", group="g") as consumer:
        (message,) = await consumer.receive()
        await consumer.dead_letter(message, "no such customer")
        (asked,) = fields(peer, RequestCode.CONSUMER_SEND_MSG_BACK)
        assert (asked["delayLevel"], asked["rejectReason"]) == ("-1", "no such customer")
        assert asked["offset"] == str(message.stored.physical_offset)
        assert len(fields(peer, RequestCode.SEND_MESSAGE_V2)) == is_refused
        assert len(fields(peer, ACK)) == 1


async def test_consumers_and_repeated_calls_make_one_dead_letter(tmp_path):
    """One message at two consumers, of which one is cancelled and tries again."""
    async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=1)
        await mq.send("orders", b"one")
        async with mq.simple_consumer("orders", group="g", start="earliest") as consumer:
            (message,) = await consumer.receive(16)
            session = await mq._network.brokers.session(cluster.brokers[0].address)
            cancelled = asyncio.ensure_future(consumer.dead_letter(message, "no such customer"))
            await asyncio.sleep(0)
            cancelled.cancel()
            # As the gRPC port does for its clients.
            await session.call(ConsumerSendMsgBack(message.stored.physical_offset, "g", -1))
            await consumer.dead_letter(message, "no such customer")
            letters = await mq.admin.dead_letters("g")
            assert [each.body for each in letters] == [b"one"]
            assert (await mq.admin.lag("g")).lag == 0


async def test_a_dead_letter_that_no_broker_accepts_is_not_acknowledged(peer, consumer):
    peer.script(POP, popped(rec(7)))
    peer.has("%RETRY%g")
    peer.usual[RequestCode.SEND_MESSAGE_V2] = lambda _: stored(code=ResponseCode.MESSAGE_ILLEGAL)
    (message,) = await consumer.receive()
    with pytest.raises(sparrowmq.SparrowError):
        await consumer.dead_letter(message)
    assert not fields(peer, ACK)
    message.ack()
    await until(lambda: fields(peer, ACK))


async def test_a_dead_letter_whose_ack_failed_is_not_sent_again(peer, consumer):
    peer.script(POP, popped(rec(7)))
    peer.has("%RETRY%g")
    (message,) = await consumer.receive()
    peer.script(ACK, Reply(ResponseCode.SYSTEM_ERROR, remark="not now"))
    with pytest.raises(RemoteError, match="not now"):
        await consumer.dead_letter(message)
    await consumer.dead_letter(message)
    assert len(fields(peer, RequestCode.SEND_MESSAGE_V2)) == 1
    assert len(fields(peer, ACK)) == 2
    with pytest.raises(ConfigError, match="settled already"):
        await consumer.dead_letter(message)


async def two_dead_letters(peer, consumer):
    """The results of two calls for one message at the same time."""
    peer.script(POP, popped(rec(7)))
    peer.has("%RETRY%g")
    (message,) = await consumer.receive()
    calls = consumer.dead_letter(message, "first"), consumer.dead_letter(message, "second")
    return message, await asyncio.gather(*calls, return_exceptions=True)


async def test_two_calls_at_the_same_time_make_one_dead_letter(peer, consumer):
    _, results = await two_dead_letters(peer, consumer)
    (sent,) = fields(peer, RequestCode.SEND_MESSAGE_V2)
    assert "REJECT_REASON\x01first" in sent["i"]
    assert len(fields(peer, ACK)) == 1
    assert results == [None, None]


async def test_message_can_be_acknowledged_after_two_calls_failed_to_make_it_a_dead_letter(peer, consumer):
    peer.usual[RequestCode.SEND_MESSAGE_V2] = lambda _: stored(code=ResponseCode.MESSAGE_ILLEGAL)
    message, results = await two_dead_letters(peer, consumer)
    assert [type(each) for each in results] == 2 * [sparrowmq.SendFailed]
    message.ack()
    await until(lambda: fields(peer, ACK))


async def test_a_message_settles_itself_and_hooks_see_it(peer):
    class Counting(Hooks):
        seen: list[object]

        def after_consume(self, messages, error) -> None:
            self.seen.append((messages[0].offset, type(error)))

    hook = Counting()
    hook.seen = []
    peer.has("t")
    answers(peer)
    peer.script(POP, popped(rec(7), rec(8), rec(9)))
    async with connect(peer.address, hooks=[hook]) as mq:
        async with mq.simple_consumer("t", group="g") as consumer:
            done, failed, taken = await consumer.receive()
            async with done.process():
                pass
            with pytest.raises(LookupError):
                async with failed.process():
                    raise LookupError
            taken.ack()
            await until(lambda: fields(peer, CHANGE))
            status = consumer._running_info().status_table["t"]
        assert [each["offset"] for each in fields(peer, ACK)] == ["7", "9"]
    assert [each["offset"] for each in fields(peer, CHANGE)] == ["8"]
    assert hook.seen == [(7, type(None)), (8, LookupError)]
    assert status.consume_failed_msgs == 1


@pytest.mark.parametrize(
    "arguments", [{"max_messages": 0}, {"max_messages": 5000}, {"invisible_s": 0}, {"invisible_s": 90_000},
                  {"invisible_s": True}, {"wait_s": -1}]
)  # fmt: skip
async def test_wrong_arguments_are_refused_before_any_request(peer, consumer, arguments):
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        await consumer.receive(**arguments)
    assert not fields(peer, POP)


@pytest.mark.parametrize("tuning", [{"start": "yesterday"}, {"start": []}, {"order": 1}, {"max_reconsume_times": -1}])
async def test_wrong_settings_are_refused(mq, tuning):
    with pytest.raises(ConfigError, match=next(iter(tuning))):
        mq.simple_consumer("t", group="g", **tuning)


@pytest.mark.parametrize("filters", [{"tag": "paid"}, {"where": "a > 5"}, {"tag": 5}])
async def test_a_filter_without_topics_is_refused(mq, filters):
    with pytest.raises(ConfigError, match="filter topics: name the topics"):
        mq.simple_consumer(group="g", **filters)


@pytest.mark.parametrize("topics", [None, 0, "", b"", []])
async def test_topics_that_name_none_are_refused(mq, topics):
    with pytest.raises(SparrowError, match="topic"):
        mq.simple_consumer(topics, group="g")


async def test_it_receives_only_while_it_is_entered(mq):
    consumer = mq.simple_consumer("t", group="g")
    with pytest.raises(ClientClosed, match="not entered"):
        await consumer.receive()
    async with consumer:
        assert await consumer.receive(wait_s=0) == []
        with pytest.raises(ConfigError, match="consumes in group g already"):
            await mq.simple_consumer("t", group="g").__aenter__()
        assert await consumer.receive(wait_s=0) == []
    with pytest.raises(ClientClosed):
        await consumer.receive()


async def test_operators_see_its_subscriptions_and_that_it_has_no_handler(peer, consumer):
    running = consumer._running_info()
    assert [each.topic for each in running.subscription_set] == ["t"]
    assert consumer._positions_in("t") == {}
    with pytest.raises(RemoteError, match="has no handler"):
        await consumer._deliver_once(None, "broker-a")


async def test_a_broker_that_claims_messages_and_has_none_is_not_asked_without_a_pause(peer, consumer):
    peer.usual[NOTIFICATION] = lambda _: found()
    peer.usual[POP] = lambda _: NOTHING
    assert await consumer.receive(wait_s=0.5) == []
    assert 6 < len(fields(peer, POP)) < 25


async def test_no_pause_comes_between_messages_of_another_tag(peer, mq):
    peer.usual[NOTIFICATION] = lambda _: found()
    peer.script(POP, *(popped(rec(offset, "b")) for offset in range(30)), popped(rec(30, "a")))
    async with mq.simple_consumer("t", group="g", tag="a", start="earliest") as consumer:
        (message,) = await consumer.receive(1, wait_s=5)
    assert message.offset == 30
