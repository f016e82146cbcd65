import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.errors import (
    ConfigError,
    InvalidMessage,
    InvalidName,
    MessageTooLarge,
    RemoteError,
    SendFailed,
    SendManyFailed,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages import batch, properties
from sparrowmq.protocol.messages.message import Message, MessageQueue, SysFlag
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.requests.headers import (
    HeartBeatReply,
    RecallMessageReply,
    SendMessageReply,
    SendMessageV2,
)
from sparrowmq.remoting.handler import Reply
from tests.client.conftest import until


@pytest.fixture
async def sender(peer):
    peer.has("t")
    async with connect(peer.address) as client:
        yield client


def sent_properties(command) -> dict[str, str]:
    return properties.parse(command.header(SendMessageV2).properties)


@pytest.mark.covers("S-PROD-17")
@pytest.mark.covers("S-PROD-20")
async def test_a_message_is_sent_with_all_that_belongs_to_it(peer, sender):
    result = await sender.send("t", b"hello", tag="paid", keys=["k1", "k2"], delay="10s", properties={"a": "1"})
    (command,) = peer.sent
    header = command.header(SendMessageV2)
    assert (header.topic, header.default_topic, header.default_topic_queue_nums) == ("t", "TBW102", 4)
    assert (header.producer_group, header.broker_name) == ("SPARROWMQ_PRODUCER", "broker-a")
    assert sent_properties(command) == {
        "a": "1", "KEYS": "k1 k2", "TAGS": "paid", "DELAY": "3", "WAIT": "true",
        "UNIQ_KEY": result.msg_id,
    }  # fmt: skip
    assert command.body == b"hello" and result.offset == 7 and len(result.msg_id) == 32


async def test_a_plain_message_has_no_more_than_it_needs(peer, sender):
    result = await sender.send("t", b"hello")
    assert sent_properties(peer.sent[0]) == {"WAIT": "true", "UNIQ_KEY": result.msg_id}


async def test_a_whole_message_can_be_given(peer, sender):
    await sender.send(Message("t", b"x", tag="a", flag=5, wait_stored=False))
    assert peer.sent[0].header(SendMessageV2).flag == 5
    assert sent_properties(peer.sent[0])["WAIT"] == "false"
    with pytest.raises(InvalidMessage, match="put body, tag, keys, properties and delay into it"):
        await sender.send(Message("t", b"x"), tag="a")


@pytest.mark.covers("S-PROD-10")
async def test_a_large_body_is_compressed_if_that_helps(peer, sender):
    await sender.send("t", b"x" * 4096)
    await sender.send("t", b"x" * 4097)
    noise = bytes(range(256)) * 20
    await sender.send("t", noise[:4097])
    flags = [command.header(SendMessageV2).sys_flag for command in peer.sent]
    assert flags[:2] == [0, SysFlag.COMPRESSED]
    assert len(peer.sent[1].body) < 100


@pytest.mark.covers("S-PROD-11")
async def test_too_large_a_body_is_refused_before_it_is_sent(peer, sender):
    with pytest.raises(MessageTooLarge, match="4194304 are allowed; send a reference"):
        await sender.send("t", bytes(4 * 1024 * 1024 + 1))
    assert not peer.sent


@pytest.mark.parametrize(
    ("arguments", "options", "error", "words"),
    [
        (("t", b""), {}, InvalidMessage, "empty"),
        (("t", 5), {}, InvalidMessage, "the body is int; give bytes, text"),
        (("t",), {}, InvalidMessage, "no body"),
        (("bad topic", b"x"), {}, InvalidName, "illegal characters"),
        (("SCHEDULE_TOPIC_XXXX", b"x"), {}, InvalidMessage, "brokers only"),
        (("t", b"x"), {"properties": {"KEYS": "k"}}, InvalidMessage, "belongs to RocketMQ"),
        (("t", b"x"), {"properties": {"a": 1}}, InvalidMessage, "names and values must be text"),
        (("t", b"x"), {"keys": "a b"}, InvalidMessage, "none a blank"),
        (("t", b"x"), {"delay": "soon"}, InvalidMessage, "is not a delay"),
        (("t", b"x"), {"deliver_at": "soon"}, InvalidMessage, "a datetime with a time zone"),
        (("t", b"x"), {"delay": 0}, InvalidMessage, "is not later than now"),
        (("t", b"x"), {"tag": "\ud800"}, InvalidMessage, "surrogate"),
        (("t", b"x"), {"fifo": 5}, InvalidMessage, r"fifo=5 is not text; use str\(key\)"),
        (("t", b"x"), {"queue": 0}, InvalidMessage, r"queue=0 is not a MessageQueue; take one of `await mq.queues"),
        (("t", b"x"), {"timeout_s": 0}, ConfigError, "timeout_s=0: give seconds above 0"),
        (("t", b"x"), {"timeout_s": -1}, ConfigError, "give seconds above 0"),
        (("t", b"x"), {"timeout_s": float("nan")}, ConfigError, "timeout_s=nan: give seconds above 0"),
        (("t", b"x"), {"fifo": "k", "queue": MessageQueue("t", "a", 0)}, InvalidMessage, "not both"),
        (("t", b"x"), {"queue": MessageQueue("other", "a", 0)}, InvalidMessage, "does not belong"),
    ],
)
async def test_a_wrong_message_is_refused_at_once(sender, arguments, options, error, words):
    with pytest.raises(error, match=words):
        sender.send_soon(*arguments, **options)
    with pytest.raises(error, match=words):
        await sender.send(*arguments, **options)
    assert not sender.unanswered


@pytest.mark.parametrize("keyword", ["tags", "key", "timeout", "delay_levels", "vip", "flag"])
async def test_a_misspelt_argument_is_no_property(sender, keyword):
    with pytest.raises(TypeError, match=f"'{keyword}'"):
        await sender.send("t", b"x", **{keyword: 1})
    for send in (sender.send_soon, sender.send_nowait):
        with pytest.raises(TypeError, match=f"'{keyword}'"):
            send("t", b"x", **{keyword: 1})
    with pytest.raises(TypeError, match="'timeout_s'"):
        sender.send_nowait("t", b"x", timeout_s=1)


@pytest.mark.parametrize("delay", ["10s", timedelta(seconds=10)])
async def test_a_delay_is_given_as_people_say_it(peer, sender, delay):
    await sender.send("t", b"1", delay=delay)
    await sender.send_soon("t", b"2", delay=delay)
    sender.send_nowait("t", b"3", delay=delay)
    await until(lambda: len(peer.sent) == 3)
    assert [sent_properties(command)["DELAY"] for command in peer.sent] == ["3"] * 3


IN_A_MINUTE = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("later", [{"delay": "15s"}, {"deliver_at": IN_A_MINUTE}])
async def test_a_broker_that_knows_levels_only_is_sent_no_other_time(peer, sender, later):
    for send in (sender.send, sender.send_soon):
        with pytest.raises(InvalidMessage, match="broker broker-a delivers after its delay levels only"):
            await send("t", b"1", **later)
    sender.send_nowait("t", b"2", **later)
    await sender.send("t", b"3")
    assert [command.body for command in peer.sent] == [b"3"]


@pytest.mark.parametrize(
    ("later", "wire"),
    [
        ({"delay": "15s"}, {"TIMER_DELAY_MS": "15000"}),
        ({"delay": timedelta(seconds=1.5)}, {"TIMER_DELAY_MS": "1500"}),
        ({"deliver_at": IN_A_MINUTE}, {"TIMER_DELIVER_MS": "4102444800000"}),
    ],
)
async def test_a_broker_that_delivers_at_any_time_is_told_it(peer, sender, later, wire):
    peer.usual[RequestCode.HEART_BEAT] = lambda _: Reply(header=HeartBeatReply(timer_max_delay_sec=99))
    peer.usual[RequestCode.SEND_MESSAGE_V2] = lambda _: Reply(
        header=SendMessageReply("id", 0, 7, recall_handle="aGFuZGxl")
    )
    result = await sender.send("t", b"1", **later)
    assert result.recall_handle == "aGFuZGxl"
    assert sent_properties(peer.sent[0]) == {**wire, "WAIT": "true", "UNIQ_KEY": result.msg_id}


async def test_messages_for_a_time_travel_alone(peer, sender):
    peer.usual[RequestCode.HEART_BEAT] = lambda _: Reply(header=HeartBeatReply(timer_max_delay_sec=99))
    await sender.send_many([Message("t", b"x", delay_ms=5), Message("t", b"y", deliver_at_ms=5)])
    assert [command.body for command in peer.sent] == [b"x", b"y"]


@pytest.mark.parametrize("wrong", [None, "", 5, "no handle"])
async def test_what_is_no_handle_cannot_be_recalled(sender, wrong):
    with pytest.raises(InvalidMessage, match=r"can be recalled|handle is invalid"):
        await sender.recall(wrong)


async def test_a_recall_is_stored_although_no_slave_has_it_and_is_not_safe_if_one_is_late(peer, sender):
    handle = str(RecallHandle("t", "broker-a", 4102444800000, "id"))
    peer.script(
        RequestCode.RECALL_MESSAGE,
        Reply(ResponseCode.SLAVE_NOT_AVAILABLE, header=RecallMessageReply("id")),
        Reply(ResponseCode.FLUSH_SLAVE_TIMEOUT, header=RecallMessageReply("id")),
    )
    await sender.recall(handle)
    with pytest.raises(RemoteError, match="code 12"):
        await sender.recall(handle)


async def test_a_message_without_a_handle_cannot_be_recalled(sender):
    with pytest.raises(InvalidMessage, match="can be recalled"):
        await sender.recall(await sender.send("t", b"x", delay="10s"))


@pytest.mark.parametrize("make", [bytearray, lambda text: memoryview(bytearray(text))])
async def test_a_body_that_can_change_is_copied_at_the_call(peer, sender, make):
    body = make(b"before")
    future = sender.send_soon("t", body)
    body[:] = b"behind"
    assert (await future).offset == 7 and peer.sent[0].body == b"before"


async def test_a_one_way_message_has_an_id_too(peer, sender):
    msg_id = sender.send_nowait("t", b"x", tag="a")
    await until(lambda: peer.sent)
    assert sent_properties(peer.sent[0]) == {"TAGS": "a", "WAIT": "true", "UNIQ_KEY": msg_id}


@pytest.mark.covers("S-PROD-18")
async def test_a_batch_is_one_request_with_a_result_for_each_message(peer, sender):
    reply = SendMessageReply(msg_id="A0,A1,A2", queue_id=2, queue_offset=10)
    peer.script(RequestCode.SEND_BATCH_MESSAGE, Reply(header=reply))
    results = await sender.send_many([Message("t", b"%d" % number, tag="a") for number in range(3)])
    (command,) = peer.sent
    header = command.header(SendMessageV2)
    parts = batch.decode(command.body)
    assert header.batch and properties.parse(header.properties) == {"WAIT": "true"}
    assert [bytes(part.body) for part in parts] == [b"0", b"1", b"2"]
    assert [properties.parse(part.properties)["UNIQ_KEY"] for part in parts] == [each.msg_id for each in results]
    assert [(each.offset_msg_id, each.offset) for each in results] == [("A0", 10), ("A1", 11), ("A2", 12)]
    assert {each.queue for each in results} == {MessageQueue("t", "broker-a", 2)}


async def test_many_messages_become_as_many_batches_as_the_rules_want(peer):
    peer.has("t")
    peer.has("u")
    peer.usual[RequestCode.SEND_BATCH_MESSAGE] = lambda _: Reply(
        header=SendMessageReply(msg_id="A", queue_id=0, queue_offset=0)
    )
    async with connect(peer.address, settings=ProducerSettings(max_bytes=250)) as client:
        messages = [Message("t", b"x" * 79)] * 3 + [Message("u", b"x")] + [Message("t", b"x", delay_level=1)]
        results = await client.send_many(messages)
    assert len(results) == 5
    codes = [command.code for command in peer.sent]
    single, together = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
    assert sorted(codes) == [single, single, single, together]


async def test_a_batch_kept_as_one_record_has_one_offset_id(peer, sender):
    reply = SendMessageReply(msg_id="A0", queue_id=0, queue_offset=10)
    peer.script(RequestCode.SEND_BATCH_MESSAGE, Reply(header=reply))
    results = await sender.send_many([Message("t", b"x")] * 2)
    assert [each.offset_msg_id for each in results] == ["A0", "A0"]


async def test_where_the_broker_put_it_is_told(peer, sender):
    peer.script(
        RequestCode.SEND_MESSAGE_V2,
        Reply(header=SendMessageReply(msg_id="A", queue_id=3, queue_offset=1)),
    )
    result = await sender.send("t", b"x", queue=MessageQueue("t", "broker-a", -1))
    assert result.queue == MessageQueue("t", "broker-a", 3)


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        (
            Message("t", b""),
            InvalidMessage,
            r"message 2 of those to send: the body is empty.*None of them was sent",
        ),
        (Message("bad topic", b"x"), InvalidName, "message 2 of those to send: .*illegal characters"),
        (Message("t", b"x" * 251), MessageTooLarge, "message 2 of those to send: the body has 251 bytes"),
        (Message("t", b"x", keys="a b"), InvalidMessage, "message 2 of those to send: keys"),
        (
            Message("t", b"x", tag="\x01"),
            InvalidMessage,
            "message 2 of those to send: property 'TAGS' holds 0x01",
        ),
        (
            Message("t", b"x", properties={"a": "x" * 32_740}),
            InvalidMessage,
            "message 2 of those .* properties take",
        ),
        (b"x", InvalidMessage, "message 2 is bytes, not a Message"),
    ],
)
async def test_of_many_messages_none_is_sent_if_one_cannot_be(peer, wrong, error, words):
    peer.has("t")
    async with connect(peer.address, settings=ProducerSettings(max_bytes=250)) as client:
        with pytest.raises(error, match=words):
            await client.send_many([Message("t", b"x" * 79), Message("t", b"x" * 200), wrong])
        assert not client.unanswered
        await client.flush()
    assert not peer.sent


async def test_of_many_messages_each_has_its_result_or_error_when_some_fail(peer):
    peer.has("t")
    peer.script(
        RequestCode.SEND_MESSAGE_V2,
        Reply(header=SendMessageReply(msg_id="A", queue_id=0, queue_offset=5)),
        Reply(ResponseCode.MESSAGE_ILLEGAL, remark="no"),
    )
    async with connect(peer.address) as client:
        with pytest.raises(SendManyFailed, match=r"1 of 3 messages failed, the first one so: .*`results`") as caught:
            await client.send_many([Message("t", b"%d" % number, delay_level=1) for number in range(3)])
    first, second, third = caught.value.results
    assert (first.offset, third.offset) == (5, 7) and isinstance(second, SendFailed)
    assert caught.value.cause is second and not caught.value.is_in_doubt
    assert len(peer.sent) == 3


async def test_every_message_of_a_batch_that_fails_has_its_error(peer, sender):
    peer.script(RequestCode.SEND_BATCH_MESSAGE, Reply(ResponseCode.MESSAGE_ILLEGAL, remark="no"))
    with pytest.raises(SendManyFailed, match="3 of 3 messages failed") as caught:
        await sender.send_many([Message("t", b"x")] * 3)
    assert [type(result) for result in caught.value.results] == [SendFailed] * 3


async def test_no_messages_are_no_request(peer, sender):
    assert await sender.send_many([]) == [] and not peer.sent


async def test_cancelled_many_leave_nothing_behind(peer):
    peer.has("t")
    peer.script(RequestCode.SEND_MESSAGE_V2, None)
    async with connect(peer.address, settings=ProducerSettings(window=1)) as client:
        messages = [Message("t", b"x", delay_level=1)] * 3
        sending = asyncio.ensure_future(client.send_many(messages))
        await until(lambda: peer.sent)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        for session in peer.sessions:
            session.close()
        await until(lambda: not client.unanswered)
    assert len(peer.sent) == 1
