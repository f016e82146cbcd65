"""Sends of one turn travel together, and each sender gets what a single send would have given it."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparrowmq.client.client import Client, connect
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.hooks import Hooks
from sparrowmq.client.sending.encoder import MessageEncoder
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_result import SendResult, SendStatus
from sparrowmq.errors import ClientClosed, ConfigError, RemoteError, SendFailed
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages import batch, properties
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.requests.headers import HeartBeatReply, SendMessageReply, SendMessageV2
from sparrowmq.remoting.handler import Reply
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until
from tests.client.scripted import Scripted, messages_in, stored

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE
ILLEGAL = Reply(ResponseCode.MESSAGE_ILLEGAL, remark="no")
BUSY = Reply(ResponseCode.SYSTEM_BUSY, remark="[TIMEOUT_CLEAN_QUEUE]broker busy")


@asynccontextmanager
async def client(peer: Scripted, **settings):
    """A client whose first message is in flight and stays there, so that others are gathered."""
    peer.has("t")
    async with connect(peer.address, settings=ProducerSettings(**settings)) as mq:
        await mq.send("t", b"the route is known", tag="a")
        await mq.send("t", b"the route is known")
        peer.received.clear()
        peer.script(SEND, None)
        first = mq.send_soon("t", b"in flight", timeout_s=60)
        yield mq
        first.cancel()
        for session in peer.sessions:  # or leaving would wait for the answer
            session.close()


def bodies(peer: Scripted) -> list[list[bytes]]:
    """The bodies of each request after the one that stays in flight."""
    return [
        [bytes(part.body) for part in batch.decode(command.body)] if command.code == BATCH else [command.body]
        for command in peer.sent[1:]
    ]


async def test_sends_of_one_turn_are_one_request_with_a_result_for_each(peer):
    async with client(peer) as mq:
        reply = SendMessageReply(msg_id="A0,A1,A2", queue_id=2, queue_offset=10)
        peer.script(BATCH, Reply(header=reply))
        sends = [mq.send("t", b"0"), mq.send("t", b"1", tag="a"), mq.send("t", b"2", properties={"a": "b"})]
        results = await asyncio.gather(*sends)
        header = peer.sent[1].header(SendMessageV2)
        parts = batch.decode(peer.sent[1].body)
    assert bodies(peer) == [[b"0", b"1", b"2"]]
    assert header.batch and header.properties == ""
    assert [properties.parse(part.properties)["UNIQ_KEY"] for part in parts] == [each.msg_id for each in results]
    assert [(each.offset_msg_id, each.offset) for each in results] == [("A0", 10), ("A1", 11), ("A2", 12)]
    assert {each.queue for each in results} == {MessageQueue("t", "broker-a", 2)}
    assert {each.status for each in results} == {SendStatus.OK}


async def test_a_message_that_meets_nothing_in_flight_leaves_at_once(peer):
    peer.has("t")
    async with connect(peer.address) as mq:
        await mq.send("t", b"the route is known")
        peer.received.clear()
        await asyncio.gather(*(mq.send("t", b"%d" % number) for number in range(3)))
    assert [messages_in(command) for command in peer.sent] == [1, 2]


async def test_messages_that_leave_alone_take_the_short_way_too(peer, monkeypatch):
    peer.has("t")
    async with connect(peer.address) as mq:
        await mq.send("t", b"checked", tag="a")
        checked: list[Message] = []
        monkeypatch.setattr(MessageEncoder, "check", lambda self, message: checked.append(message))
        results = [await mq.send("t", b"x", tag="a"), await mq.send_soon("t", b"x", tag="a", keys="k")]
        assert checked == []
        await mq.send("t", b"x", tag="b")
    assert len(checked) == 1 and [messages_in(command) for command in peer.sent] == [1] * 4
    sent = [properties.parse(each.header(SendMessageV2).properties) for each in peer.sent[1:3]]
    usual = {"TAGS": "a", "WAIT": "true"}
    assert sent[0] == usual | {"UNIQ_KEY": results[0].msg_id}
    assert sent[1] == usual | {"UNIQ_KEY": results[1].msg_id, "KEYS": "k"}


async def test_a_message_that_leaves_alone_is_with_the_socket_at_once(peer):
    peer.has("t")
    async with connect(peer.address) as mq:
        await mq.send("t", b"the route is known")
        address = mq._network.routes.master("broker-a")
        session = mq._network.brokers.open_session(address or "")
        assert session is not None
        before = session.sent_bytes
        answer = mq.send_soon("t", b"x")
        sent = session.sent_bytes
        await answer
    assert sent > before and session.sent_bytes >= sent


async def test_a_message_that_is_alone_in_its_turn_is_a_single_message(peer):
    async with client(peer) as mq:
        result = await mq.send("t", b"x", tag="a")
    (command,) = peer.sent[1:]
    assert command.code == SEND and command.body == b"x" and result.offset == 7
    assert properties.parse(command.header(SendMessageV2).properties) == {
        "TAGS": "a", "WAIT": "true", "UNIQ_KEY": result.msg_id,
    }  # fmt: skip


@pytest.mark.parametrize("namespace", ["", "shop"])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"tag": "a"},
        {"keys": "k1"},
        {"keys": "k1", "tag": "a"},
        {"keys": ["k1", "k2"], "properties": {"a": "b"}},
        {"keys": "schlüssel"},
        {"tag": "ä"},
        {"timeout_s": 2},
    ],
)
async def test_properties_are_those_of_a_single_message(peer, arguments, namespace):
    """The short way and the long way, in a batch and alone: each gives the same properties, in the same order."""
    peer.has(f"{namespace}%t" if namespace else "t")
    settings = ProducerSettings(max_batch=1)
    async with (
        connect(peer.address, namespace=namespace) as mq,
        connect(peer.address, namespace=namespace, settings=settings) as plain,
    ):
        alone = await plain.send("t", b"x", **arguments)
        expected = peer.sent[-1].header(SendMessageV2).properties.replace(alone.msg_id, "")
        expected = expected.replace("WAIT\x01true\x02", "")  # as brokers take for granted
        for _ in range(3):
            results = await asyncio.gather(*(mq.send("t", b"x", **arguments) for _ in range(3)))
            parts = batch.decode(peer.sent[-1].body)
            found = [
                bytes(part.properties).decode().replace(each.msg_id, "")
                for part, each in zip(parts, results[1:], strict=True)
            ]
            assert found == [expected] * 2
            assert {each.queue.topic for each in results} == {"t"}


async def test_what_cannot_be_in_a_batch_goes_alone(peer):
    async with client(peer) as mq:
        queue = (await mq.queues("t"))[0]
        strangers = [
            mq.send_soon("t", b"delayed", delay="10s"),
            mq.send_soon("t", b"by key", fifo="k"),
            mq.send_soon("t", b"to a queue", queue=queue),
            mq.send_soon(Message("t", b"flag", flag=1)),
            mq.send_soon(Message("t", b"need not wait", wait_stored=False)),
            mq.send_soon("t", b"large" * 1000),
            mq.send_soon("t", b"for the broker", properties={"CORRELATION_ID": "c"}),
        ]
        usual = [mq.send_soon("t", b"1"), mq.send_soon("t", b"2")]
        await asyncio.gather(*strangers, *usual)
    assert [messages_in(command) for command in peer.sent[1:]] == [1] * len(strangers) + [2]


async def test_sends_keep_the_order_of_their_calls(peer):
    """One that goes alone does not pass those that are gathered."""
    async with client(peer) as mq:
        sends = [mq.send_soon("t", body) for body in (b"1", b"2", b"3" * 5000, b"4", b"5")]
        mq.send_nowait("t", b"6")
        await asyncio.gather(*sends)
    assert [[body[:1] for body in each] for each in bodies(peer)] == [
        [b"1", b"2"], [b"x"], [b"4", b"5"], [b"6"],
    ]  # fmt: skip


async def test_topics_and_time_limits_are_not_mixed(peer):
    peer.has("u")
    async with client(peer) as mq:
        await mq.send("u", b"the route is known")
        peer.received[:] = peer.received[:1]
        sends = [mq.send_soon(topic, topic.encode()) for topic in "tutu"]
        sends += [mq.send_soon("t", b"5 s", timeout_s=5), mq.send_soon("t", b"5 s", timeout_s=5)]
        await asyncio.gather(*sends)
        commands = [command for command in peer.sent if messages_in(command) == 2]
    found = sorted(
        (command.header(SendMessageV2).topic, [bytes(part.body) for part in batch.decode(command.body)])
        for command in commands
    )
    assert found == [("t", [b"5 s"] * 2), ("t", [b"t"] * 2), ("u", [b"u"] * 2)]


async def test_a_batch_has_limits_of_messages_and_bytes(peer):
    async with client(peer, max_batch=4, max_bytes=1000) as mq:
        await asyncio.gather(*(mq.send("t", b"x") for _ in range(10)))
        assert [messages_in(command) for command in peer.sent[1:]] == [4, 4, 2]
        peer.received[1:] = []
        await asyncio.gather(*(mq.send("t", b"x" * 300) for _ in range(5)))
        assert [messages_in(command) for command in peer.sent[1:]] == [2, 2, 1]
        assert all(len(command.body) <= 1000 for command in peer.sent)


async def test_nothing_is_gathered_if_that_is_not_wanted(peer):
    async with client(peer, max_batch=1) as mq:
        await asyncio.gather(*(mq.send("t", b"x") for _ in range(3)))
    assert [messages_in(command) for command in peer.sent[1:]] == [1, 1, 1]
    with pytest.raises(ConfigError):
        ProducerSettings(max_batch=0)


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    ],
)
async def test_the_message_that_a_broker_refuses_takes_no_other_with_it(peer, code):
    """A broker refuses a batch as a whole. What each message is worth shows when it is sent alone."""
    async with client(peer) as mq:
        peer.usual[BATCH] = lambda _: Reply(code, remark="one of them is wrong")
        peer.usual[SEND] = lambda command: ILLEGAL if command.body == b"1" else stored(queue_offset=9)
        sends = [mq.send("t", b"%d" % number) for number in range(3)]
        results: list[Any] = await asyncio.gather(*sends, return_exceptions=True)
    assert bodies(peer) == [[b"0", b"1", b"2"], [b"0"], [b"1"], [b"2"]]
    first, wrong, last = results
    assert first.offset == last.offset == 9 and first.msg_id != last.msg_id
    assert isinstance(wrong, SendFailed) and not wrong.is_in_doubt
    assert isinstance(wrong.cause, RemoteError) and wrong.cause.code == ResponseCode.MESSAGE_ILLEGAL


async def test_a_batch_that_fails_for_an_unknown_reason_is_retried_and_then_parted(peer):
    """Apache's 4.9.7 answers SYSTEM_ERROR if one of the messages is too large."""
    async with client(peer, retries=1) as mq:
        peer.usual[BATCH] = lambda _: Reply(ResponseCode.SYSTEM_ERROR, remark="message size exceeded")
        peer.usual[SEND] = lambda command: ILLEGAL if command.body == b"1" else stored()
        sends = [mq.send("t", b"%d" % number) for number in range(2)]
        results: list[Any] = await asyncio.gather(*sends, return_exceptions=True)
        fine, wrong = results
    assert bodies(peer) == [[b"0", b"1"], [b"0", b"1"], [b"0"], [b"1"]]
    assert fine.offset == 7 and isinstance(wrong, SendFailed)


async def test_a_busy_broker_is_left_for_another_with_the_whole_batch(peer):
    async with Scripted("broker-b") as other:
        peer.has("t", others={other.name: other.address})
        async with connect(peer.address) as mq:
            await asyncio.gather(*(mq.send("t", b"known") for _ in range(9)))
            for each in (peer, other):
                each.received.clear()
                each.script(BATCH, BUSY)
            results = await asyncio.gather(*(mq.send("t", b"%d" % number) for number in range(5)))
            found = [messages_in(command) for each in (peer, other) for command in each.sent]
    assert sorted(found) == [1, 4, 4, 4] and len({each.msg_id for each in results}) == 5


async def test_a_denied_batch_is_denied_for_each(peer):
    async with client(peer, retries=0) as mq:
        peer.script(BATCH, Reply(ResponseCode.NO_PERMISSION, remark="the topic is sealed"))
        results = await asyncio.gather(*(mq.send("t", b"x") for _ in range(3)), return_exceptions=True)
    assert len(peer.sent) == 2 and [type(each) for each in results] == [SendFailed] * 3
    assert len({id(each) for each in results}) == 3, "each sender has an error of its own"


async def test_each_sender_of_a_batch_without_answer_learns_that_it_may_be_stored(peer):
    async with client(peer, retries=0, timeout_s=0.3) as mq:
        peer.script(BATCH, None)
        futures = [mq.send_soon("t", b"%d" % number) for number in range(3)]
        results: list[Any] = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(each) for each in results] == [SendFailed] * 3
        assert all(each.is_in_doubt for each in results)
        assert (await mq.send("t", b"afterwards")).offset == 7


async def test_a_batch_whose_connection_breaks_is_sent_again_as_a_whole(peer):
    async with client(peer) as mq:
        peer.script(BATCH, None)
        futures = [mq.send_soon("t", b"%d" % number) for number in range(3)]
        await until(lambda: len(peer.sent) == 2)
        for session in peer.sessions:
            session.close()
        results = await asyncio.gather(*futures)
    assert bodies(peer).count([b"0", b"1", b"2"]) == 2
    assert [each.offset for each in results] == [7, 8, 9]


async def test_a_repeated_batch_that_a_crash_had_cut_has_its_places_apart(peer):
    async with client(peer) as mq:
        reply = SendMessageReply(msg_id="A0,A1", queue_id=2, queue_offset=10, stored_at="2:10,3:4")
        peer.script(BATCH, Reply(header=reply))
        results = await asyncio.gather(mq.send("t", b"0"), mq.send("t", b"1"))
    assert [(each.offset_msg_id, each.queue.queue_id, each.offset) for each in results] == [
        ("A0", 2, 10), ("A1", 3, 4),
    ]  # fmt: skip


async def test_a_doubtful_batch_that_is_parted_stays_at_its_broker(peer):
    """Otherwise another broker would store what the first one has already."""
    peer.usual[RequestCode.HEART_BEAT] = lambda _: Reply(header=HeartBeatReply(repeat_window_ms=3_600_000))
    async with Scripted("broker-b") as other, client(peer, idempotent=True) as mq:
        peer.script(BATCH, None, ILLEGAL)
        futures = [mq.send_soon("t", b"%d" % number) for number in range(12)]
        await until(lambda: len(peer.sent) == 2)
        peer.has("t", others={other.name: other.address})
        await mq._network.routes.fetch("t")
        for session in peer.sessions:
            session.close()
        await asyncio.gather(*futures)
        assert not other.sent
    assert [messages_in(command) for command in peer.sent].count(12) == 2


async def test_a_sender_that_gives_up_does_not_harm_the_others(peer):
    async with client(peer) as mq:
        peer.script(BATCH, None)
        futures = [mq.send_soon("t", b"%d" % number) for number in range(3)]
        futures[0].cancel()
        await until(lambda: len(peer.sent) == 2)
        futures[1].cancel()
        for session in peer.sessions:
            session.close()
        assert (await futures[2]).offset == 9
        assert futures[0].cancelled() and futures[1].cancelled()


async def test_a_batch_that_all_have_given_up_is_not_tried_again(peer):
    async with client(peer) as mq:
        peer.script(BATCH, None)
        futures = [mq.send_soon("t", b"%d" % number) for number in range(3)]
        await until(lambda: len(peer.sent) == 2)
        for future in futures:
            future.cancel()
        for session in peer.sessions:
            session.close()
        await until(lambda: mq.unanswered <= 1)
    assert bodies(peer).count([b"0", b"1", b"2"]) == 1


async def test_a_producer_that_never_waits_is_refused_before_it_fills_the_memory(peer):
    async with client(peer, window=8, max_batch=4, waiting_bytes=20_000) as mq:
        peer.script(BATCH, *[None] * 9)
        taken: list[asyncio.Future[SendResult]] = []
        with pytest.raises(SendFailed, match=r"was not taken; call `drain"):
            taken.extend(mq.send_soon("t", b"x" * 100) for _ in range(100))
        assert 30 < len(taken) < 45 and mq.unanswered == len(taken) + 1
        for future in taken:
            future.cancel()


async def test_gathered_messages_count_as_unanswered_and_fill_the_window(peer):
    async with client(peer, window=4) as mq:
        futures = [mq.send_soon("t", b"x") for _ in range(2)]
        assert mq.unanswered == 3 and not peer.sent
        await asyncio.wait_for(mq.drain(), 1)
        futures.append(mq.send_soon("t", b"x"))
        draining = asyncio.ensure_future(mq.drain())
        await asyncio.sleep(0)
        assert not draining.done() and mq.unanswered == 4
        await asyncio.gather(*futures)
        await draining
        assert mq.unanswered == 1


async def test_gathered_messages_fail_when_the_client_is_closed(peer):
    async with client(peer) as mq:
        futures = [mq.send_soon("t", b"x") for _ in range(2)]
        mq._send_queues._send_queues[-1].close()
        assert all(future.done() for future in futures)
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(each) for each in results] == [ClientClosed] * 2
        with pytest.raises(ClientClosed):
            mq.send_soon("t", b"x")
        with pytest.raises(ClientClosed):
            await mq.send("t", b"x")
        assert mq.unanswered == 1


async def test_flush_waits_for_what_is_gathered(peer):
    peer.has("t")
    async with connect(peer.address) as mq:
        await mq.send("t", b"known")
        futures = [mq.send_soon("t", b"x") for _ in range(5)]
        await mq.flush()
        assert all(future.done() for future in futures) and not mq.unanswered


async def test_hooks_see_each_message_and_its_own_outcome(peer):
    seen = []

    class Seeing(Hooks):
        def before_send(self, message: Message) -> None:
            message.properties["seen"] = "yes"

        def after_send(self, message: Message, outcome: Any) -> None:
            seen.append((message.body, outcome.offset))

    peer.has("t")
    async with connect(peer.address, hooks=[Seeing()]) as mq:
        await asyncio.gather(*(mq.send("t", b"%d" % number) for number in range(4)))
    assert [messages_in(command) for command in peer.sent] == [1, 3]
    assert sorted(seen) == [(b"0", 7), (b"1", 7), (b"2", 8), (b"3", 9)]
    parts = batch.decode(peer.sent[1].body)
    assert {properties.parse(part.properties)["seen"] for part in parts} == {"yes"}


async def test_what_is_gathered_is_consumed_as_what_is_sent_alone(cluster: Cluster):
    """Ids, keys, tags, properties, bodies and places are those of single sends."""
    arguments: dict[str, Any] = {"tag": "a", "keys": "k1", "properties": {"own": "ü"}}
    async with connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("t", queues=2)
        alone = await mq.send("t", b"0", **arguments)
        results = await asyncio.gather(*(mq.send("t", b"%d" % number, **arguments) for number in range(1, 40)))
        found = await consumed(mq, 40)
    by_id = {each.msg_id: each for each in found}
    for number, result in enumerate([alone, *results]):
        message = by_id[result.msg_id]
        assert message.body == b"%d" % number and message.queue == result.queue
        assert (message.offset, message.offset_msg_id) == (result.offset, result.offset_msg_id)
        assert (message.tag, list(message.keys)) == ("a", ["k1"])
        assert message.properties | {"UNIQ_KEY": ""} == by_id[alone.msg_id].properties | {"UNIQ_KEY": ""}


async def consumed(mq: Client, count: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    async with mq.subscribe("t", found.append, group="g", start="earliest"):
        await until(lambda: len(found) == count)
    return found


async def test_queues_get_equal_shares_of_gathered_messages(peer):
    async with client(peer) as mq:
        shares: Counter[int] = Counter()
        for size in [2, 100] * 40:
            results = await asyncio.gather(*(mq.send("t", b"x") for _ in range(size)))
            assert len(results) == size
        for command in peer.sent[1:]:
            shares[command.header(SendMessageV2).queue_id] += messages_in(command)
    assert len(shares) == 4 and max(shares.values()) - min(shares.values()) <= 300
