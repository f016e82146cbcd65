"""One answer of several, and routes with the proxy's address."""

from sparrowmq.mqproxy.remoting_port import Reach, join_answers, with_address, with_consumers
from sparrowmq.protocol.requests.bodies import BrokerRoute
from sparrowmq.protocol.requests.client_bodies import Connection, ConsumerConnections, ConsumerList
from sparrowmq.protocol.requests.headers import QueryMessageReply
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.protocol.wire.command import Command


def reply(code=0, body=b"", header=None):
    return Command(code=code, flag=1, body=body, fields=header.ext_fields() if header else {})


def members(*names):
    return reply(body=ConsumerList(list(names)).encode())


def test_members_that_any_broker_knows_are_members():
    found = join_answers(Reach.MEMBERS, [members("c", "a"), reply(1), members("a", "b")])
    assert found.code == 0 and ConsumerList.decode(found.body).consumer_id_list == ["a", "b", "c"]


def test_without_a_broker_that_knows_members_there_is_its_error():
    assert join_answers(Reach.MEMBERS, [reply(1), reply(2)]).code == 1


def test_lists_that_cannot_be_read_go_on_as_they_are():
    assert join_answers(Reach.MEMBERS, [reply(body=b"?"), members("a")]).body == b"?"


def connections(*names, topic="orders"):
    table = {topic: Subscription.build(topic, "*")}
    return ConsumerConnections([Connection(name) for name in names], table, "CONSUME_PASSIVELY")


def test_connections_that_any_broker_knows_are_those_of_the_group():
    parts = [connections("a", "b"), connections("b", "c", topic="bills")]
    answers = [reply(206), *(reply(body=each.encode()) for each in parts)]
    found = ConsumerConnections.decode(join_answers(Reach.CONNECTIONS, answers).body)
    assert [row.client_id for row in found.connection_set] == ["a", "b", "c"]
    assert found.subscription_table.keys() == {"orders", "bills"}
    assert join_answers(Reach.CONNECTIONS, [reply(206), reply(206)]).code == 206


def test_consumers_of_the_grpc_port_are_added_unless_the_question_was_refused():
    own = connections("g")
    found = with_consumers(reply(body=connections("a").encode()), own)
    assert [row.client_id for row in ConsumerConnections.decode(found.body).connection_set] == ["a", "g"]
    found = with_consumers(reply(206), own)
    assert found.code == 0 and ConsumerConnections.decode(found.body) == own
    assert with_consumers(reply(16), own).code == 16
    assert with_consumers(reply(206), ConsumerConnections()).code == 206


def test_records_of_all_brokers_are_found():
    first = reply(body=b"one", header=QueryMessageReply(5, 50))
    second = reply(body=b"two", header=QueryMessageReply(9, 90))
    found = join_answers(Reach.RECORDS, [first, reply(22), second])
    assert found.body == b"onetwo" and found.header(QueryMessageReply) == QueryMessageReply(9, 90)


def test_the_only_broker_with_records_answers():
    one = reply(body=b"one", header=QueryMessageReply(5, 50))
    assert join_answers(Reach.RECORDS, [reply(22), one]).body == b"one"


def test_one_refused_heartbeat_is_refused():
    assert join_answers(Reach.ALL, [reply(), reply(16), reply()]).code == 16
    assert join_answers(Reach.ALL, [reply(), reply()]).code == 0


def test_a_route_has_the_proxys_address_for_each_replica():
    row = BrokerRoute("C", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}, zone_name="z")
    [shown] = with_address([row], "proxy:8080")
    assert shown == BrokerRoute("C", "broker-a", {0: "proxy:8080", 1: "proxy:8080"}, zone_name="z")
    assert row.broker_addrs[1] == "10.0.0.2:10911"
