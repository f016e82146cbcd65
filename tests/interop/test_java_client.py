"""What only the Java client does: asynchronous sends, lite pull, searches, binary headers, other compressions."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

import sparrowmq
from sparrowmq.protocol.messages.trace import (
    EndTransactionTrace,
    PubTrace,
    SubAfterTrace,
    SubBeforeTrace,
    Trace,
)
from tests.interop.apache import free_ports
from tests.interop.clients import JavaClient
from tests.interop.conftest import BINARY_HEADERS
from tests.interop.servers import OURS, OurBroker, OurNamesrv, Target


@pytest.mark.slow
@pytest.mark.covers("S-CONS-01", "S-CONS-05", "S-CONS-15")
@pytest.mark.cell("pull")
def test_a_lite_pull_consumer_polls_what_matches_and_commits_it(target, java, topic, group):
    if java.name == "java-5.4.0" and not target.is_ours:
        pytest.skip("Apache's 4.9.7 cannot: it does not know LITE_PULL_MESSAGE (361)")
    for number in range(6):
        java.send(topic, f"{number}", how="ordered", shard=number % 2, tags=f"Tag{'ABC'[number % 3]}")
    polled = java.call("pull", group=group, topic=topic, expression="TagA || TagB", count=4)
    assert sorted(polled["bodies"]) == ["0", "1", "3", "4"]
    deadline = time.monotonic() + 10  # the client does not wait until the broker has its offsets
    while (committed := [target.committed(group, topic, queue) for queue in range(2)]) != [3, 2]:
        assert time.monotonic() < deadline, committed  # what came last did not match
    java.send(topic, "6", tags="TagB")
    assert java.call("pull", group=group, topic=topic, expression="TagA || TagB", count=1)["bodies"] == ["6"]


@pytest.mark.covers("S-CONS-16")
@pytest.mark.cell("sql")
def test_a_push_consumer_gets_what_its_expression_lets_through(java, topic, group):
    for colour in ("red", "5", "blue", "it's"):
        java.send(topic, colour, colour=colour)
    java.send(topic, "none")
    wanted = "colour IN ('red', 'it''s') OR colour IS NULL"
    with java.consume(group, topic, wanted, type="SQL92") as consumer:
        received = consumer.wait_for_bodies(["red", "it's", "none"])
    assert sorted(event["body"] for event in received) == ["it's", "none", "red"]


@pytest.mark.covers("S-STORE-05", "S-STORE-06")
def test_messages_are_found_by_id_key_and_time(java, topic):
    sent = java.send(topic, "first", keys="key-1 key-2", how="ordered", shard=0)
    java.send(topic, "second", keys="key-2", how="ordered", shard=1)
    java.send(topic, "third", keys="key-3", how="ordered", shard=1)
    found = java.call("look", topic=topic, id=sent["offset_id"], keys="key-2")
    assert found["viewed"] == "first"
    assert sorted(found["found"]) == ["first", "second"]
    assert found["bounds"] == ["0..1 from 0", "0..2 from 0"]
    by_unique_id = java.call("look", topic=topic, id=sent["id"], keys="key-3")
    assert (by_unique_id["viewed"], by_unique_id["found"]) == ("first", ["third"])


def test_a_request_is_answered(target, java, topic, group):
    with java.consume(group, topic) as consumer:
        assert java.call("request", topic=topic, body="EURUSD")["body"] == "re: EURUSD"
        (asked,) = consumer.wait_for(1)
    assert asked["body"] == "EURUSD"
    assert target.end_of("DefaultCluster_REPLY_TOPIC") > 0


async def test_our_client_answers_java_and_java_answers_ours(target, java, topic, group):
    async def answer(message: sparrowmq.ReceivedMessage) -> None:
        assert await message.reply(b"ours: " + message.body)

    async with sparrowmq.connect(target.namesrv) as mq:
        async with mq.subscribe(topic, answer, group=group, start="earliest"):
            body = await asyncio.to_thread(java.call, "request", topic=topic, body="from Java")
        assert body["body"] == "ours: from Java"
        with java.consume(f"{group}-java", topic) as consumer:
            await asyncio.to_thread(consumer.wait_for, 1)
            assert (await mq.request(topic, b"from ours", timeout_s=20)).body == b"re: from ours"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.8", pytest.param("5.4.0", marks=pytest.mark.nightly)])
async def test_what_java_traces_is_read(target, topic, group, version):
    # A consumer of 5.x reports only messages that their broker has stored with its region, as only 5.x's brokers do.
    expected = {"4.9.8": 3, "5.4.0": 1}[version]
    with JavaClient(version, target.namesrv) as client:
        client.call("produce", group=f"{group}-traced", trace=True)
        sent = client.send(topic, "traced", tags="TagA", keys="key-1 key-2")
        with client.consume(group, topic, trace=True) as consumer:
            consumer.wait_for(1)
            async with sparrowmq.connect(target.namesrv) as mq:
                deadline = time.monotonic() + 30
                while len(traces := await mq.admin.trace(sent["id"])) < expected:
                    assert time.monotonic() < deadline, traces
                    await asyncio.sleep(0.1)
    pub, *rest = traces
    assert isinstance(pub, PubTrace)
    assert (pub.group, pub.topic, pub.tag, pub.keys) == (f"{group}-traced", topic, "TagA", "key-1 key-2")
    assert (pub.store_host, pub.offset_msg_id) == (target.broker, sent["offset_id"])
    if rest:
        before, after = rest
        assert isinstance(before, SubBeforeTrace) and isinstance(after, SubAfterTrace)
        assert (after.group, after.request_id, after.is_success) == (group, before.request_id, True)


@pytest.mark.slow
async def test_a_traced_transaction_looks_the_same_from_java_and_from_ours(target, topic, group):
    """Half message and end, but for what each message has of its own: its ids, and times."""
    tag, keys, body = "paid", "key-1 key-2", "half"
    with JavaClient("4.9.8", target.namesrv) as client:
        transaction = {"group": group, "topic": topic, "tags": tag, "keys": keys, "body": body, "trace": True}
        sent = client.call("transact", now="commit", **transaction)
        async with sparrowmq.connect(target.namesrv, trace=True, group=group) as mq:
            mq.check(group)(lambda message: True)
            async with mq.transaction(topic, body.encode(), tag=tag, keys=keys.split()) as ours:
                pass
            found: list[list[PubTrace | EndTransactionTrace]] = []
            for msg_id in (sent["id"], ours.msg_id):
                deadline = time.monotonic() + 30
                while len(traces := await mq.admin.trace(msg_id)) < 2:
                    assert time.monotonic() < deadline, traces
                    await asyncio.sleep(0.1)
                found.append([_without_own(trace, msg_id) for trace in traces])
    assert found[0] == found[1]
    assert [trace.kind.name for trace in found[1]] == ["HALF", "COMMIT"]


def _without_own(trace: Trace, msg_id: str) -> PubTrace | EndTransactionTrace:
    assert trace.msg_id == msg_id
    if isinstance(trace, PubTrace):
        return replace(trace, time_ms=0, cost_ms=0, msg_id="", offset_msg_id="")
    assert isinstance(trace, EndTransactionTrace) and trace.transaction_id == msg_id
    return replace(trace, time_ms=0, msg_id="", transaction_id="")


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.8", pytest.param("5.4.0", marks=pytest.mark.nightly)])
def test_a_client_with_binary_headers_sends_consumes_and_retries(target, topic, group, version):
    target.create_group(group, retries=16)
    with JavaClient(version, target.namesrv, jvm=[BINARY_HEADERS]) as client:
        assert client.call("serialization")["type"] == "ROCKETMQ"
        client.send(topic, "binary 消息", tags="TagA", keys="key-1", colour="blue")
        client.send(topic, "one|two", how="batch", tags="TagB")
        with client.consume(group, topic, "TagA || TagB", fail=1) as consumer:
            received = consumer.wait_for(6)
    assert sorted(event["body"] for event in received) == sorted(["binary 消息", "one", "two"] * 2)
    assert sorted(event["retries"] for event in received) == [0, 0, 0, 1, 1, 1]
    assert [event["colour"] for event in received if event["tags"] == "TagA"] == ["blue", "blue"]


@pytest.mark.nightly
@pytest.mark.covers("S-PROD-10")
@pytest.mark.parametrize("compression", ["LZ4", "ZSTD"])
def test_other_compressions_pass_through(target, topic, group, compression):
    with JavaClient("5.4.0", target.namesrv, jvm=[f"-Drocketmq.message.compressType={compression}"]) as client:
        client.send(topic, "squeeze ", times=2500)
        with client.consume(group, topic) as consumer:
            (received,) = consumer.wait_for(1)
    assert received["body"] == "squeeze " * 2500
    assert received["size"] < 2000


@pytest.mark.slow
def test_a_client_sends_by_the_port_of_the_vip_channel(tmp_path):
    conf = {"fastListenPort": free_ports(3)[0]}
    jvm = ["-Dcom.rocketmq.sendMessageWithVIPChannel=true"]
    port = conf["fastListenPort"] + 2
    with OurNamesrv() as namesrv, OurBroker(namesrv.address, tmp_path, conf, port=port) as broker:
        target = Target(OURS, namesrv.address, broker.address)
        target.create_topic("T")
        with JavaClient("4.9.8", namesrv.address, jvm=jvm) as java:
            java.send("T", "past the queue")
            with java.consume("g", "T") as consumer:
                assert [event["body"] for event in consumer.wait_for(1)] == ["past the queue"]


@pytest.mark.nightly
@pytest.mark.cell("time")
def test_messages_of_5_come_at_their_time_and_a_recalled_one_does_not(tmp_path):
    with OurNamesrv() as namesrv, OurBroker(namesrv.address, tmp_path / "store") as broker:
        Target(OURS, namesrv.address, broker.address).create_topic("timed", queues=1)
        with JavaClient("5.4.0", namesrv.address) as client, client.consume("g", "timed") as consumer:
            begin_ms = time.time_ns() // 1_000_000
            client.send("timed", "ms", setDelayTimeMs=1500)
            client.send("timed", "sec", setDelayTimeSec=2)
            client.send("timed", "at", setDeliverTimeMs=begin_ms + 2500)
            recalled = client.send("timed", "recalled", setDeliverTimeMs=begin_ms + 2000)
            assert client.call("recall", topic="timed", handle=recalled["handle"])["id"] == recalled["id"]
            received = consumer.wait_for(3)
    assert [event["body"] for event in received] == ["ms", "sec", "at"]
    late_ms = [event["stored"] - begin_ms for event in received]
    assert late_ms[0] >= 1500 and late_ms[1] >= 2000 and late_ms[2] >= 2500
