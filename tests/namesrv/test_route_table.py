import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.loop.slices import Steps, at_once
from sparrowmq.namesrv.route_table import EXPIRY_S, BrokerId, Master, Routes
from sparrowmq.protocol.requests.bodies import DataVersion, QueueRoute, TopicConfig

A = BrokerId("East", "broker-a", 0, "10.0.0.1:10911")
A_SLAVE = BrokerId("East", "broker-a", 1, "10.0.0.2:10911")
B = BrokerId("East", "broker-b", 0, "10.0.0.3:10911")
C = BrokerId("West", "broker-c", 0, "10.0.0.4:10911")


def announce(routes, who, *topics, version=1, connection=None, now_s=0):
    configs = [TopicConfig(name, 4, 4, 6) for name in topics]
    return say(routes, who, configs, DataVersion(version), f"ha-{who.address}", connection or who, now_s)


def say(routes, who, configs, version, ha_address, connection, now_s):
    return at_once(routes.register(who, configs, version, ha_address=ha_address, connection=connection, now_s=now_s))


def names(routes, cluster=None):
    return at_once(routes.topic_names(cluster))


def queues(routes, topic):
    route = routes.route(topic)
    return {row.broker_name: row.write_queue_nums for row in route.queue_datas} if route else None


def addresses(routes, topic):
    return {broker.broker_name: broker.broker_addrs for broker in routes.route(topic).broker_datas}


@pytest.fixture
def routes():
    return Routes()


def test_a_topic_is_where_brokers_say_they_have_it(routes):
    announce(routes, A, "Orders", "Bills")
    announce(routes, B, "Orders")
    assert queues(routes, "Orders") == {"broker-a": 4, "broker-b": 4}
    assert addresses(routes, "Orders") == {"broker-a": {0: A.address}, "broker-b": {0: B.address}}
    assert queues(routes, "Bills") == {"broker-a": 4}


def test_a_topic_that_no_broker_has_has_no_route(routes):
    announce(routes, A, "Orders")
    assert routes.route("Nope") is None and routes.route("") is None


def test_each_broker_has_its_own_number_of_queues_and_permission(routes):
    version = DataVersion(1)
    say(routes, A, [TopicConfig("T", 8, 4, 6)], version, "", A, 0)
    say(routes, B, [TopicConfig("T", 2, 2, 4, topic_sys_flag=3)], version, "", B, 0)
    assert routes.route("T").queue_datas == [
        QueueRoute("broker-a", 8, 4, 6),
        QueueRoute("broker-b", 2, 2, 4, 3),
    ]


def test_a_new_version_changes_topics_and_the_same_one_does_not(routes):
    announce(routes, A, "T", version=1)
    say(routes, A, [TopicConfig("T", 9, 9)], DataVersion(1), "", A, 1)
    assert queues(routes, "T") == {"broker-a": 4}
    say(routes, A, [TopicConfig("T", 9, 9)], DataVersion(2), "", A, 2)
    assert queues(routes, "T") == {"broker-a": 9}


def test_a_registration_of_a_single_topic_adds_it_to_the_others(routes):
    announce(routes, A, "One", "Two", version=1)
    announce(routes, A, "Three", version=2)
    assert sorted(names(routes)) == ["One", "Three", "Two"]


def test_a_single_topic_is_taken_from_a_broker_that_was_not_here_before(routes):
    # Unlike Java 5.x, which refuses it, so that a broker with one topic cannot start.
    announce(routes, A, "One")
    assert queues(routes, "One") == {"broker-a": 4}


def test_a_slave_learns_its_master_and_adds_no_topics(routes):
    assert announce(routes, A_SLAVE, "Only") == Master("", "")
    assert routes.route("Only") is None
    announce(routes, A, "Orders")
    assert announce(routes, A_SLAVE) == Master(A.address, f"ha-{A.address}")
    assert addresses(routes, "Orders") == {"broker-a": {0: A.address, 1: A_SLAVE.address}}


def test_consumers_still_find_the_slave_when_the_master_is_gone(routes):
    announce(routes, A, "Orders")
    announce(routes, A_SLAVE)
    routes.unregister(A)
    assert addresses(routes, "Orders") == {"broker-a": {1: A_SLAVE.address}}


def test_a_slave_that_became_master_leaves_its_old_id(routes):
    announce(routes, A_SLAVE)
    announce(routes, A_SLAVE._replace(id=0), "Orders")
    assert addresses(routes, "Orders") == {"broker-a": {0: A_SLAVE.address}}


def test_a_broker_that_moved_is_found_at_its_new_address(routes):
    announce(routes, A, "Orders")
    announce(routes, A._replace(address="10.9.9.9:10911"), "Orders")
    routes.unregister(A)  # The old one's goodbye comes late.
    assert addresses(routes, "Orders") == {"broker-a": {0: "10.9.9.9:10911"}}


def test_a_broker_whose_place_was_taken_must_register_and_is_found_again(routes):
    announce(routes, A, "Orders")
    announce(routes, twin := A._replace(address="10.9.9.9:10911"), "Orders", "Bills", connection="twin")
    routes.unregister(twin)
    assert not routes.is_current(A, DataVersion(1), connection=A, now_s=1)
    assert routes.version_of(A.address) is None
    announce(routes, A, "Orders")
    assert addresses(routes, "Orders") == {"broker-a": {0: A.address}} and routes.route("Bills") is None
    assert routes.is_current(A, DataVersion(1), connection=A, now_s=1)


def test_the_broker_that_is_shown_is_shown_with_its_own_queues(routes):
    announce(routes, A, "Orders")
    twin = A._replace(address="10.9.9.9:10911")
    say(routes, twin, [TopicConfig("Orders", 9, 9)], DataVersion(5), "", "twin", 0)
    assert queues(routes, "Orders") == {"broker-a": 9}
    announce(routes, A, "Orders")
    assert queues(routes, "Orders") == {"broker-a": 4}


def test_a_broker_that_took_another_name_leaves_the_old_one(routes):
    announce(routes, A, "Orders", connection="one")
    announce(routes, A._replace(name="renamed"), "Orders", connection="one")
    assert queues(routes, "Orders") == {"renamed": 4}


def test_the_address_of_a_living_broker_is_not_for_a_broker_of_another_name(routes):
    announce(routes, A, "Orders", connection="one")
    with pytest.raises(RemoteError, match=r"broker-a is registered at 10\.0\.0\.1:10911 over another"):
        announce(routes, A._replace(name="thief"), "Orders", connection="two")
    assert queues(routes, "Orders") == {"broker-a": 4}
    routes.forget_connection("one")
    announce(routes, A._replace(name="heir"), "Orders", connection="two")
    assert queues(routes, "Orders") == {"heir": 4}


def test_a_broker_says_goodbye_in_its_own_name_only(routes):
    announce(routes, A, "Orders")
    routes.unregister(A._replace(name="thief"))
    assert queues(routes, "Orders") == {"broker-a": 4}


def test_a_broker_that_says_goodbye_takes_its_topics_along(routes):
    announce(routes, A, "Orders", "Bills")
    announce(routes, B, "Orders")
    routes.unregister(A)
    assert queues(routes, "Orders") == {"broker-b": 4}
    assert routes.route("Bills") is None and names(routes) == ["Orders"]


def test_a_broker_is_gone_with_its_connection(routes):
    announce(routes, A, "Orders", connection="one")
    announce(routes, B, "Orders", connection="two")
    routes.forget_connection("one")
    assert queues(routes, "Orders") == {"broker-b": 4}


def test_the_end_of_an_older_connection_changes_nothing(routes):
    announce(routes, A, "Orders", connection="old")
    announce(routes, A, "Orders", connection="new")
    routes.forget_connection("old")
    assert queues(routes, "Orders") == {"broker-a": 4}
    assert routes.is_current(A, DataVersion(1), connection="newest", now_s=1)
    routes.forget_connection("new")
    assert queues(routes, "Orders") == {"broker-a": 4}


@pytest.mark.covers("S-ROUTE-06")
def test_a_broker_that_was_silent_for_two_minutes_is_gone(routes):
    announce(routes, A, "Orders", connection="a", now_s=0)
    announce(routes, B, "Orders", connection="b", now_s=1)
    assert routes.expire(lambda heard_s: EXPIRY_S - heard_s) == []
    assert routes.expire(lambda heard_s: EXPIRY_S + 1 - heard_s) == ["a"]
    assert queues(routes, "Orders") == {"broker-b": 4}


def test_asking_for_the_version_keeps_a_broker_alive(routes):
    announce(routes, A, "Orders", version=7)
    assert routes.is_current(A, DataVersion(7), connection=A, now_s=EXPIRY_S)
    assert routes.expire(lambda heard_s: EXPIRY_S + 1 - heard_s) == []


def test_another_version_or_an_unknown_broker_must_register(routes):
    announce(routes, A, "Orders", version=7)
    assert not routes.is_current(A, DataVersion(8), connection=A, now_s=0)
    assert not routes.is_current(B, DataVersion(7), connection=B, now_s=0)
    assert routes.version_of(A.address) == DataVersion(7) and routes.version_of(B.address) is None


def test_a_drained_broker_takes_no_messages_until_it_is_undrained(routes):
    announce(routes, A, "Orders", "Bills")
    announce(routes, B, "Orders")
    assert routes.drain("broker-a") == 2
    announce(routes, A, "Later", version=2)
    assert [row.perm for row in routes.route("Orders").queue_datas] == [4, 6]
    assert [row.perm for row in routes.route("Later").queue_datas] == [4]
    assert routes.undrain("broker-a") == 3
    assert [row.perm for row in routes.route("Orders").queue_datas] == [6, 6]


def test_undraining_gives_no_permission_that_the_topic_never_had(routes):
    say(routes, A, [TopicConfig("T", 1, 1, 4)], DataVersion(1), "", A, 0)
    routes.drain("broker-a")
    routes.undrain("broker-a")
    assert routes.route("T").queue_datas[0].perm == 4


def test_a_drained_broker_that_restarts_takes_messages_again(routes):
    announce(routes, A, "Orders")
    routes.drain("broker-a")
    routes.unregister(A)
    announce(routes, A, "Orders")
    assert routes.route("Orders").queue_datas[0].perm == 6


def test_draining_an_unknown_broker_is_no_error_and_changes_nothing(routes):
    assert routes.drain("broker-a") == routes.undrain("broker-a") == 0
    routes.drain("broker-a")
    announce(routes, A, "Orders")
    assert routes.route("Orders").queue_datas[0].perm == 6


def test_a_deleted_topic_is_gone_from_one_cluster_or_from_all(routes):
    for broker in (A, B, C):
        announce(routes, broker, "Orders", "Bills")
    routes.delete_topic("Orders", "East")
    routes.delete_topic("Bills")
    routes.delete_topic("Never")
    assert queues(routes, "Orders") == {"broker-c": 4} and routes.route("Bills") is None


def test_a_topic_named_like_the_cluster_is_on_all_its_brokers(routes):
    announce(routes, A)
    announce(routes, B)
    announce(routes, C)
    route = routes.route("East")
    assert route.queue_datas == [QueueRoute("broker-a", 16, 16, 7), QueueRoute("broker-b", 16, 16, 7)]
    assert addresses(routes, "East").keys() == {"broker-a", "broker-b"}


def test_what_brokers_say_about_their_clusters_topic_comes_first(routes):
    announce(routes, A, "East")
    assert queues(routes, "East") == {"broker-a": 4}


def test_the_table_of_clusters_has_all_brokers(routes):
    for broker in (A, A_SLAVE, B, C):
        announce(routes, broker)
    table = routes.clusters()
    assert table.cluster_addr_table == {"East": ["broker-a", "broker-b"], "West": ["broker-c"]}
    assert table.broker_addr_table["broker-a"].broker_addrs == {0: A.address, 1: A_SLAVE.address}
    assert table.broker_addr_table["broker-c"].cluster == "West"


def test_topics_are_listed_for_all_and_for_one_cluster(routes):
    announce(routes, A, "Orders")
    announce(routes, C, "Orders", "Bills")
    assert names(routes) == ["Orders", "Bills"]
    assert names(routes, "East") == ["Orders"]
    assert names(routes, "Nowhere") == []


def test_topics_of_the_system_are_named_like_clusters_and_brokers(routes):
    assert routes.system_topics().topic_list == [] and routes.system_topics().broker_addr is None
    announce(routes, A, "Orders")
    listed = routes.system_topics()
    assert (listed.topic_list, listed.broker_addr) == (["East", "broker-a"], A.address)


def test_a_route_is_a_copy_that_later_changes_do_not_reach(routes):
    announce(routes, A, "Orders")
    before = routes.route("Orders")
    announce(routes, A_SLAVE)
    assert before.broker_datas[0].broker_addrs == {0: A.address}


def test_an_address_cannot_write_lines_of_its_own_into_the_log(routes, caplog):
    caplog.set_level("INFO")
    announce(routes, BrokerId("East", "broker-a", 0, "10.0.0.1:1\nINFO all is well"))
    announce(routes, BrokerId("East", "broker-a", 0, "x" * 1_000_000))
    routes.expire(lambda heard_s: 2 * EXPIRY_S - heard_s)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) >= 4 and not [line[:80] for line in lines if "\n" in line or len(line) > 600]


def test_a_broker_that_is_renamed_without_end_fills_no_log(routes, caplog):
    caplog.set_level("INFO")
    for number in range(1000):
        announce(routes, BrokerId("East", f"broker-{number}", 0, "10.0.0.1:10911"), connection="one")
    assert len(caplog.records) == 2 * 200


# In steps


class Later:
    """A route table, and the steps that it wants to be done later."""

    def __init__(self) -> None:
        self.steps: list[Steps[None]] = []
        self.routes = Routes(self.steps.append)

    def do(self) -> None:
        while self.steps:
            at_once(self.steps.pop(0))


def begun(routes, who, count, *topics, version=1):
    """A registration of which some topics are added."""
    configs = [TopicConfig(name, 4, 4, 6) for name in topics]
    steps = routes.register(who, configs, DataVersion(version), ha_address="", connection=who, now_s=0)
    for _ in range(count):
        next(steps)
    return steps


def test_a_registration_counts_once_all_topics_are_added(routes):
    announce(routes, A, "Old")
    steps = begun(routes, A, 1, "Orders", "Bills", version=2)
    assert queues(routes, "Old") == queues(routes, "Orders") == {"broker-a": 4}
    assert routes.route("Bills") is None
    assert not routes.is_current(A, DataVersion(2), connection=A, now_s=0)
    assert routes.version_of(A.address) is None
    at_once(steps)
    assert queues(routes, "Bills") == {"broker-a": 4}
    assert routes.is_current(A, DataVersion(2), connection=A, now_s=0)


@pytest.mark.parametrize("back", [False, True])
def test_a_broker_that_goes_while_it_registers_gets_no_more_topics(routes, back):
    steps = begun(routes, A, 2, "One", "Two", "Three", "Four")
    routes.forget_connection(A)
    if back:
        announce(routes, A, "New", version=2)
    at_once(steps)
    assert list(routes._topics) == names(routes) == (["New"] if back else [])
    assert routes.version_of(A.address) == (DataVersion(2) if back else None)


def test_the_topics_of_a_broker_that_is_gone_are_gone_at_once_and_removed_later():
    later = Later()
    routes = later.routes
    announce(routes, A, "Orders", "Bills")
    announce(routes, B, "Orders")
    routes.forget_connection(A)
    assert queues(routes, "Orders") == {"broker-b": 4} and routes.route("Bills") is None
    assert names(routes) == names(routes, "East") == ["Orders"]
    assert routes.vanished_brokers == {}
    later.do()
    assert list(routes._topics) == ["Orders"]
    assert set(routes.vanished_brokers["broker-a"].topics) == {"Orders", "Bills"}


def test_a_broker_that_comes_back_before_its_topics_are_removed_keeps_the_new_ones():
    later = Later()
    routes = later.routes
    announce(routes, A, "Orders", "Bills")
    routes.forget_connection(A)
    announce(routes, A, "Orders", "New", version=2)
    later.do()
    assert sorted(names(routes)) == ["New", "Orders"]
    assert routes.vanished_brokers == {}
    routes.delete_topic("New", "East")
    assert routes.drain("broker-a") == 1
