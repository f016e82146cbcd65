import asyncio

import msgspec
import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.cluster import replies as module
from sparrowmq.client.cluster.replies import GREETING_S, wants_answer
from sparrowmq.errors import A_SLAVE, ConnectionClosed, InvalidMessage, NoRoute
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.properties import parse
from sparrowmq.protocol.requests.headers import PushReply, SendMessageReply
from sparrowmq.remoting.handler import Reply
from tests.client.conftest import until
from tests.client.consuming.test_received import stored
from tests.client.scripted import Scripted

REPLY = RequestCode.SEND_REPLY_MESSAGE_V2
REPLY_TOPIC = "c_REPLY_TOPIC"
REQUEST = stored(
    b"EURUSD", CORRELATION_ID="c-1", REPLY_TO_CLIENT="asker", TTL="3000", CLUSTER="c", TAGS="paid", own="1"
)
TAKEN = Reply(header=SendMessageReply("0", 0, 0))


@pytest.fixture
async def answers(peer):
    peer.has("t")
    peer.usual[REPLY] = lambda _: TAKEN
    async with connect(peer.address, client_id="me") as mq:
        yield mq._network.answers


async def test_an_answer_repeats_what_the_request_is_known_by(peer, answers):
    peer.has(REPLY_TOPIC, queues=1)
    assert await answers.send_answer(REQUEST, "broker-a", b"1.0842")
    (sent,) = peer.requests(REPLY)
    fields = sent.ext_fields()
    assert (fields["b"], fields["e"], bytes(sent.body)) == (REPLY_TOPIC, "0", b"1.0842")
    told = parse(fields["i"])
    assert len(told.pop("UNIQ_KEY")) == 32
    assert told == {
        "MSG_TYPE": "reply",
        "WAIT": "true",
        "CORRELATION_ID": "c-1",
        "REPLY_TO_CLIENT": "asker",
        "TTL": "3000",
    }


async def test_the_broker_of_the_request_is_told_first_then_those_that_the_asker_may_be_connected_to(peer, answers):
    async with Scripted("broker-b") as other:
        peer.has(REPLY_TOPIC, queues=1, others={"broker-b": other.address})
        other.usual[REPLY] = lambda _: TAKEN
        peer.script(REPLY, Reply(ResponseCode.SYSTEM_ERROR, remark="channel of <asker> not found"))
        assert await answers.send_answer(REQUEST, "broker-a", b"x")
        assert (len(peer.requests(REPLY)), len(other.requests(REPLY))) == (1, 1)
        assert await answers.send_answer(REQUEST, "broker-b", b"x")
        assert (len(peer.requests(REPLY)), len(other.requests(REPLY))) == (1, 2)


async def test_an_asker_that_no_broker_knows_has_no_answer(peer, answers, caplog):
    peer.has(REPLY_TOPIC, queues=1)
    peer.script(REPLY, Reply(ResponseCode.SYSTEM_ERROR, remark="channel of <asker> not found"))
    assert not await answers.send_answer(REQUEST, "broker-a", b"x")
    assert "channel of <asker> not found" in caplog.text


async def test_when_no_broker_can_be_asked_nobody_knows(peer, answers, monkeypatch):
    monkeypatch.setattr(module, "ELECTION_LIMIT_S", 0.2)
    peer.has(REPLY_TOPIC, queues=1)
    peer.usual[REPLY] = lambda _: [session.close() for session in peer.sessions] and None
    with pytest.raises(ConnectionClosed):
        await answers.send_answer(REQUEST, "broker-a", b"x")


async def test_an_answer_waits_for_the_next_master_and_for_the_asker_there(peer, answers, monkeypatch):
    monkeypatch.setattr(module, "PAUSE_S", 0.01)
    doubts: list[int] = []
    monkeypatch.setattr(answers._routes, "doubt", lambda: doubts.append(1))
    peer.has(REPLY_TOPIC, queues=1)
    slaves = Reply(ResponseCode.SERVICE_NOT_AVAILABLE, remark=f"service not available now: {A_SLAVE}")
    unknown = Reply(ResponseCode.SYSTEM_ERROR, remark="channel of <asker> not found")
    peer.script(REPLY, slaves, slaves, unknown)
    assert await answers.send_answer(REQUEST, "broker-a", b"x")
    assert len(peer.requests(REPLY)) == 4 and len(doubts) == 3


async def test_who_waits_for_an_answer_connects_again_to_a_master_that_it_lost(peer, answers, monkeypatch):
    monkeypatch.setattr(module, "POLL_S", 0.01)
    await answers._routes.of("t")
    with answers.expect_reply("c-1"):
        await until(lambda: peer.sessions)
        for session in peer.sessions:
            session.close()
        await until(lambda: answers._brokers.open_session(peer.address) is None)
        await until(lambda: answers._brokers.open_session(peer.address) is not None)
    await until(lambda: not answers._is_watching_masters)
    with answers.expect_reply("c-2"):
        assert answers._is_watching_masters


async def test_who_waits_for_an_answer_asks_who_is_the_master_when_there_is_none(peer, answers, monkeypatch):
    monkeypatch.setattr(module, "POLL_S", 0.01)
    await answers._routes.of("t")
    monkeypatch.setattr(answers._routes, "_brokers", {"broker-a": {1: peer.address}})
    with answers.expect_reply("c-1"):
        await until(answers._routes._refresh_requested.is_set)


async def test_without_a_route_for_answers_the_requests_broker_is_told(peer, answers):
    await answers._routes.of("t")
    assert await answers.send_answer(REQUEST, "broker-a", b"x")


@pytest.mark.parametrize("missing", ["REPLY_TO_CLIENT", "CORRELATION_ID", "CLUSTER"])
async def test_what_does_not_ask_cannot_be_answered(answers, missing):
    properties = {name: value for name, value in REQUEST.properties.items() if name != missing}
    message = msgspec.structs.replace(REQUEST, properties=properties)
    assert wants_answer(message) == (missing == "CLUSTER")
    with pytest.raises(InvalidMessage):
        await answers.send_answer(message, "broker-a", b"x")
    with pytest.raises(InvalidMessage, match="empty"):
        await answers.send_answer(REQUEST, "broker-a", b"")


def push(correlation_id: str, body: bytes = b"1", **fields) -> tuple[PushReply, bytes, str]:
    properties = f"CORRELATION_ID\x01{correlation_id}\x02own\x012\x02"
    return PushReply("p", REPLY_TOPIC, "TBW102", 4, 0, 0, 17, 3, properties, **fields), body, "10.0.0.9:10911"


async def test_an_answer_reaches_who_expects_it(answers):
    with answers.expect_reply("one") as one, answers.expect_reply("two") as two:
        answers.on_reply(*push("two", b"2", born_host="10.0.0.3:1", store_host="10.0.0.9:2", store_timestamp=5))
        message = await two
        assert not one.done()
    assert (message.body, message.properties["own"], message.flag) == (b"2", "2", 3)
    assert (message.born_timestamp_ms, message.store_timestamp_ms) == (17, 5)
    assert (message.born_host, message.store_host) == ("10.0.0.3:1", "10.0.0.9:2")
    assert int(message.properties["ARRIVE_TIME"]) > 0


async def test_of_several_answers_the_first_counts_and_late_ones_are_dropped(answers):
    with answers.expect_reply("one") as one:
        answers.on_reply(*push("one", b"first"))
        answers.on_reply(*push("one", b"second"))
        assert (await one).body == b"first"
    answers.on_reply(*push("one", b"third"))
    answers.on_reply(PushReply("p", REPLY_TOPIC, "TBW102", 4, 0, 0, 1, 0), b"", "10.0.0.9:1")


async def test_every_broker_through_which_an_answer_may_come_is_greeted_once(peer, answers):
    async with Scripted("broker-b") as other, Scripted("broker-c") as stranger:
        peer.has(REPLY_TOPIC, queues=1, others={"broker-b": other.address}, cluster="c")
        peer.has("t", cluster="c")
        peer.has("elsewhere", others={"broker-c": stranger.address})
        await answers.greet_brokers("t")
        await answers.greet_brokers("t")
        beats = [len(each.requests(RequestCode.HEART_BEAT)) for each in (peer, other, stranger)]
    assert beats == [1, 1, 0]


async def test_a_broker_that_cannot_be_greeted_does_not_hold_requests_up(peer, answers):
    peer.has("t", cluster="c")
    peer.has(REPLY_TOPIC, queues=1, others={"broker-b": "127.0.0.1:1"}, cluster="c")
    await asyncio.wait_for(answers.greet_brokers("t"), GREETING_S + 5)
    assert peer.requests(RequestCode.HEART_BEAT)


async def test_a_topic_that_nobody_knows_is_an_error_of_the_request(peer, answers):
    peer.brokers = {"broker-a": peer.address}
    with pytest.raises(NoRoute):
        await answers.greet_brokers("nowhere")
