"""Bodies about clients. `test_bodies.py` compares them with the JSON of Java."""

import pytest

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import LOCKED_QUEUES, ClientConfigCheck, Heartbeat, LockQueues
from sparrowmq.protocol.subscription import Subscription


def test_a_heartbeat_of_the_cpp_client_has_places_instead_of_names() -> None:
    sent = (
        b'{"clientID":"1@D","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"g","messageModel":"0",'
        b'"subscriptionDataSet":[{"codeSet":[0],"subString":"A","subVersion":"3","tagsSet":["A"],"topic":"T"}]}]}\n'
    )
    beat = Heartbeat.decode(sent)
    (consumer,) = beat.consumer_data_set
    assert (beat.client_id, beat.producer_data_set) == ("1@D", [])
    assert (consumer.consume_from_where, consumer.consume_type, consumer.message_model) == (
        "CONSUME_FROM_LAST_OFFSET",
        "CONSUME_PASSIVELY",
        "BROADCASTING",
    )
    assert consumer.subscription_data_set == [Subscription.build("T", "A", version=3)]


def test_a_heartbeat_of_5_may_leave_out_its_subscriptions() -> None:
    beat = Heartbeat.decode(
        b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":null}],'
        b'"heartbeatFingerprint":77,"withoutSub":true}'
    )
    assert (beat.heartbeat_fingerprint, beat.without_sub) == (77, True)
    assert beat.consumer_data_set[0].subscription_data_set == []


@pytest.mark.parametrize("place", ["-1", "9", '"9"', "true"])
def test_a_place_that_stands_for_nothing_is_refused(place: str) -> None:
    with pytest.raises(RemoteProtocolError):
        Heartbeat.decode(b'{"consumerDataSet":[{"consumeType":%b}]}' % place.encode())


def test_a_check_of_a_subscription_is_read() -> None:
    sent = b'{"clientId":"c","group":"g","subscriptionData":{"topic":"T","subString":"a>1","expressionType":"SQL92"}}'
    assert ClientConfigCheck.decode(sent).subscription_data == Subscription("T", "a>1", kind="SQL92")


def test_a_request_locks_a_limited_number_of_queues() -> None:
    queues = [MessageQueue("T", "b", number) for number in range(LOCKED_QUEUES - 1)]
    assert LockQueues.of_request(LockQueues("g", "c", queues).encode()).mq_set == queues
    with pytest.raises(RemoteProtocolError, match="more than 4096 queues"):
        LockQueues.of_request(b'{"mqSet":[' + b"{}," * LOCKED_QUEUES + b"{}]}")
