"""Bodies: the JSON of Java 4.9.8 in both directions, and what other clients send instead."""

import json

import pytest

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests import bodies, client_bodies, offset_bodies
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.protocol.wire.body import Body

QUEUE = MessageQueue("Orders", "broker-a", 0)
MQ = '{"brokerName":"broker-a","queueId":0,"topic":"Orders"}'
BROKER = bodies.BrokerRoute("DefaultCluster", "broker-a", {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"})
ADDRESSES_JSON = '"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:10921"}'
BROKER_JSON = "{" + ADDRESSES_JSON + ',"brokerName":"broker-a","cluster":"DefaultCluster"}'
ROUTE = bodies.TopicRoute([BROKER], [bodies.QueueRoute("broker-a", 4, 4, 6)])
QUEUE_ROUTE_JSON = '{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}'
ROUTE_JSON = '{"brokerDatas":[' + BROKER_JSON + '],"filterServerTable":{},"queueDatas":[' + QUEUE_ROUTE_JSON + "]}"
VERSION = bodies.DataVersion(3, 1700000000000)
VERSION_JSON = '{"counter":3,"timestamp":1700000000000}'
GROUP_JSON = (
    '{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"cg",'
    '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
)
TOPIC_JSON = (
    '{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"Orders","topicSysFlag":0,'
    '"writeQueueNums":4}'
)
ALL_JSON = (
    '{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":7,"tagsSet":[],'
    '"topic":"Orders"}'
)
CONNECTION = client_bodies.Connection("10.0.0.1@1", "10.0.0.1:5", "JAVA", 409)
CONNECTION_JSON = '{"clientAddr":"10.0.0.1:5","clientId":"10.0.0.1@1","language":"JAVA","version":409}'
THREE_WORDS = '"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY"'

# Written by Java 4.9.8 (RemotingSerializable.toJson), but for time stamps.
JAVA: list[tuple[Body, str]] = [
    (ROUTE, ROUTE_JSON),
    (
        bodies.TopicRoute([BROKER], [], "broker-a:4"),
        '{"brokerDatas":[' + BROKER_JSON + '],"filterServerTable":{},"orderTopicConf":"broker-a:4","queueDatas":[]}',
    ),
    (
        bodies.ClusterTable({"broker-a": BROKER}, {"DefaultCluster": ["broker-a"]}),
        '{"brokerAddrTable":{"broker-a":' + BROKER_JSON + '},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}',
    ),
    (bodies.TopicList(["Orders"]), '{"topicList":["Orders"]}'),
    (bodies.GroupList(["cg"]), '{"groupList":["cg"]}'),
    (bodies.KVTable({"a": "b"}), '{"table":{"a":"b"}}'),
    (
        bodies.TopicConfigTable(VERSION, {"Orders": bodies.TopicConfig("Orders", 4, 4)}),
        '{"dataVersion":' + VERSION_JSON + ',"topicConfigTable":{"Orders":' + TOPIC_JSON + "}}",
    ),
    (
        bodies.GroupConfigTable(VERSION, {"cg": bodies.GroupConfig("cg")}),
        '{"dataVersion":' + VERSION_JSON + ',"subscriptionGroupTable":{"cg":' + GROUP_JSON + "}}",
    ),
    (client_bodies.ConsumerList(["10.0.0.1@1"]), '{"consumerIdList":["10.0.0.1@1"]}'),
    (
        client_bodies.LockQueues("cg", "10.0.0.1@1", [QUEUE]),
        '{"clientId":"10.0.0.1@1","consumerGroup":"cg","mqSet":[' + MQ + "]}",
    ),
    (client_bodies.LockedQueues([QUEUE]), '{"lockOKMQSet":[' + MQ + "]}"),
    (
        offset_bodies.TopicStats({QUEUE: offset_bodies.TopicOffset(0, 9, 1700000000000)}),
        '{"offsetTable":{' + MQ + ':{"lastUpdateTimestamp":1700000000000,"maxOffset":9,"minOffset":0}}}',
    ),
    (
        offset_bodies.ConsumeStats(1.5, {QUEUE: offset_bodies.QueueProgress(2, 1, None, 1700000000000)}),
        '{"consumeTps":1.5,"offsetTable":{'
        + MQ
        + ':{"brokerOffset":2,"consumerOffset":1,"lastTimestamp":1700000000000}}}',
    ),
    (
        client_bodies.ConsumerConnections(
            [CONNECTION],
            {"Orders": Subscription("Orders", version=7)},
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_FIRST_OFFSET",
        ),
        '{"connectionSet":[' + CONNECTION_JSON + "]," + THREE_WORDS + ',"messageModel":"CLUSTERING",'
        '"subscriptionTable":{"Orders":' + ALL_JSON + "}}",
    ),
    (client_bodies.ProducerConnections([CONNECTION]), '{"connectionSet":[' + CONNECTION_JSON + "]}"),
    (offset_bodies.ResetOffsets({QUEUE: 5}), '{"offsetTable":{' + MQ + ":5}}"),
    (client_bodies.ConsumeOutcome(), '{"autoCommit":true,"order":false,"spentTimeMills":0}'),
    (
        client_bodies.ConsumerRunning(
            {"PROP_CLIENT_VERSION": "V4_9_8"},
            [Subscription("Orders", version=7)],
            {QUEUE: client_bodies.ProcessQueueState(3)},
            {"Orders": client_bodies.ConsumeStatus(consume_ok_tps=1.25)},
        ),
        '{"mqTable":{' + MQ + ':{"cachedMsgCount":0,"cachedMsgMaxOffset":0,"cachedMsgMinOffset":0,'
        '"cachedMsgSizeInMiB":0,"commitOffset":3,"droped":false,"lastConsumeTimestamp":0,"lastLockTimestamp":0,'
        '"lastPullTimestamp":0,"locked":false,"transactionMsgCount":0,"transactionMsgMaxOffset":0,'
        '"transactionMsgMinOffset":0,"tryUnlockTimes":0}},"properties":{"PROP_CLIENT_VERSION":"V4_9_8"},'
        '"statusTable":{"Orders":{"consumeFailedMsgs":0,"consumeFailedTPS":0.0,"consumeOKTPS":1.25,"consumeRT":0.0,'
        '"pullRT":0.0,"pullTPS":0.0}},"subscriptionSet":[' + ALL_JSON + "]}",
    ),
    (
        client_bodies.Heartbeat(
            "10.0.0.1@1",
            [client_bodies.ProducerBeat("pg")],
            [
                client_bodies.ConsumerBeat(
                    "cg",
                    consume_from_where="CONSUME_FROM_FIRST_OFFSET",
                    subscription_data_set=[Subscription.build("Orders", "TagA || TagB", version=7)],
                )
            ],
        ),
        '{"clientID":"10.0.0.1@1","consumerDataSet":[{' + THREE_WORDS + ',"groupName":"cg",'
        '"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919,2598920],'
        '"expressionType":"TAG","subString":"TagA || TagB","subVersion":7,"tagsSet":["TagA","TagB"],'
        '"topic":"Orders"}],"unitMode":false}],"producerDataSet":[{"groupName":"pg"}]}',
    ),
    (offset_bodies.ConsumerOffsets({"Orders@cg": {0: 12, 1: 7}}), '{"offsetTable":{"Orders@cg":{0:12,1:7}}}'),
    (offset_bodies.DelayOffsets({3: 15}), '{"offsetTable":{3:15}}'),
    (offset_bodies.DelayOffsets({3: 15}, log_offset=9), '{"logOffset":9,"offsetTable":{3:15}}'),
]


@pytest.mark.parametrize(("body", "text"), JAVA, ids=lambda value: type(value).__name__)
def test_a_body_is_that_of_java_in_both_directions(body: Body, text: str) -> None:
    assert body.encode(bare_integers=True).decode() == text
    assert type(body).decode(text.encode()) == body
    assert type(body).decode(body.encode()) == body


def test_a_route_for_new_clients_is_standard_json_without_blanks() -> None:
    assert ROUTE.encode().decode() == ROUTE_JSON.replace('{0:"', '{"0":"').replace(',1:"', ',"1":"')


def test_a_route_of_5_is_read() -> None:
    sent = (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"h:1"},"brokerName":"b","cluster":"c","enableActingMaster":false}],'
        b'"filterServerTable":null,"queueDatas":[],"topicQueueMappingByBroker":null}'
    )
    assert bodies.TopicRoute.decode(sent).broker_datas == [bodies.BrokerRoute("c", "b", {0: "h:1"}, False)]


@pytest.mark.parametrize("name", ["readQueueNums", "writeQueueNums"])
def test_a_route_with_more_queues_than_a_topic_has_is_refused(name: str) -> None:
    raw = json.dumps({"queueDatas": [{"brokerName": "b", name: 1 << 31}]}).encode()
    with pytest.raises(RemoteProtocolError, match="<= 65535"):
        bodies.TopicRoute.decode(raw)


@pytest.mark.parametrize(
    ("members", "what"),
    [
        ({"orderTopicConf": "x" * (1 << 20)}, "1048598 bytes"),
        ({"brokerDatas": [{"brokerAddrs": dict.fromkeys(range(1, 4098), "h")}]}, "4097 addresses of brokers"),
        ({"queueDatas": [{"readQueueNums": 65535}] * 5}, "327675 queues"),
    ],
)
def test_a_route_that_would_fill_a_client_is_refused(members: dict[str, object], what: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"has {what}, and .* are the most"):
        bodies.TopicRoute.decode(json.dumps(members).encode())


@pytest.mark.parametrize(
    "broker",
    [
        {"brokerAddrs": {"0": "\x1b]0;h:1"}},
        {"brokerName": "b\nERROR all is lost"},
        {"cluster": "\u202ec"},
        {"brokerName": "b" * 513},
    ],
)
def test_a_broker_whose_name_would_write_into_a_log_or_a_terminal_is_refused(
    broker: dict[str, object],
) -> None:
    for body, members in (
        (bodies.TopicRoute, {"brokerDatas": [broker]}),
        (bodies.ClusterTable, {"brokerAddrTable": {"b": broker}}),
    ):
        with pytest.raises(RemoteProtocolError, match="that is no name") as refused:
            body.decode(json.dumps(members).encode())
        assert str(refused.value).isprintable() and len(str(refused.value)) < 500


def test_a_cluster_with_too_many_brokers_is_refused() -> None:
    brokers = {f"b{number}": {"brokerAddrs": {"0": "h", "1": "h"}} for number in range(2049)}
    with pytest.raises(RemoteProtocolError, match="has 4098 addresses of brokers"):
        bodies.ClusterTable.decode(json.dumps({"brokerAddrTable": brokers}).encode())
    with pytest.raises(RemoteProtocolError, match="bytes"):
        bodies.ClusterTable.decode(b" " * (1 << 20) + b"{}")


def test_versions_of_4_and_5_can_be_the_same() -> None:
    assert VERSION.is_same(bodies.DataVersion(3, 1700000000000, 0))
    assert not VERSION.is_same(bodies.DataVersion(4, 1700000000000))
    assert not VERSION.is_same(bodies.DataVersion(3, 1700000000000, 2))


def test_what_only_5_has_is_kept() -> None:
    sent = (
        b'{"attributes":{"+a":"b"},"groupRetryPolicy":{"customizedRetryPolicy":{"next":[5]},"type":"CUSTOMIZED"},'
        b'"subscriptionDataSet":[{"expression":"*","expressionType":"TAG","topic":"T","version":1}],'
        b'"consumeMessageOrderly":true,"consumeTimeoutMinute":15}'
    )
    group = bodies.GroupConfig.decode(sent)
    assert (group.consume_timeout_minute, group.consume_message_orderly) == (15, True)
    assert group.group_retry_policy is not None
    assert group.group_retry_policy.pause_ms(0) == 5
    encoded = json.loads(group.encode())
    assert {name: encoded[name] for name in json.loads(sent)} == json.loads(sent)


def test_bodies_do_not_share_their_empty_members() -> None:
    bodies.TopicList().topic_list.append("x")
    assert bodies.TopicList().topic_list == []
