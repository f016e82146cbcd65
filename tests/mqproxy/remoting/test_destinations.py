"""The brokers that requests go to."""

import pytest

from sparrowmq.mqproxy.remoting_port import REACH, Reach, named_broker, topic_of
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.requests.client_bodies import AssignmentQuery, LockQueues
from sparrowmq.protocol.requests.pop_headers import BatchAcks
from sparrowmq.protocol.requests.request_table import BY_CODE, Role
from sparrowmq.protocol.wire.body import REQUEST_BYTES

HANDLE = "0 1700000000000 60000 0 0 broker-h 1 5 700"
LOCK = LockQueues("g", "c", [MessageQueue("T", "broker-l", 0)]).encode()
RECALL = str(RecallHandle("T", "broker-r", 1, "id"))


@pytest.mark.parametrize(
    ("code", "fields", "body", "name"),
    [
        (RequestCode.PULL_MESSAGE, {"bname": "broker-a"}, b"", "broker-a"),
        (RequestCode.SEND_MESSAGE_V2, {"n": "broker-n"}, b"", "broker-n"),
        (RequestCode.SEND_BATCH_MESSAGE, {"n": "broker-n"}, b"", "broker-n"),
        (RequestCode.PULL_MESSAGE, {"n": "no broker"}, b"", ""),
        (RequestCode.HEART_BEAT, {"bname": "broker-a"}, b"", "broker-a"),
        (RequestCode.LOCK_BATCH_MQ, {}, LOCK, "broker-l"),
        (RequestCode.UNLOCK_BATCH_MQ, {}, LOCK, "broker-l"),
        (RequestCode.UNLOCK_BATCH_MQ, {}, b"no json", ""),
        (RequestCode.LOCK_BATCH_MQ, {}, b"{}", ""),
        (RequestCode.LOCK_BATCH_MQ, {}, LOCK + b" " * REQUEST_BYTES, ""),
        (RequestCode.ACK_MESSAGE, {"extraInfo": HANDLE}, b"", "broker-h"),
        (RequestCode.CHANGE_MESSAGE_INVISIBLETIME, {"extraInfo": HANDLE}, b"", "broker-h"),
        (RequestCode.ACK_MESSAGE, {"extraInfo": "no handle"}, b"", ""),
        (RequestCode.BATCH_ACK_MESSAGE, {}, BatchAcks("broker-b", []).encode(), "broker-b"),
        (RequestCode.BATCH_ACK_MESSAGE, {}, BatchAcks("b" * REQUEST_BYTES, []).encode(), ""),
        (RequestCode.RECALL_MESSAGE, {"recallHandle": RECALL}, b"", "broker-r"),
        (RequestCode.RECALL_MESSAGE, {"recallHandle": "no handle"}, b"", ""),
        (RequestCode.SEND_MESSAGE, {"topic": "T"}, b"", ""),
    ],
)
def test_a_request_names_its_broker(code, fields, body, name):
    assert named_broker(code, fields, body) == name


@pytest.mark.parametrize(
    ("code", "fields", "body", "topic"),
    [
        (RequestCode.SEND_MESSAGE_V2, {"b": "T", "topic": "no"}, b"", "T"),
        (RequestCode.SEND_MESSAGE, {"topic": "T"}, b"", "T"),
        (RequestCode.CONSUMER_SEND_MSG_BACK, {"originTopic": "T"}, b"", "T"),
        (RequestCode.QUERY_ASSIGNMENT, {}, AssignmentQuery(topic="T").encode(), "T"),
        (RequestCode.QUERY_ASSIGNMENT, {}, b"no json", ""),
        (RequestCode.QUERY_ASSIGNMENT, {}, AssignmentQuery(topic="T" * REQUEST_BYTES).encode(), ""),
        (RequestCode.END_TRANSACTION, {}, b"", ""),
    ],
)
def test_a_request_names_its_topic(code, fields, body, topic):
    assert topic_of(code, fields, body) == topic


def test_all_that_apaches_proxy_serves_is_served():
    apaches = [10, 310, 320, 36, 37, 370, 34, 35, 46, 11, 361, 200050, 15, 200051, 200053]
    apaches += [203, 38, 30, 31, 14, 29, 41, 42, 105]
    assert not [code for code in apaches if code not in REACH]


def test_each_request_that_goes_on_can_be_checked():
    for code in REACH:
        assert BY_CODE[code].header is not None and BY_CODE[code].served_by & (Role.BROKER | Role.NAMESRV)


def test_requests_of_administrators_are_not_served():
    for code in (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_BROKER_CONFIG):
        assert code not in REACH
    assert REACH[RequestCode.HEART_BEAT] is Reach.ALL
