import msgspec
import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.client.consuming.retries import Retries
from sparrowmq.errors import SendFailed
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import MessageQueue, SysFlag
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack, SendMessageV2
from sparrowmq.remoting.dispatch import Answer
from tests.client.consuming.test_received import stored

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
REFUSED = Answer(ResponseCode.SYSTEM_ERROR, remark="no such record")


@pytest.fixture
async def retries(peer):
    for topic in ("t", "%RETRY%g"):
        peer.has(topic)
    async with connect(peer.address) as client:
        await client.queues("t")
        yield Retries("g", 16, client._network.brokers, client._inner_outbox)


def failed(reconsume_times: int = 2, **named: str) -> ReceivedMessage:
    record = msgspec.structs.replace(
        stored(b"packed", sys_flag=SysFlag.COMPRESSED | SysFlag.BORN_V6, **named),
        reconsume_times=reconsume_times,
    )
    return ReceivedMessage(record, MessageQueue("t", "broker-a", 1))


@pytest.mark.covers("S-RETRY-05")
async def test_the_broker_copies_it_from_its_own_log(peer, retries):
    peer.script(BACK, Answer())
    message = failed(UNIQ_KEY="ID")
    message.delay_level = 5
    await retries.give_back(message)
    header = peer.requests(BACK)[0].header(ConsumerSendMsgBack)
    assert (header.offset, header.group, header.delay_level, header.max_reconsume_times) == (1000, "g", 5, 16)
    assert (header.origin_msg_id, header.origin_topic) == ("ID", "t")
    assert not peer.sent


@pytest.mark.covers("S-RETRY-03", "S-RETRY-05")
async def test_when_it_does_not_a_copy_is_sent(peer, retries):
    peer.script(BACK, REFUSED)
    await retries.give_back(failed(UNIQ_KEY="ID", own="1", MIN_OFFSET="0"))
    (copy,) = peer.sent
    header = copy.header(SendMessageV2)
    assert (header.topic, header.reconsume_times, header.max_reconsume_times) == ("%RETRY%g", 3, 16)
    assert (header.producer_group, header.sys_flag, copy.body) == ("CLIENT_INNER_PRODUCER", 1, b"packed")
    assert properties.parse(header.properties) == {
        "UNIQ_KEY": "ID", "own": "1", "ORIGIN_MESSAGE_ID": "ID", "RETRY_TOPIC": "t", "DELAY": "5",
    }  # fmt: skip


async def test_what_was_retried_before_keeps_its_first_id_and_topic(peer, retries):
    await retries.send_copy(failed(UNIQ_KEY="ID", ORIGIN_MESSAGE_ID="FIRST", RETRY_TOPIC="t"), 4)
    header = peer.sent[0].header(SendMessageV2)
    assert header.reconsume_times == 4
    assert properties.parse(header.properties)["ORIGIN_MESSAGE_ID"] == "FIRST"


async def test_when_nobody_takes_it_that_is_an_error(peer, retries):
    peer.script(BACK, REFUSED)
    peer.script(RequestCode.SEND_MESSAGE_V2, *[REFUSED] * 3)
    with pytest.raises(SendFailed):
        await retries.give_back(failed())
