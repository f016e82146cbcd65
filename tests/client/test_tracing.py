"""What a client reports to the trace topic, and that nothing waits for it."""

import asyncio

import pytest

from sparrowmq.client import tracing
from sparrowmq.client.client import connect
from sparrowmq.errors import InvalidName, NoRoute
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import Message
from sparrowmq.protocol.messages.properties import parse
from sparrowmq.protocol.messages.trace import (
    EndTransactionTrace,
    PubTrace,
    Reaction,
    SubAfterTrace,
    SubBeforeTrace,
    TracedKind,
    decode,
)
from sparrowmq.remoting.handler import Reply
from sparrowmq.testing.clock import ManualClock
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until
from tests.client.scripted import stored

TOPIC = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture
async def cluster(tmp_path):
    async with Cluster(tmp_path, trace_topic_enabled=True) as started:
        yield started


async def traces(mq, msg_id, count, topic=TOPIC):
    """The traces of a message, once there are so many."""
    deadline = asyncio.get_running_loop().time() + 10
    while len(found := await mq.admin.trace(msg_id, topic)) < count:
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.005)
    return found


async def test_what_is_sent_and_consumed_is_reported(cluster, mq):
    async with connect(cluster.namesrv, trace=True, group="shop") as traced:
        sent = await traced.send("orders", b"hello", tag="paid", keys=["o-1", "o-2"])
        async with traced.subscribe("orders", lambda message: None, group="billing", start="earliest"):
            pub, before, after = await traces(mq, sent.msg_id, 3)
    assert isinstance(pub, PubTrace) and isinstance(before, SubBeforeTrace)
    assert (pub.group, pub.topic, pub.tag, pub.keys) == ("shop", "orders", "paid", "o-1 o-2")
    assert (pub.store_host, pub.offset_msg_id) == (cluster.brokers[0].address, sent.offset_msg_id)
    assert (pub.body_size, pub.kind, pub.is_success) == (5, TracedKind.NORMAL, True)
    assert (before.group, before.retries, before.keys) == ("billing", 0, "o-1 o-2")
    assert isinstance(after, SubAfterTrace)
    assert (after.group, after.request_id, after.is_success) == ("billing", before.request_id, True)
    assert after.reaction is Reaction.SUCCESS and (after.time_ms or 0) >= before.time_ms
    assert await traces(mq, sent.msg_id, 3), "they are found by the message's id"
    assert len(await mq.admin.find(TOPIC, "o-2")) > 0, "and by its keys"


async def test_how_a_transaction_ended_is_reported(tmp_path):
    """By its producer, and by whoever was asked."""
    clock, asked = ManualClock(), []

    def check(message):
        asked.append(message.msg_id)
        return True

    async with (
        Cluster(tmp_path, trace_topic_enabled=True, clock=clock) as cluster,
        connect(cluster.namesrv, trace=True, group="pay", namespace="shop", clock=clock) as traced,
    ):
        traced.check("pay")(check)
        async with traced.transaction("orders", b"1", tag="paid", keys="o-1") as committed:
            pass
        async with traced.transaction("orders", b"2") as rolled_back:
            await rolled_back.rollback()
        async with traced.transaction("orders", b"3") as later:
            await later.unknown()
        found: dict = {}
        for transaction, count in ((later, 2), (committed, 1), (rolled_back, 1)):
            deadline = asyncio.get_running_loop().time() + 10
            while len(found.get(transaction.msg_id, ())) < count:
                assert asyncio.get_running_loop().time() < deadline, found
                await clock.advance(0.5)
                found[transaction.msg_id] = [
                    each
                    for each in await traced.admin.trace(transaction.msg_id)
                    if isinstance(each, EndTransactionTrace)
                ]
        assert asked == [later.msg_id]
        (begun,) = [each for each in await traced.admin.trace(committed.msg_id) if isinstance(each, PubTrace)]
        host = cluster.brokers[0].address
    assert (begun.kind, begun.is_success) == (TracedKind.HALF, True), "as Java's client says"
    (end,) = found[committed.msg_id]
    assert (end.group, end.topic, end.tag, end.keys) == ("pay", "orders", "paid", "o-1")
    assert (end.state, end.is_check, end.store_host) == ("COMMIT_MESSAGE", False, host)
    assert (end.kind, end.transaction_id) == (TracedKind.COMMIT, committed.msg_id)
    assert [each.state for each in found[rolled_back.msg_id]] == ["ROLLBACK_MESSAGE"]
    said = [(each.state, each.is_check, each.topic, each.group) for each in found[later.msg_id]]
    assert said == [("UNKNOW", False, "orders", "pay"), ("COMMIT_MESSAGE", True, "orders", "pay")]


async def test_a_failed_delivery_is_reported_as_such_and_so_is_the_next(cluster, mq):
    def fail_once(message):
        if not message.reconsume_times:
            raise ValueError("not yet")

    async with connect(cluster.namesrv, trace=True) as traced:
        sent = await traced.send("orders", b"hello", delay_level=1)
        async with traced.subscribe("orders", start="earliest", group="billing") as orders:
            (message,) = await orders.take()
            with pytest.raises(ValueError, match="not yet"):
                async with message.process():
                    fail_once(message)
            pub, before, after = await traces(mq, sent.msg_id, 3)
    assert (pub.kind, before.retries) == (TracedKind.DELAYED, 0)
    assert (after.is_success, after.reaction) == (False, Reaction.EXCEPTION)


async def test_what_waits_is_sent_when_the_client_is_left(cluster, mq):
    async with connect(cluster.namesrv, trace=True) as traced:
        sent = await traced.send("orders", b"hello")
        many = await traced.send_many([Message("orders", b"%d" % number) for number in range(250)])
    assert len(await mq.admin.trace(sent.msg_id)) == 1
    assert len(await mq.admin.trace(many[-1].msg_id)) == 1
    assert len(await traces(mq, many[0].msg_id, 1)) == 1


async def test_a_topic_of_ones_own_takes_traces(cluster, mq):
    await mq.admin.create_topic("my-traces", queues=1)
    async with connect(cluster.namesrv, trace="my-traces", namespace="shop") as traced:
        sent = await traced.send("orders", b"hello")
    (pub,) = await traces(mq, sent.msg_id, 1, "my-traces")
    assert pub.topic == "orders", "names are those of the program"
    for name in ("no such topic!", ""):
        with pytest.raises(InvalidName):
            connect(cluster.namesrv, trace=name)


async def test_traces_are_not_traced(cluster, mq):
    async with connect(cluster.namesrv, trace=True) as traced:
        own = await traced.send(TOPIC, b"Pub")
        await traced.send("orders", b"hello")
        async with traced.subscribe(TOPIC, group="watchers", start="earliest") as watched:
            (message,) = await watched.take()
            async with message.process():
                pass
    assert await mq.admin.trace(own.msg_id) == []


async def test_without_the_topic_nobody_can_look(mq):
    with pytest.raises(NoRoute):
        await mq.admin.trace("ID", "no-traces")


async def test_what_is_no_trace_is_left_out(mq, caplog):
    await mq.admin.create_topic("my-traces", queues=1)
    for body in (b"Pub\x01x\x02", b"\xff"):
        await mq.send("my-traces", body, keys="ID")
    while len(await mq.admin.find("my-traces", "ID")) < 2:
        pass
    assert await mq.admin.trace("ID", "my-traces") == []
    assert caplog.text.count("is no trace") == 2


# Scripted -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def traced(peer, clock):
    peer.has("t")
    peer.has(TOPIC, queues=1)
    async with connect(peer.address, trace=True, clock=clock) as mq:
        yield mq


def trace_messages(peer):
    return [command for command in peer.sent if command.ext_fields()["b"] == TOPIC]


async def test_traces_go_out_together_after_a_second(peer, clock, traced):
    for _ in range(3):
        await traced.send("t", b"x", keys="k")
    await clock.advance(0.9)
    assert not trace_messages(peer)
    await clock.advance(0.2)
    await until(lambda: trace_messages(peer))
    (message,) = trace_messages(peer)
    records = decode(bytes(message.body).decode())
    assert len(records) == 3
    assert message.ext_fields()["a"] == "_INNER_TRACE_PRODUCER"
    keys = parse(message.ext_fields()["i"])["KEYS"].split(" ")
    assert sorted(keys) == sorted(["k", *(each.msg_id for each in records)])
    assert traced.unanswered == 0


async def test_a_hundred_traces_do_not_wait(peer, traced):
    await asyncio.gather(*(traced.send("t", b"x") for _ in range(tracing.MAX_RECORDS)))
    await until(lambda: trace_messages(peer))


async def test_a_message_of_traces_is_never_too_large(peer, clock, traced):
    for number in range(6):
        await traced.send("t", b"x", keys=[f"{number}" * 3000])
    await traced.send("t", b"x", keys=["v" * 20_000])
    await clock.advance(1.1)
    await until(lambda: len(trace_messages(peer)) >= 2)
    keys = [parse(message.ext_fields()["i"])["KEYS"] for message in trace_messages(peer)]
    assert all(len(each) <= tracing.MAX_KEYS_BYTES for each in keys)
    assert not [each for each in keys if "vv" in each], "what is so long is found by the id alone"


async def test_a_send_neither_waits_nor_fails_for_its_trace(peer, clock, traced, caplog, monkeypatch):
    monkeypatch.setattr(tracing, "MAX_WAITING", 2)
    for _ in range(5):
        assert await traced.send("t", b"x")
    assert caplog.text.count("traces are lost by now") == 1, "once a minute is enough"
    assert traced._tracing.lost_count == 3


async def test_traces_that_brokers_refuse_are_lost_and_told_of(peer, clock, traced, caplog):
    def answer(command):
        refused = Reply(ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
        return refused if command.ext_fields()["b"] == TOPIC else stored()

    peer.usual[RequestCode.SEND_MESSAGE_V2] = answer
    await traced.send("t", b"x")
    await clock.advance(1.1)
    await until(lambda: traced._tracing.lost_count == 1)
    assert "traceTopicEnable=true" in caplog.text


async def test_what_failed_or_had_no_answer_is_not_reported(peer, clock, traced):
    peer.script(RequestCode.SEND_MESSAGE_V2, Reply(ResponseCode.MESSAGE_ILLEGAL, remark="no"))
    with pytest.raises(Exception, match="no"):
        await traced.send("t", b"x")
    traced.send_nowait("t", b"x")
    await clock.advance(5)
    assert not trace_messages(peer)


async def test_a_client_that_does_not_trace_has_the_plain_producer(peer):
    peer.has("t")
    async with connect(peer.address) as mq:
        assert type(mq._producer).__name__ == "Producer" and mq._tracing is None
