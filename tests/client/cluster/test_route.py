import pytest

from sparrowmq.client.cluster.routes import Route, address_of, fixed_queues
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import BrokerRoute, QueueRoute, TopicRoute


@pytest.mark.covers("S-ROUTE-08")
def test_a_route_lists_queues_in_javas_order():
    body = TopicRoute(
        broker_datas=[BrokerRoute(broker_name=name, broker_addrs={0: name}) for name in "ba"],
        queue_datas=[
            QueueRoute(broker_name="b", read_queue_nums=1, write_queue_nums=2, perm=6),
            QueueRoute(broker_name="a", read_queue_nums=2, write_queue_nums=1, perm=6),
        ],
    )
    route = Route.build("t", body)
    assert route.writable == (MessageQueue("t", "a", 0), MessageQueue("t", "b", 0), MessageQueue("t", "b", 1))
    assert route.readable == (MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0))


@pytest.mark.covers("S-ROUTE-09")
@pytest.mark.parametrize(("perm", "writable", "readable"), [(2, 1, 0), (4, 0, 1), (6, 1, 1), (0, 0, 0)])
def test_permissions_decide_which_queues_count(perm, writable, readable):
    body = TopicRoute(
        broker_datas=[BrokerRoute(broker_name="a", broker_addrs={0: "x"})],
        queue_datas=[QueueRoute(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=perm)],
    )
    route = Route.build("t", body)
    assert (len(route.writable), len(route.readable)) == (writable, readable)


def test_a_broker_without_master_is_only_read():
    body = TopicRoute(
        broker_datas=[BrokerRoute(broker_name="a", broker_addrs={1: "slave"})],
        queue_datas=[QueueRoute(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=6)],
    )
    route = Route.build("t", body)
    assert not route.writable and len(route.readable) == 1


def test_a_new_topic_is_sent_to_some_of_the_templates_queues_and_cannot_be_read_yet():
    body = TopicRoute(
        broker_datas=[BrokerRoute(broker_name=name, broker_addrs={0: name}) for name in "ab"],
        queue_datas=[
            QueueRoute(broker_name="a", read_queue_nums=8, write_queue_nums=8, perm=7),
            QueueRoute(broker_name="b", read_queue_nums=1, write_queue_nums=1, perm=7),
        ],
    )
    route = Route.build("TBW102", body).for_new_topic("new")
    assert route.writable == (*(MessageQueue("new", "a", n) for n in range(4)), MessageQueue("new", "b", 0))
    assert route.readable == () and route.brokers["b"] == {0: "b"}


def test_another_replica_stands_in_for_one_that_is_not_there():
    addresses = {2: "two", 1: "one"}
    assert [address_of(addresses, number) for number in (0, 1, 2)] == ["one", "one", "two"]
    assert address_of({}) is None


def test_a_route_names_the_clusters_of_its_brokers():
    body = TopicRoute(broker_datas=[BrokerRoute(cluster=name, broker_name=name) for name in "cdc"])
    route = Route.build("t", body)
    assert route.clusters == route.for_new_topic("new").clusters == {"c", "d"}


def test_an_order_topic_has_fixed_queues_whatever_brokers_are_there():
    body = TopicRoute(
        broker_datas=[BrokerRoute(broker_name="a", broker_addrs={0: "x"})],
        queue_datas=[QueueRoute(broker_name="a", read_queue_nums=8, write_queue_nums=8, perm=6)],
        order_topic_conf="b:2;a:1;",
    )
    route = Route.build("t", body)
    assert route.keyed == (MessageQueue("t", "b", 0), MessageQueue("t", "b", 1), MessageQueue("t", "a", 0))
    assert route.writable == (MessageQueue("t", "a", 0),), "messages without a key go where a broker is"
    assert len(route.readable) == 8
    nobody = Route.build("t", TopicRoute(order_topic_conf="b:2;a:1;"))
    assert nobody.writable == nobody.keyed == route.keyed


def test_an_order_with_more_queues_than_a_route_may_have_is_none():
    assert len(fixed_queues("t", "a:65536;b:65536")) == 2 * 65_536
    assert fixed_queues("t", "a:65536;" * 5) == fixed_queues("t", f"a:{'9' * 5000}") == ()


def plain(*brokers: str, queues: int = 2, perm: int = 6) -> Route:
    return Route.build(
        "t",
        TopicRoute(
            broker_datas=[BrokerRoute(broker_name=name, broker_addrs={0: name}) for name in brokers],
            queue_datas=[QueueRoute(name, queues, queues, perm) for name in brokers],
        ),
    )


def test_a_topic_stays_ordered_when_a_name_server_does_not_say_so():
    known = plain("a", "b").with_order(fixed_queues("t", "a:2;b:2"))
    later = plain("b").with_order_of(known)
    assert later.keyed == known.keyed and later.writable == tuple(MessageQueue("t", "b", n) for n in (0, 1))
    other = plain("a", "b", "c").with_order(fixed_queues("t", "c:1"))
    assert other.with_order_of(known) == other, "an operator has changed it"
    assert plain("b").with_order_of(None) == plain("b").with_order_of(plain("a", "b")) == plain("b")


def test_another_topic_of_the_same_name_is_not_ordered():
    known = plain("a", "b", queues=4).with_order(fixed_queues("t", "a:4;b:4"))
    assert plain("a", queues=2).with_order_of(known) == plain("a", queues=2)
    assert plain("a", queues=4).with_order_of(known).fixed


@pytest.mark.parametrize("conf", ["", ";", "a", "a:", ":3", "a:many", "a:-1", "b:2;nonsense"])
def test_a_text_that_names_no_queues_fixes_none(conf):
    body = TopicRoute(
        broker_datas=[BrokerRoute(broker_name="a", broker_addrs={0: "x"})],
        queue_datas=[QueueRoute(broker_name="a", read_queue_nums=1, write_queue_nums=3, perm=6)],
        order_topic_conf=conf,
    )
    route = Route.build("t", body)
    assert len(route.writable) == 3 and not route.fixed
