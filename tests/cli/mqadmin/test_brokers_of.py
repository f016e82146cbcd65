from sparrowmq.cli.mqadmin.call import NO_CLUSTER, address_to_ask, brokers_to_ask, cluster_of
from sparrowmq.protocol.requests.bodies import BrokerRoute, ClusterTable, TopicRoute


def test_a_master_is_asked_and_without_one_any_slave() -> None:
    assert address_to_ask({0: "m", 1: "s"}) == "m"
    assert address_to_ask({1: "s"}) == "s"
    assert address_to_ask({}) is None
    route = TopicRoute([BrokerRoute("c", "a", {0: "m"}), BrokerRoute("c", "b", {})])
    assert [(row.broker_name, address) for row, address in brokers_to_ask(route)] == [("a", "m")]


def test_a_broker_belongs_to_the_cluster_that_names_it() -> None:
    table = ClusterTable({}, {"c": ["a"], "d": ["b"]})
    assert (cluster_of(table, "b"), cluster_of(table, "z")) == ("d", None)


def test_an_unknown_cluster_is_told_without_a_new_line_and_is_no_success(admin) -> None:
    said = admin("getBrokerConfig -c Nowhere")
    assert (said.code, said.err) == (1, "")
    assert said.out == f"[error] {NO_CLUSTER}"
    assert admin("getBrokerConfig -c Nowhere --java-exit-codes").code == 0
