import json

import pytest

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.topics import Topics
from sparrowmq.errors import InvalidName, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.bodies import TopicConfig

TEMPLATE = "TBW102"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "topics.json"


@pytest.fixture
def changes() -> list[int]:
    """The versions that were to be announced."""
    return []


@pytest.fixture
def make(path, clock, changes):
    """`make(auto_create_topic=False)`: the topics of a broker with these settings."""

    def make(**settings) -> Topics:
        topics = Topics(path, BrokerSettings(name="broker-a", **settings), clock)
        topics.on_change = lambda: changes.append(topics.version.counter)
        return topics

    return make


@pytest.mark.covers("S-ROUTE-01")
def test_a_new_broker_has_the_topics_of_rocketmq_itself(make):
    topics = make(cluster="Shop")
    table = {topic.topic_name: (topic.write_queue_nums, topic.perm) for topic in topics.all()}
    assert table == {
        "TBW102": (8, 7),
        "SELF_TEST_TOPIC": (1, 6),
        "BenchmarkTest": (1024, 6),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "Shop": (16, 7),
        "broker-a": (1, 7),
        "Shop_REPLY_TOPIC": (1, 6),
    }
    assert all(topics.is_system(name) for name in table)
    assert set(table) <= set(topics.system_names())
    assert not topics.is_system("Orders")


def test_the_trace_topic_is_there_if_it_is_wanted(make):
    assert make().get("RMQ_SYS_TRACE_TOPIC") is None
    assert make(trace_topic_enabled=True).get("RMQ_SYS_TRACE_TOPIC").write_queue_nums == 1


@pytest.mark.covers("S-PROD-09")
@pytest.mark.covers("S-ROUTE-03")
@pytest.mark.parametrize(("asked", "queues"), [(4, 4), (8, 8), (100, 8), (0, 1), (-5, 1)])
def test_a_send_makes_its_topic_from_the_template(make, changes, asked, queues):
    topics = make()
    made = topics.ensure_for_send("Orders", TEMPLATE, asked, "1.2.3.4:5")
    assert made == TopicConfig("Orders", queues, queues, 6)
    assert topics.get("Orders") is made
    assert len(changes) == 1
    assert topics.ensure_for_send("Orders", TEMPLATE, 1, "1.2.3.4:5") is made
    assert len(changes) == 1


@pytest.mark.covers("S-ROUTE-05")
def test_without_auto_create_a_send_to_an_unknown_topic_is_refused_with_what_to_do(make):
    topics = make(auto_create_topic=False)
    assert topics.get(TEMPLATE) is None
    with pytest.raises(RemoteError, match=r"topic\[Orders\] not exist, apply first.*mqadmin updateTopic") as refused:
        topics.ensure_for_send("Orders", TEMPLATE, 4, "1.2.3.4:5")
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("template", ["Nothing", "BenchmarkTest"])
def test_only_inherited_topics_are_templates(make, template):
    with pytest.raises(RemoteError, match="template"):
        make().ensure_for_send("Orders", template, 4, "1.2.3.4:5")


def test_names_that_break_the_rules_make_no_topic(make):
    with pytest.raises(InvalidName):
        make().ensure_for_send("../Orders", TEMPLATE, 4, "1.2.3.4:5")


@pytest.mark.covers("S-RETRY-03", "S-RETRY-04", "S-RETRY-06")
def test_groups_get_their_retry_and_dead_letter_topics_even_without_auto_create(make, changes):
    topics = make(auto_create_topic=False)
    assert topics.ensure_retry("g") == TopicConfig("%RETRY%g", 1, 1, 6)
    assert topics.ensure_retry("h", 3).read_queue_nums == 3
    assert topics.ensure_dlq("g") == TopicConfig("%DLQ%g", 1, 1, 6)
    assert topics.ensure_for_send("%RETRY%i", TEMPLATE, 4, "1.2.3.4:5").write_queue_nums == 1
    assert len(changes) == 4
    topics.ensure_retry("g")
    assert len(changes) == 4


async def test_every_change_raises_the_version(make, clock):
    topics = make()
    before = topics.version
    await clock.advance(1)
    topics.put(TopicConfig("Orders", 4, 4))
    assert (topics.version.counter, topics.version.timestamp) == (before.counter + 1, before.timestamp + 1000)
    assert topics.delete("Orders")
    assert not topics.delete("Orders")
    assert topics.version.counter == before.counter + 2


async def test_topics_survive_a_restart_in_javas_form(make, path):
    topics = make()
    topics.put(TopicConfig("Orders", 4, 2, 6, order=True))
    topics.delete("Orders")
    topics.put(TopicConfig("Payments", 4, 2, 4))
    await topics.file.save()
    saved = json.loads(path.read_bytes())
    assert saved["topicConfigTable"]["Payments"] == {
        "order": False,
        "perm": 4,
        "readQueueNums": 4,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "Payments",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }
    again = make()
    assert again.get("Payments") == TopicConfig("Payments", 4, 2, 4)
    assert again.get("Orders") is None
    assert again.version.counter > topics.version.counter, "name servers must notice changed settings"


async def test_switching_auto_create_off_takes_the_template_away(make):
    topics = make()
    topics.ensure_retry("g")
    await topics.file.save()
    assert make(auto_create_topic=False).get(TEMPLATE) is None


async def test_an_operators_change_of_the_template_is_kept(make):
    topics = make()
    topics.put(TopicConfig(TEMPLATE, 2, 2, 7))
    await topics.file.save()
    assert make().ensure_for_send("Orders", TEMPLATE, 8, "1.2.3.4:5").write_queue_nums == 2


async def test_a_slave_has_the_topics_of_its_master_and_announces_what_changed(make, path, clock, changes, tmp_path):
    topics = make()
    topics.ensure_for_send("Mine", "TBW102", 4, "peer")
    master = Topics(tmp_path / "master.json", BrokerSettings(name="broker-a"), clock)
    master.ensure_for_send("Orders", "TBW102", 4, "peer")
    master.ensure_for_send("Payments", "TBW102", 4, "peer")
    changes.clear()
    topics.follow(master.content())
    assert topics.get("Orders") == master.get("Orders") and topics.get("Mine") is None
    assert topics.version.is_same(master.version) and len(changes) == 1
    await topics.file.save()
    topics.follow(master.content())
    assert not topics.file.dirty and len(changes) == 1


def test_each_topic_of_a_name_has_its_own_incarnation_also_in_one_millisecond(make, clock):
    topics = make()
    assert topics.incarnation("Orders") == 0
    found = []
    for _ in range(3):
        topics.put(TopicConfig("Orders", 4, 4))
        found.append(topics.incarnation("Orders"))
        topics.put(TopicConfig("Orders", 8, 8))
        assert topics.incarnation("Orders") == found[-1], "a change of settings makes no other topic"
        topics.delete("Orders")
        assert topics.incarnation("Orders") == 0
    assert found == [clock.now_ms(), clock.now_ms() + 1, clock.now_ms() + 2]


async def test_incarnations_survive_a_restart_and_older_topics_have_none(make, path):
    topics = make()
    topics.put(TopicConfig("Orders", 4, 4))
    await topics.file.save()
    assert make().incarnation("Orders") == topics.incarnation("Orders")
    content = json.loads(path.read_text().splitlines()[0])
    del content["incarnations"]
    path.write_text(json.dumps(content))
    older = make()
    assert older.incarnation("Orders") == 1
    assert older.may_be("Orders", 7), "any incarnation may be that of a topic whose own is not known"
    older.delete("Orders")
    assert not older.may_be("Orders", 7)


def test_a_topic_made_from_its_queues_may_be_the_one_that_was_lost(make):
    topics = make()
    topics.adopt([("Orders", 3)], lambda topic, queue_id: None)
    assert topics.incarnation("Orders") == 1 and topics.may_be("Orders", 7)


def test_a_system_topic_that_the_broker_made_is_no_warning(make, caplog):
    topics = make()
    topics.adopt([("rmq_sys_wheel_timer", 0), ("Orders", 3)], lambda topic, queue_id: None)
    assert topics.get("rmq_sys_wheel_timer") is not None and "topic Orders was not saved" in caplog.text
    assert "rmq_sys_wheel_timer" not in caplog.text
