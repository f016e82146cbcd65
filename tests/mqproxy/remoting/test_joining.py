"""One answer of several, and routes with the proxy's address."""

from sparrowmq.mqproxy.remoting.destinations import Reach
from sparrowmq.mqproxy.remoting.joining import joined, readdressed
from sparrowmq.protocol.requests.bodies import BrokerRoute, ConsumerList
from sparrowmq.protocol.requests.headers import QueryMessageReply
from sparrowmq.protocol.wire.command import Command


def reply(code=0, body=b"", header=None):
    return Command(code=code, flag=1, body=body, fields=header.ext_fields() if header else {})


def members(*names):
    return reply(body=ConsumerList(list(names)).encode())


def test_members_that_any_broker_knows_are_members():
    found = joined(Reach.MEMBERS, [members("c", "a"), reply(1), members("a", "b")])
    assert found.code == 0 and ConsumerList.decode(found.body).consumer_id_list == ["a", "b", "c"]


def test_without_a_broker_that_knows_members_there_is_its_error():
    assert joined(Reach.MEMBERS, [reply(1), reply(2)]).code == 1


def test_lists_that_cannot_be_read_go_on_as_they_are():
    assert joined(Reach.MEMBERS, [reply(body=b"?"), members("a")]).body == b"?"


def test_records_of_all_brokers_are_found():
    first = reply(body=b"one", header=QueryMessageReply(5, 50))
    second = reply(body=b"two", header=QueryMessageReply(9, 90))
    found = joined(Reach.RECORDS, [first, reply(22), second])
    assert found.body == b"onetwo" and found.header(QueryMessageReply) == QueryMessageReply(9, 90)


def test_the_only_broker_with_records_answers():
    one = reply(body=b"one", header=QueryMessageReply(5, 50))
    assert joined(Reach.RECORDS, [reply(22), one]).body == b"one"


def test_one_refused_heartbeat_is_refused():
    assert joined(Reach.ALL, [reply(), reply(16), reply()]).code == 16
    assert joined(Reach.ALL, [reply(), reply()]).code == 0


def test_a_route_has_the_proxys_address_for_each_replica():
    row = BrokerRoute("C", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}, zone_name="z")
    [shown] = readdressed([row], "proxy:8080")
    assert shown == BrokerRoute("C", "broker-a", {0: "proxy:8080", 1: "proxy:8080"}, zone_name="z")
    assert row.broker_addrs[1] == "10.0.0.2:10911"
