import json
import re

import pytest

import sparrowmq.sync
from sparrowmq.testing.background import BackgroundCluster
from tests.cli.mqadmin.conftest import Tool

CREATED = "create topic to {} success.\nTopicConfig [topicName={}, readQueueNums=2, writeQueueNums=3, perm=RW-, "


def test_a_topic_is_created_shown_and_deleted(admin):
    said = admin.ok("updateTopic -b {broker} -t Made -r 2 -w 3")
    assert said.startswith(CREATED.format(admin.broker, "Made"))
    route = json.loads(admin.ok("topicRoute -t Made").replace("{0:", '{"0":'))
    assert route["queueDatas"][0]["writeQueueNums"] == 3
    table = admin.ok("topicRoute -t Made -l").splitlines()
    assert table[1].split() == ["DefaultCluster", "broker-0", f"{{0={admin.broker}}}", "2", "3", "6"]
    assert table[2] == "-" * 158 and table[3].split() == ["Total:", "1", "2", "3"]
    assert "Made" in admin.ok("topicList").splitlines()
    assert admin.ok("topicClusterList -t Made") == "DefaultCluster\n"
    assert admin.ok("deleteTopic -c DefaultCluster -t Made") == (
        "delete topic [Made] from cluster [DefaultCluster] success.\ndelete topic [Made] from NameServer success.\n"
    )
    gone = admin("topicRoute -t Made")
    assert gone.code == 1 and "CODE: 17" in gone.err


@pytest.mark.covers("S-ROUTE-10")
def test_a_topic_is_created_on_one_broker_or_on_a_whole_cluster(tmp_path):
    with BackgroundCluster(tmp_path, brokers=2) as cluster:
        admin = Tool(cluster)
        admin.ok("updateTopic -b {broker} -t OfOne -r 2 -w 2")
        admin.ok("updateTopic -c DefaultCluster -t OfAll -r 2 -w 2")
        for topic, brokers in (("OfOne", ["broker-0"]), ("OfAll", ["broker-0", "broker-1"])):
            route = json.loads(admin.ok(f"topicRoute -t {topic}").replace("{0:", '{"0":'))
            assert sorted(queues["brokerName"] for queues in route["queueDatas"]) == brokers


def test_attributes_are_set_and_removed_as_by_a_tool_of_5x(admin):
    admin.ok("updateTopic -b {broker} -t Typed -a +message.type=FIFO,+reserve.time=60")
    admin.ok("updateTopic -c DefaultCluster -t Typed -a +message.type=FIFO,-reserve.time")
    admin.ok("updateTopicPerm -b {broker} -t Typed -p 4")
    with sparrowmq.sync.admin(admin.cluster.namesrv) as found:
        assert found.topic("Typed").shares[0].message_type == "FIFO"
    refused = admin("updateTopic -b {broker} -t Typed -a +message.type=DELAY,-reserve.time")
    assert refused.code == 1 and "nonexistent key: reserve.time" in refused.err


def test_an_ordered_topic_has_its_order_kept_by_broker_or_by_cluster(admin):
    admin.ok("updateTopic -c DefaultCluster -t Ordered1 -w 4 -o true")
    assert "orderConf=[broker-0:4] " in admin.ok("updateOrderConf -m get -t Ordered1")
    admin("updateTopic -b {broker} -t Ordered2 -w 5 -o true")
    assert "orderConf=[broker-0:5] " in admin.ok("updateOrderConf -m get -t Ordered2")


def test_a_permission_is_changed_and_the_same_one_told(admin, topic):
    said = admin.ok(f"updateTopicPerm -b {{broker}} -t {topic} -p 4")
    assert said.startswith(f"update topic perm from 6 to 4 in {admin.broker} success.\nTopicConfig [topicName={topic}")
    assert admin.ok(f"updateTopicPerm -b {{broker}} -t {topic} -p 4") == "new perm equals to the old one!\n"
    assert admin(f"updateTopicPerm -b 127.0.0.1:1 -t {topic} -p 6").out.startswith("updateTopicPerm error broker")
    said = admin.ok(f"updateTopicPerm -c DefaultCluster -t {topic} -p 6")
    assert said == f"update topic perm from 4 to 6 in {admin.broker} success.\n"


def test_a_number_that_is_none_is_told(admin):
    said = admin("updateTopic -b {broker} -t X -r many")
    assert said.code == 1 and 'NumberFormatException: For input string: "many"' in said.err


def test_the_status_has_each_queue(admin, topic):
    admin.send(topic, b"x", b"y")
    rows = admin.ok(f"topicStatus -t {topic}").splitlines()
    assert rows[0].split() == [
        "#Broker",
        "Name",
        "#QID",
        "#Min",
        "Offset",
        "#Max",
        "Offset",
        "#Last",
        "Updated",
    ]
    assert sum(int(row.split()[3]) for row in rows[1:]) == 2
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}$", rows[1])


def test_the_list_with_clusters_has_who_consumes(admin, topic):
    admin.ok(f"updateSubGroup -b {{broker}} -g of-{topic}")
    rows = [row.split() for row in admin.ok("topicList -c").splitlines()]
    assert ["DefaultCluster", topic] in rows


def test_queues_are_shared_out_in_the_order_of_a_hash_set(admin, topic):
    result = json.loads(admin.ok(f"allocateMQ -t {topic} -i a,b,c"))["result"]
    assert sorted(len(queues) for queues in result.values()) == [0, 1, 1] and len(result["a"]) == 1


def test_rates_are_shown_for_each_topic_that_nobody_consumes(admin, topic):
    rows = admin.ok(f"statsAll -t {topic}").splitlines()
    assert rows[1].split() == [topic, "0", "0.00", "0", "NO_CONSUMER"]
    assert admin.ok(f"statsAll -a -t {topic}").splitlines() == rows[:1]
