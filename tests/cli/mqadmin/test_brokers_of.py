from sparrowmq.cli.mqadmin import brokers_of
from sparrowmq.protocol.requests.bodies import BrokerRoute, ClusterTable, TopicRoute


def test_a_master_is_asked_and_without_one_any_slave() -> None:
    assert brokers_of.one_of({0: "m", 1: "s"}) == "m"
    assert brokers_of.one_of({1: "s"}) == "s"
    assert brokers_of.one_of({}) is None
    route = TopicRoute([BrokerRoute("c", "a", {0: "m"}), BrokerRoute("c", "b", {})])
    assert [(row.broker_name, address) for row, address in brokers_of.asked(route)] == [("a", "m")]


def test_a_broker_belongs_to_the_cluster_that_names_it() -> None:
    table = ClusterTable({}, {"c": ["a"], "d": ["b"]})
    assert (brokers_of.cluster_of(table, "b"), brokers_of.cluster_of(table, "z")) == ("d", None)


def test_an_unknown_cluster_is_told_without_a_new_line_and_is_no_success(admin) -> None:
    said = admin("getBrokerConfig -c Nowhere")
    assert (said.code, said.err) == (1, "")
    assert said.out == f"[error] {brokers_of.NO_CLUSTER}"
    assert admin("getBrokerConfig -c Nowhere --java-exit-codes").code == 0
