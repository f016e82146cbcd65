"""sparrowmq.spark.pipelines.mirror: from which topics to which."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.mirror import Route, Target, build_route
from sparrowmq.spark.pipelines.running.runner import Runner


def is_chosen(route: Route, topic: str) -> bool:
    assert route.source.topic_pattern is not None
    return bool(route.source.topic_pattern.fullmatch(topic))


def test_topics_keep_their_names_or_get_another():
    assert build_route("a,b", "near:1", Target("far:1")).target_name("b") == "b"
    assert build_route("a", "near:1", Target("near:1", "b"), {"tags": "x"}).target_name("a") == "b"
    assert build_route("a,b", "near:1", Target("near:1", "{topic}-copy")).target_name("b") == "b-copy"
    assert build_route("a,b", "near:1", Target("near:1", "c", joins=True)).target_name("b") == "c"


@pytest.mark.parametrize(
    ("topic", "to", "meant"),
    [
        ("orders-.*", "near:1", {"orders-a": True, "orders-a-once": False, "orders": False}),
        ("orders-.*", "far:1", {"orders-a": True, "orders-a-once": True, "orders": False}),
        ("(a|b)", "near:1", {"a": True, "b": True, "c": False}),
        ("a-.*, b", "near:1", {"a-1": True, "b": True, "a-1-once": False, "b-once": False, "c": False}),
        ("a-.{1,2},b", "far:1", {"a-1": True, "a-123": False, "b": True, "c": False}),
    ],
)
def test_a_pattern_does_not_find_the_copies(topic, to, meant):
    route = build_route(topic, "near:1", Target(to, "{topic}-once"))
    assert route.follows_new_topics
    assert {name: is_chosen(route, name) for name in meant} == meant


def test_a_pattern_does_not_find_the_topic_to_which_all_are_copied():
    route = build_route("orders.*", "near:1", Target("near:1", "orders-once", joins=True))
    assert is_chosen(route, "orders-a")
    assert not is_chosen(route, "orders-once")
    assert is_chosen(route, "orders-once-2")


@pytest.mark.parametrize(
    ("topics", "to", "to_topic", "complaint"),
    [
        ("a", "near:1", None, "copied into themselves"),
        ("a,b", "far:1", "c", "renames one topic; for several write {topic}"),
        ("a.*", "far:1", "c", "renames one topic; for several write {topic}"),
        ("a.*", "near:1", None, "copied into themselves"),
        ("a.*", "near:1", "{topic}", "copied into themselves"),
        ("a,b", "near:1", "b", "renames one topic"),
        ("a", "far", None, "nameServer='far'"),
    ],
)
def test_a_way_that_leads_nowhere_is_refused(topics, to, to_topic, complaint):
    with pytest.raises(ConfigError, match=complaint):
        build_route(topics, "near:1;x:1", Target(to, to_topic))


def test_a_stream_is_not_told_where_it_ends():
    with pytest.raises(ConfigError, match="and not a stream; leave them out"):
        build_route("a", "near:1", Target("far:1"), {"endingtimestamp": "1000"})


def test_topics_are_made_as_wide_and_queues_paired(namesrv):
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic("wide", queues=3)
    route = build_route("wide", namesrv, Target(namesrv, "wide-too"))
    said: list[str] = []
    route.make(None, said.append)
    assert said == ["made topic wide-too with 3 queues on each broker"]
    assert route.targets({}) == {
        MessageQueue("wide", "broker-0", number): MessageQueue("wide-too", "broker-0", number) for number in range(3)
    }


def test_a_target_queue_that_was_taken_away_is_named(namesrv):
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic("many", queues=3)
        route = build_route("many", namesrv, Target(namesrv, "many-too"))
        route.make(None, lambda _: None)
        known = route.targets({})
        mq.admin.change_topic("many-too", queues=2)
        with pytest.raises(ConfigError, match=r"many-too@broker-0\[2\] has copies.* again by updateTopic"):
            route.targets(known)
        mq.admin.change_topic("many-too", queues=3)
        assert route.targets(known) == known


def test_topics_are_made_for_messages_of_the_same_type_and_order(namesrv):
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic("typed", queues=2, message_type="FIFO")
        mq.admin.create_topic("kept", queues=2, ordered=True)
        build_route("typed,kept", namesrv, Target(namesrv, "like-{topic}")).make(None, lambda _: None)
        typed, kept = mq.admin.topic("like-typed"), mq.admin.topic("like-kept")
    assert (typed.shares[0].message_type, typed.order) == ("FIFO", None)
    assert kept.order == "broker-0:2"


def test_a_list_that_matches_no_topic_ends_a_run_with_an_end(namesrv):
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic("there-1")
    said: list[str] = []
    once, forever = Runner(once=True, say=said.append), Runner(say=said.append)
    build_route("there-.*,absent", namesrv, Target("far:1")).check_topics(once)
    assert said == ["no topic matches absent yet"]
    absent = build_route("absent-.*,flights", namesrv, Target("far:1"))
    with pytest.raises(ConfigError, match=r"no topic at .* matches absent-\.\*,flights; correct it"):
        absent.check_topics(once)
    absent.check_topics(forever)
    assert said[1:] == ["no topic matches absent-.* yet", "no topic matches flights yet"]


def test_topics_that_appear_are_made_at_the_target_and_paired(namesrv):
    with sync.connect(namesrv) as mq:
        mq.admin.create_topic("eu-a", queues=2)
        route = build_route("eu-.*", namesrv, Target(namesrv, "{topic}-too"))
        said: list[str] = []
        route.make(None, said.append)
        known = route.targets({})
        mq.admin.create_topic("eu-b", queues=3)
        route.make(None, said.append, {queue.topic for queue in known})
        all_in_one = build_route("eu-.*", namesrv, Target(namesrv, "eu-all", joins=True))
        mq.admin.delete_topic("eu-a-too")
        mq.admin.delete_topic("eu-b-too")
        all_in_one.make(None, said.append)
    assert said == [
        "made topic eu-a-too with 2 queues on each broker",
        "made topic eu-b-too with 3 queues on each broker",
        "made topic eu-all with 3 queues on each broker",
    ]
    pairs = all_in_one.targets({})
    assert {queue.topic for queue in pairs} == {"eu-a", "eu-b"}
    assert {(queue.topic, queue.queue_id) for queue in pairs.values()} == {("eu-all", each) for each in range(3)}
