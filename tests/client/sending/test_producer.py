import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.sending.settings import ProducerSettings
from sparrowmq.errors import InvalidMessage, InvalidName, MessageTooLarge
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.messages import batch, properties
from sparrowmq.protocol.messages.message import Message, MessageQueue, SysFlag
from sparrowmq.protocol.requests.headers import SendMessageReply, SendMessageV2
from sparrowmq.remoting.dispatch import Answer
from tests.client.conftest import until


@pytest.fixture
async def sender(peer):
    peer.has("t")
    async with connect(peer.address) as client:
        yield client


def sent_properties(command) -> dict[str, str]:
    return properties.parse(command.header(SendMessageV2).properties)


@pytest.mark.covers("S-PROD-17", "S-PROD-20")
async def test_a_message_is_sent_with_all_that_belongs_to_it(peer, sender):
    result = await sender.send(
        "t", b"hello", tag="paid", keys=["k1", "k2"], delay_level=3, properties={"a": "1"}, vip=True, count=2
    )
    (command,) = peer.sent
    header = command.header(SendMessageV2)
    assert (header.topic, header.default_topic, header.default_topic_queue_nums) == ("t", "TBW102", 4)
    assert (header.producer_group, header.broker_name) == ("SPARROWMQ_PRODUCER", "broker-a")
    assert sent_properties(command) == {
        "a": "1", "vip": "true", "count": "2", "KEYS": "k1 k2", "TAGS": "paid", "DELAY": "3", "WAIT": "true",
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
    with pytest.raises(InvalidMessage, match="put body, tag, keys and properties into it"):
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
        (("t", "text"), {}, InvalidMessage, "encode"),
        (("t",), {}, InvalidMessage, "no body"),
        (("bad topic", b"x"), {}, InvalidName, "illegal characters"),
        (("SCHEDULE_TOPIC_XXXX", b"x"), {}, InvalidMessage, "brokers only"),
        (("t", b"x"), {"properties": {"KEYS": "k"}}, InvalidMessage, "belongs to RocketMQ"),
        (("t", b"x"), {"fifo": "k", "queue": MessageQueue("t", "a", 0)}, InvalidMessage, "not both"),
        (("t", b"x"), {"queue": MessageQueue("other", "a", 0)}, InvalidMessage, "does not belong"),
    ],
)
async def test_a_wrong_message_is_refused_at_once(sender, arguments, options, error, words):
    with pytest.raises(error, match=words):
        sender.send_soon(*arguments, **options)


async def test_a_one_way_message_has_an_id_too(peer, sender):
    msg_id = sender.send_nowait("t", b"x", tag="a")
    await until(lambda: peer.sent)
    assert sent_properties(peer.sent[0]) == {"TAGS": "a", "WAIT": "true", "UNIQ_KEY": msg_id}


@pytest.mark.covers("S-PROD-18")
async def test_a_batch_is_one_request_with_a_result_for_each_message(peer, sender):
    reply = SendMessageReply(msg_id="A0,A1,A2", queue_id=2, queue_offset=10)
    peer.script(RequestCode.SEND_BATCH_MESSAGE, Answer(header=reply))
    results = await sender.send_many([Message("t", b"%d" % number, tag="a") for number in range(3)])
    (command,) = peer.sent
    header = command.header(SendMessageV2)
    parts = batch.decode(command.body)
    assert header.batch and properties.parse(header.properties) == {"WAIT": "true"}
    assert [bytes(part.body) for part in parts] == [b"0", b"1", b"2"]
    assert [properties.parse(part.properties)["UNIQ_KEY"] for part in parts] == [
        each.msg_id for each in results
    ]
    assert [(each.offset_msg_id, each.offset) for each in results] == [("A0", 10), ("A1", 11), ("A2", 12)]
    assert {each.queue for each in results} == {MessageQueue("t", "broker-a", 2)}


async def test_many_messages_become_as_many_batches_as_the_rules_want(peer):
    peer.has("t")
    peer.has("u")
    peer.usual[RequestCode.SEND_BATCH_MESSAGE] = lambda _: Answer(
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
    peer.script(RequestCode.SEND_BATCH_MESSAGE, Answer(header=reply))
    results = await sender.send_many([Message("t", b"x")] * 2)
    assert [each.offset_msg_id for each in results] == ["A0", "A0"]


async def test_where_the_broker_put_it_is_told(peer, sender):
    peer.script(
        RequestCode.SEND_MESSAGE_V2,
        Answer(header=SendMessageReply(msg_id="A", queue_id=3, queue_offset=1)),
    )
    result = await sender.send("t", b"x", queue=MessageQueue("t", "broker-a", -1))
    assert result.queue == MessageQueue("t", "broker-a", 3)
