"""sparrowmq.spark.source.query_offsets: queues and offsets, as the options and the brokers have them."""

import re
from itertools import groupby

import pytest

from sparrowmq.errors import ConfigError, NetworkError, NoRoute
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.source.partition_ranges import Bounds, Range, RowsLost
from sparrowmq.spark.source.query_offsets import OffsetClient
from tests.spark.peer import BROKER, Refuse


def q(number, topic="T"):
    return MessageQueue(topic, BROKER, number)


@pytest.fixture
def plan(peer, connect):
    def plan(**given):
        options = peer.source(**(({} if "assign" in given or "subscribePattern" in given else {"topic": "T"}) | given))
        return OffsetClient(connect(retries=given.get("retries", "2")), options)

    return plan


@pytest.fixture
def stored(peer):
    """Two queues: offsets 10 to 99 and 0 to 4, stored at ten times their offset."""
    peer.store("T", 0, [b"x"] * 100, times=lambda offset: 10 * offset)
    peer.store("T", 1, [b"x"] * 5, times=lambda offset: 10 * offset)
    peer.delete("T", 0, 10)
    return {q(0): Bounds(10, 100), q(1): Bounds(0, 5)}


def test_all_queues_of_the_topics_are_read(peer, plan, stored):
    peer.store("U", 0, [b"x"])
    assert plan().bounds() == stored
    assert plan(topic="T,U").bounds() == stored | {q(0, "U"): Bounds(0, 1)}


def test_a_pattern_matches_whole_names_and_no_system_topics(peer, plan):
    for topic in (
        "orders-eu",
        "orders-us",
        "old-orders-eu",
        "%RETRY%orders-eu",
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
    ):
        peer.store(topic, 0, [])
    assert plan(subscribePattern="orders-.*").bounds().keys() == {q(0, "orders-eu"), q(0, "orders-us")}
    assert {queue.topic for queue in plan(subscribePattern=".*").bounds()} == {
        "orders-eu",
        "orders-us",
        "old-orders-eu",
    }


def test_only_assigned_queues_are_read_and_they_must_exist(plan, stored):
    assert plan(assign='{"T":{"broker-a":[1]}}').bounds() == {q(1): stored[q(1)]}
    with pytest.raises(ConfigError, match=r"assign names T@broker-a\[7\], which does not exist"):
        plan(assign='{"T":{"broker-a":[1,7]}}').bounds()


def test_a_topic_that_does_not_exist_is_told_at_once(peer, plan):
    with pytest.raises(NoRoute, match="no route for topic 'absent'"):
        plan(topic="absent").bounds()
    assert peer.count(105) == 1


def test_queues_that_were_begun_may_be_without_a_route(plan, stored):
    away = MessageQueue("T", "broker-b", 0)
    assert plan().queues([q(0), away]) == ([q(0), q(1)], [away])
    assert plan(topic="absent").queues([q(0, "absent")]) == ([], [q(0, "absent")])
    assert plan(subscribePattern="T|gone").queues([q(0, "gone"), q(0, "U")]) == ([q(0), q(1)], [q(0, "gone")])
    assert plan(assign='{"T":{"broker-a":[1],"broker-b":[0]}}').queues([q(0), away]) == ([q(1)], [away])
    with pytest.raises(NoRoute):
        plan(topic="absent").queues([q(0)])


def test_a_broker_says_when_it_stored_its_newest_message(peer, plan, stored):
    peer.store("U", 0, [b"x"], times=lambda _: 7000)
    peer.store("empty", 0, [])
    assert plan().newest_ms(stored) == {BROKER: 990}
    assert plan().newest_ms([*stored, q(0, "U"), q(0, "empty"), q(0, "absent")]) == {BROKER: 7000}
    assert plan().newest_ms([q(0, "empty")]) == {}
    with pytest.raises(NetworkError):
        plan().newest_ms([MessageQueue("T", "broker-b", 0)])


def test_a_broker_that_is_away_leaves_only_its_own_queues_out(plan, stored):
    away = MessageQueue("T", "broker-b", 0)
    found = plan().reachable_bounds([*stored, away])
    assert isinstance(found.pop(away), NetworkError)
    assert found == stored


def test_of_queues_that_were_begun_only_the_end_is_asked(peer, plan, stored):
    found = plan().reachable_bounds(list(stored), read={q(0): 20})
    assert found == {q(0): Bounds(0, stored[q(0)].end), q(1): stored[q(1)]}
    assert (peer.count(30), peer.count(31)) == (2, 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {q(0): 10, q(1): 0}),
        ({"startingOffsets": "latest"}, {q(0): 100, q(1): 5}),
        ({"startingOffsets": '{"T":{"broker-a":{"0":-1,"1":3}}}'}, {q(0): 100, q(1): 3}),
        ({"startingOffsets": '{"T":{"broker-a":{"0":-2,"1":-2}}}'}, {q(0): 10, q(1): 0}),
        ({"startingOffsets": '{"T":{"0":-1,"1":3}}', "kafkaCompat": "true"}, {q(0): 100, q(1): 3}),
        (
            {"startingOffsetsByTimestamp": '{"T":{"0":500,"1":0}}', "kafkaCompat": "true"},
            {q(0): 50, q(1): 0},
        ),
        ({"startingTimestamp": "35", "startingOffsetsByTimestampStrategy": "latest"}, {q(0): 10, q(1): 4}),
        ({"startingOffsetsByTimestamp": '{"T":{"broker-a":{"0":500,"1":0}}}'}, {q(0): 50, q(1): 0}),
        (
            {
                "startingTimestamp": "40",
                "startingOffsetsByTimestamp": '{"T":{"broker-a":{"0":1,"1":1}}}',
                "startingOffsets": "latest",
            },
            {q(0): 10, q(1): 4},
        ),
    ],
)
def test_where_a_query_starts(plan, stored, given, expected):
    assert plan(**given).starts(stored, otherwise="earliest") == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {q(0): 100, q(1): 5}),
        ({"endingOffsets": '{"T":{"broker-a":{"0":50,"1":-1}}}'}, {q(0): 50, q(1): 5}),
        ({"endingOffsets": '{"T":{"0":50,"1":-1}}', "kafkaCompat": "true"}, {q(0): 50, q(1): 5}),
        ({"endingTimestamp": "305"}, {q(0): 31, q(1): 5}),
        ({"endingOffsetsByTimestamp": '{"T":{"broker-a":{"0":200,"1":20}}}'}, {q(0): 20, q(1): 2}),
    ],
)
def test_where_a_query_ends(plan, stored, given, expected):
    assert plan(**given).ends(stored) == expected


def test_kafkas_form_of_offsets_is_refused_for_a_topic_on_two_brokers(peer, plan, stored):
    bounds = stored | {MessageQueue("T", "broker-b", 0): Bounds(0, 5)}
    form = re.escape('{"T": {"broker-a": {"1": 3}, "broker-b": {"1": 3}}}, with every queue')
    kafkas = plan(startingOffsets='{"T":{"1":3,"0":-2}}', kafkaCompat="true")
    with pytest.raises(ConfigError, match=f"T is on 2 brokers, so option startingOffsets names them; write {form}"):
        kafkas.starts(bounds, otherwise="earliest")
    with pytest.raises(ConfigError, match=r"names U@\[0\], which does not exist"):
        plan(startingOffsets='{"U":{"0":3},"T":{"0":3,"1":3}}', kafkaCompat="true").starts(stored, otherwise="latest")


def test_the_default_start_is_the_callers(plan, stored):
    assert plan().starts(stored, otherwise="latest") == {q(0): 100, q(1): 5}


def test_a_time_that_no_message_reached_is_an_error_unless_the_end_will_do(plan, stored):
    with pytest.raises(ConfigError, match=r"T@broker-a\[1\] has no message of 600 or later.*Strategy=latest"):
        plan(startingTimestamp="600").starts(stored, otherwise="earliest")
    with pytest.raises(ConfigError, match=r"has no message of 1970-01-01T01:00:00.6\+01:00 or later to start at"):
        plan(startingTimestamp=" 1970-01-01T01:00:00.6+01:00").starts(stored, otherwise="earliest")
    late = plan(startingTimestamp="600", startingOffsetsByTimestampStrategy="latest")
    assert late.starts(stored, otherwise="earliest") == {q(0): 60, q(1): 5}


def test_the_times_of_many_queues_are_searched_side_by_side(peer, plan):
    for number in range(300):
        peer.store("T", number, [b"x"] * 50, times=lambda offset, number=number: 10 * offset + number)
    bounds = plan().bounds()
    peer.asked.clear()
    starts = plan(startingTimestamp="305").starts(bounds, otherwise="earliest")
    assert starts == {q(number): max(0, -(-(305 - number) // 10)) for number in range(300)}
    turns = [code for code, _ in groupby(code for code, _ in peer.asked)]
    assert turns == [105, 29, 11]  # and not 300 times one after the other


@pytest.mark.parametrize("option", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_json_must_name_every_queue_and_no_other(plan, stored, option):
    with pytest.raises(ConfigError, match=r"names no offset for T@broker-a\[1\]; name every queue"):
        plan(**{option: '{"T":{"broker-a":{"0":1}}}'}).starts(stored, otherwise="earliest")
    with pytest.raises(ConfigError, match=r"names T@broker-z\[0\], which does not exist"):
        both = '{"T":{"broker-a":{"0":1,"1":1},"broker-z":{"0":1}}}'
        plan(**{option: both}).starts(stored, otherwise="earliest")


def test_offsets_that_are_gone_are_lost_data(plan, stored):
    gone = '{"T":{"broker-a":{"0":3,"1":9}}}'
    with pytest.raises(RowsLost, match="offsets 3 to 9 of"):
        plan(startingOffsets=gone).starts(stored, otherwise="earliest")
    forgiving = plan(startingOffsets=gone, endingOffsets=gone, failOnDataLoss="false")
    assert forgiving.starts(stored, otherwise="earliest") == {q(0): 10, q(1): 5}
    with pytest.raises(RowsLost, match="ends at offset 5, but was read or asked for up to 9"):
        plan(endingOffsets='{"T":{"broker-a":{"0":50,"1":9}}}').ends(stored)


def test_a_group_goes_on_where_it_was_and_begins_like_a_new_queue(peer, plan, stored):
    peer.committed["G", 0] = 42
    given = {"group": "G", "startingOffsets": "group"}
    assert plan(**given).starts(stored, otherwise="latest") == {q(0): 42, q(1): 0}
    assert plan(**given, newQueueOffsets="latest").starts(stored, otherwise="latest") == {q(0): 42, q(1): 5}


def test_progress_is_published_as_a_groups_offsets(peer, plan, stored):
    assert plan().commit_offsets("G", {q(0): 7, q(1): 8})
    assert peer.committed == {("G", 0): 7, ("G", 1): 8}


def test_progress_that_a_broker_is_not_there_to_be_told_is_told_later(peer, plan, stored):
    away = MessageQueue("T", "broker-b", 0)
    assert not plan().commit_offsets("G", {q(0): 7, away: 8})
    assert peer.committed == {("G", 0): 7}


def test_a_broker_that_does_not_know_the_group_does_not_end_the_query(peer, plan, stored, caplog):
    peer.answers[15].append(Refuse(26, "Group G not exist!"))
    plan().commit_offsets("G", {q(0): 7, q(1): 8})
    assert peer.committed == {("G", 1): 8}
    assert "was not kept for group G: the peer answered with code 26" in caplog.text


def test_the_size_of_rows_is_their_mean_where_messages_grow_and_queues_differ(peer, plan):
    """Small messages first, and then large ones; and most rows in the queue with small ones."""
    peer.store("T", 0, [b"x" * 100] * 500 + [b"x" * 10_000] * 500)
    assert plan().row_bytes([Range(q(0), 0, 1000)]) == pytest.approx(5050 + 92, rel=0.01)
    peer.store("T", 1, [b"x"] * 9000)
    found = plan().row_bytes([Range(q(0), 0, 1000), Range(q(1), 0, 9000)])
    assert found == pytest.approx((5050 + 9 * 1) / 10 + 92, rel=0.02)


def test_the_size_of_rows_is_known_from_a_sample(peer, plan):
    peer.store("T", 0, [b"x" * 900] * 100)
    peer.store("T", 1, [])
    size = plan().row_bytes([Range(q(0), 5, 100)])
    assert size == 900 + 92
    assert plan().row_bytes([]) == 1024
    peer.answers[11].extend([Refuse(21)] * 3)  # of eight samples
    assert plan().row_bytes([Range(q(0), 5, 100)]) == 900 + 92
    peer.answers[11].extend([Refuse(21)] * 8)
    assert plan().row_bytes([Range(q(0), 5, 100)]) == 1024
