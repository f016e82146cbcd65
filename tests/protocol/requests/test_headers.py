"""Headers between clients and brokers: Java's fields, what may be missing, and what foreign clients send."""

import msgspec
import pytest

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.requests import headers
from sparrowmq.protocol.wire.header import Header, from_json
from tests.protocol.requests.wire_names import comes_back, fields_of, required_of

SEND = (
    "producerGroup topic defaultTopic defaultTopicQueueNums queueId sysFlag bornTimestamp flag properties "
    "reconsumeTimes unitMode batch maxReconsumeTimes"
)
PULL = (
    "consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset suspendTimeoutMillis subscription "
    "subVersion expressionType"
)
JAVA = [
    (headers.SendMessage, SEND),
    (headers.SendMessageV2, "a b c d e f g h i j k l m n"),
    (headers.SendBatchMessage, "a b c d e f g h i j k l m n"),
    (headers.SendMessageReply, "msgId queueId queueOffset transactionId MSG_REGION TRACE_ON"),
    (headers.PullMessage, PULL),
    (headers.LitePullMessage, PULL),
    (headers.PullMessageReply, "suggestWhichBrokerId nextBeginOffset minOffset maxOffset"),
    (headers.QueryMessage, "topic key maxNum beginTimestamp endTimestamp _UNIQUE_KEY_QUERY"),
    (headers.QueryMessageReply, "indexLastUpdateTimestamp indexLastUpdatePhyoffset"),
    (headers.ViewMessage, "offset"),
    (headers.OffsetReply, "offset"),
    (headers.QueryConsumerOffset, "consumerGroup topic queueId"),
    (headers.UpdateConsumerOffset, "consumerGroup topic queueId commitOffset"),
    (headers.SearchOffset, "topic queueId timestamp"),
    (headers.GetMaxOffset, "topic queueId"),
    (headers.GetMinOffset, "topic queueId"),
    (headers.GetEarliestMsgStoretime, "topic queueId"),
    (headers.GetEarliestMsgStoretimeReply, "timestamp"),
    (headers.HeartBeat, ""),
    (headers.HeartBeatReply, "IS_SUPPORT_HEART_BEAT_V2 IS_SUB_CHANGE"),
    (headers.UnregisterClient, "clientID producerGroup consumerGroup"),
    (headers.GetConsumerListByGroup, "consumerGroup"),
    (headers.LockBatchMq, ""),
    (headers.UnlockBatchMq, ""),
    (headers.CheckClientConfig, ""),
    (
        headers.ConsumerSendMsgBack,
        "offset group delayLevel originMsgId originTopic unitMode maxReconsumeTimes",
    ),
    (
        headers.EndTransaction,
        "producerGroup tranStateTableOffset commitLogOffset commitOrRollback fromTransactionCheck msgId transactionId",
    ),
    (headers.CheckTransactionState, "tranStateTableOffset commitLogOffset msgId transactionId offsetMsgId"),
    (headers.NotifyConsumerIdsChanged, "consumerGroup"),
    (headers.ResetConsumerClientOffset, "topic group timestamp isForce"),
    (headers.GetConsumerStatus, "topic group clientAddr"),
    (headers.GetConsumerRunning, "consumerGroup clientId jstackEnable"),
    (headers.ConsumeMessageDirectly, "consumerGroup clientId msgId brokerName"),
]


@pytest.mark.parametrize(("kind", "names"), JAVA, ids=lambda value: getattr(value, "__name__", None))
def test_a_header_has_the_fields_of_java(kind: type[Header], names: str) -> None:
    assert fields_of(kind) >= set(names.split())
    assert comes_back(kind)


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        (headers.ConsumerSendMsgBack, b'{"offset":"1","group":"g","delayLevel":"0"}'),
        (headers.UnregisterClient, b'{"clientID":"c"}'),
        (headers.ViewMessage, b'{"offset":"1"}'),
        (headers.GetConsumerRunning, b'{"consumerGroup":"g","clientId":"c"}'),
        (headers.NotifyConsumerIdsChanged, b'{"consumerGroup":"g","bname":"b","lo":"false"}'),
    ],
)
def test_a_client_may_send_the_least(kind: type[Header], sent: bytes) -> None:
    assert from_json(kind, sent)


def test_numbers_and_booleans_may_be_written_in_any_way() -> None:
    sent = (
        b'{"producerGroup":"p","topic":"T","defaultTopic":"TBW102","defaultTopicQueueNums":4,"queueId":"1",'
        b'"sysFlag":0,"bornTimestamp":"1795144665890","flag":0,"batch":"1","unitMode":"0"}'
    )
    header = from_json(headers.SendMessage, sent)
    assert (header.batch, header.unit_mode, header.queue_id, header.born_timestamp) == (
        True,
        False,
        1,
        1795144665890,
    )


def test_a_missing_field_is_named_in_the_words_of_java() -> None:
    with pytest.raises(RemoteProtocolError, match="the custom field <queueId> is null"):
        from_json(headers.GetMaxOffset, b'{"topic":"T"}')


def test_the_two_ways_to_send_have_the_same_fields_in_python() -> None:
    ours = set(headers.SendMessage.__struct_fields__)
    assert ours < set(headers.SendMessageV2.__struct_fields__)
    assert required_of(headers.SendMessageV2) == set("abcdefgh")


@pytest.mark.parametrize("transaction_id", [None, "0A0000012345"])
def test_the_answer_to_a_send_has_all_its_fields_as_text(transaction_id: str | None) -> None:
    reply = headers.SendMessageReply("7F00", 3, 9, transaction_id)
    expected = {
        "msgId": "7F00",
        "queueId": "3",
        "queueOffset": "9",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    if transaction_id:
        expected["transactionId"] = transaction_id
    assert reply.ext_fields() == expected
    assert from_json(headers.SendMessageReply, msgspec.json.encode(reply.ext_fields())) == reply
