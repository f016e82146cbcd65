"""Each request that the remoting port serves, before two brokers: with a topic on both, on one, or on none.

The answer through mqproxy has the code that the broker itself gives. The requests are made from the table of requests,
so a new one is tried as soon as mqproxy serves it.
"""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import Any, get_origin

import msgspec
import pytest

from sparrowmq import connect
from sparrowmq.mqproxy.remoting_port import REACH, Reach
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages import batch, record
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.messages.recalls import RecallHandle
from sparrowmq.protocol.requests.bodies import ClusterTable, TopicRoute
from sparrowmq.protocol.requests.client_bodies import (
    AssignmentQuery,
    ClientConfigCheck,
    ConsumerBeat,
    ConsumerConnections,
    ConsumerList,
    Heartbeat,
    LockQueues,
)
from sparrowmq.protocol.requests.pop_headers import BatchAcks
from sparrowmq.protocol.requests.request_table import BY_CODE
from sparrowmq.protocol.subscription import Subscription
from tests.interop.servers import topic_fields
from tests.interop.wire import Wire
from tests.mqproxy.remoting.proxied import proxied, until

NAMES = ("broker-0", "broker-1")
OWN = (Reach.ROUTE, Reach.CLUSTER)  # mqproxy answers them
# These name their broker in the body or in a handle.
NAMED_INSIDE = {
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.RECALL_MESSAGE,
}
SHORT = {code for code in REACH if "n" in getattr(BY_CODE[code].header, "__struct_encode_fields__", ())}


def fields_of(code: int, topic: str, broker: str) -> dict[str, str]:
    """The fields that a request needs."""
    handle = f"0 1700000000000 60000 0 0 {broker} 0 0"
    known = {
        "topic": topic,
        "b": topic,
        "originTopic": topic,
        "extraInfo": handle,
        "recallHandle": str(RecallHandle(topic, broker, 1, "id")),
        "subscription": "*",
        "expressionType": "TAG",
        "clientID": "me",
        "maxNum": "32",
        "maxMsgNums": "1",
        "endTimestamp": str(1 << 60),
        "key": "k",
        "m": str(code == RequestCode.SEND_BATCH_MESSAGE).lower(),
    }
    header = BY_CODE[code].header
    assert header is not None
    fields = {
        each.encode_name: known.get(each.encode_name, _some(each.type))
        for each in msgspec.structs.fields(header)
        if each.required or each.encode_name in known
    }
    return fields | ({"consumerGroup": "g"} if "consumerGroup" in fields else {})


def _some(kind: Any) -> str:
    """A value of a field's type."""
    if kind is bool:
        return "false"
    return "g" if kind is str or get_origin(kind) is str else "0"


def body_of(code: int, topic: str, broker: str) -> bytes:
    beat = ConsumerBeat("g", subscription_data_set=[Subscription.build(topic, "*")])
    match code:
        case RequestCode.LOCK_BATCH_MQ | RequestCode.UNLOCK_BATCH_MQ:
            return LockQueues("g", "me", [MessageQueue(topic, broker, 0)]).encode()
        case RequestCode.BATCH_ACK_MESSAGE:
            return BatchAcks(broker, []).encode()
        case RequestCode.HEART_BEAT:
            return Heartbeat("me", [], [beat]).encode()
        case RequestCode.CHECK_CLIENT_CONFIG:
            return ClientConfigCheck("me", "g", Subscription.build(topic, "*")).encode()
        case RequestCode.QUERY_ASSIGNMENT:
            return AssignmentQuery(topic=topic, consumer_group="g", client_id="me").encode()
        case RequestCode.SEND_BATCH_MESSAGE:
            return batch.encode([batch.BatchPart(b"body", b"")])
    return b"body"


def codes_at(address: str, topic: str, broker: str, *, named: bool) -> dict[int, int]:
    """The codes of the answers to all requests of a client that has asked for the topic's route."""
    with Wire(int(address.rpartition(":")[2])) as wire:
        wire.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        codes = {}
        for code in sorted(REACH):
            name = {"n" if code in SHORT else "bname": broker} if named else {}
            fields = fields_of(code, topic, broker) | name
            codes[code] = wire.ask(code, fields, body_of(code, topic, broker)).code
        return codes


@asynccontextmanager
async def two(path):
    """Two brokers: both have the topic `orders`, the second one `bills`, and none `absent`."""
    async with proxied(path) as place, connect(place.cluster.namesrv) as mq:

        def make():
            with Wire(int(place.cluster.brokers[1].address.rpartition(":")[2])) as wire:
                return wire.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("bills", 2)).code

        assert await asyncio.to_thread(make) == 0
        await until(lambda: has_route(mq, "bills"))
        yield place


async def has_route(mq, topic):
    return topic in await mq.admin.topics()


async def codes_of(place, topic, broker, *, named, direct=False):
    at = place.cluster.brokers[NAMES.index(broker)].address if direct else place.address
    found = await asyncio.to_thread(codes_at, at, topic, broker, named=named)
    return {code: answer for code, answer in found.items() if REACH[code] not in OWN}


@pytest.mark.parametrize(("topic", "holders"), [("orders", NAMES), ("bills", NAMES[1:])])
async def test_a_request_that_names_its_broker_gets_the_answer_of_this_broker(tmp_path, topic, holders):
    async with two(tmp_path) as place:
        for name in holders:
            expected = await codes_of(place, topic, name, named=True, direct=True)
            assert await codes_of(place, topic, name, named=True) == expected
            assert Counter(expected.values())[0] > len(expected) // 2, "most requests are fit to be answered"


async def test_a_request_without_a_name_reaches_the_only_broker_of_its_topic(tmp_path):
    async with two(tmp_path) as place:
        expected = await codes_of(place, "bills", "broker-1", named=False, direct=True)
        assert await codes_of(place, "bills", "broker-1", named=False) == expected


async def test_a_request_without_a_name_is_refused_only_if_several_brokers_could_be_meant(tmp_path):
    async with two(tmp_path) as place:
        expected = [await codes_of(place, "orders", name, named=False, direct=True) for name in NAMES]
        for code, answer in (await codes_of(place, "orders", "broker-1", named=False)).items():
            if REACH[code] is Reach.ONE and code not in NAMED_INSIDE:
                assert answer == ResponseCode.VERSION_NOT_SUPPORTED, code
            else:
                assert answer in {each[code] for each in expected}, code


async def test_an_unknown_topic_is_said_to_be_so(tmp_path):
    async with two(tmp_path) as place:
        for code, answer in (await codes_of(place, "absent", "broker-1", named=False)).items():
            header = BY_CODE[code].header
            assert header is not None
            has_topic = {"topic", "b", "originTopic"} & {*header.__struct_encode_fields__}
            if REACH[code] in (Reach.ONE, Reach.ANY, Reach.RECORDS) and has_topic and code not in NAMED_INSIDE:
                assert answer in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.VERSION_NOT_SUPPORTED), code


async def test_joined_answers_have_each_item_once(tmp_path):
    async with two(tmp_path) as place, connect(place.address) as mq, mq.subscribe("orders", group="g"):
        sent = [await mq.send("orders", b"%d" % number, keys=["k"]) for number in range(4)]
        await until(lambda: _all_know(place))
        route = TopicRoute.decode((await ask(place, RequestCode.GET_ROUTEINFO_BY_TOPIC)).body)
        for rows in (route.broker_datas, route.queue_datas):
            assert sorted(row.broker_name for row in rows) == [*NAMES]
        table = ClusterTable.decode((await ask(place, RequestCode.GET_BROKER_CLUSTER_INFO)).body)
        assert sorted(table.cluster_addr_table["DefaultCluster"]) == [*NAMES]
        members = ConsumerList.decode((await ask(place, RequestCode.GET_CONSUMER_LIST_BY_GROUP)).body)
        found = ConsumerConnections.decode((await ask(place, RequestCode.GET_CONSUMER_CONNECTION_LIST)).body)
        assert [row.client_id for row in found.connection_set] == members.consumer_id_list
        assert members.consumer_id_list == [mq._network.client_id]
        await until(lambda: _finds(place, sorted(each.msg_id for each in sent)))


async def ask(place, code):
    def now():
        with Wire(int(place.address.rpartition(":")[2])) as wire:
            return wire.ask(code, fields_of(code, "orders", ""))

    return await asyncio.to_thread(now)


async def _all_know(place):
    return all(await place.members("g"))


async def _finds(place, ids):
    answer = await ask(place, RequestCode.QUERY_MESSAGE)
    return sorted(record.decode(each).message_id for each in record.walk(answer.body)) == ids
