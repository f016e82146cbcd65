"""sparrowmq.spark.source.pulls: rows come once and in order, whatever the broker does."""

import pytest

from sparrowmq.errors import AccessDenied, ConfigError, NetworkError, RemoteError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import PullMessageReply
from sparrowmq.spark.columns import RecordColumns
from sparrowmq.spark.source.partition_ranges import Range, RowsLost
from sparrowmq.spark.source.pulls import Pulls
from tests.spark.peer import BROKER, HangUp, Refuse, Silence

PULL = 11


def span(start, end, queue_id=0):
    return Range(MessageQueue("T", BROKER, queue_id), start, end)


def fill(peer, *counts):
    for queue_id, count in enumerate(counts):
        peer.store("T", queue_id, [b"x"] * count)


@pytest.fixture
def pull(peer, connect):
    """The (queue, offset) of every row that pulling gives."""

    def pull(*ranges, **given):
        options = peer.source(**({"topic": "T", "retries": "2"} | given))
        network = connect(given.get("retries", "2"))
        rows = []
        for pulled in Pulls(network, ranges, options).answers():
            offsets = RecordColumns(pulled.body).queue_offsets.tolist()
            assert pulled.count in (None, len(offsets))
            rows += [(pulled.range.queue.queue_id, offset) for offset in offsets]
        assert not network.link(MessageQueue("T", BROKER, 0))._connection.in_flight
        return rows

    return pull


def expected(*ranges):
    return [(each.queue.queue_id, offset) for each in ranges for offset in range(each.start, each.end)]


@pytest.mark.parametrize("per_pull", [1, 7, 32, 10_000])
@pytest.mark.parametrize("in_flight", ["1", "16"])
def test_rows_come_once_and_in_order_however_few_a_broker_gives(peer, pull, per_pull, in_flight):
    fill(peer, 300, 5, 0, 170)
    peer.per_pull = per_pull
    ranges = [span(0, 300), span(2, 5, 1), span(50, 169, 3)]
    assert pull(*ranges, pullsInFlight=in_flight, pullBatchSize="100") == expected(*ranges)


def test_the_first_ask_goes_alone_and_then_many_are_under_way(peer, pull):
    fill(peer, 4096)
    peer.per_pull = 32
    assert pull(span(0, 4096), pullsInFlight="4") == expected(span(0, 4096))
    sizes = [int(fields["maxMsgNums"]) for code, fields in peer.asked if code == PULL]
    assert sizes[:3] == [4096, 32, 32]


def test_asks_follow_what_the_broker_gives(peer, pull):
    fill(peer, 5_000)
    peer.per_pull = 32
    assert len(pull(span(0, 5_000), pullBatchSize="64")) == 5_000
    sizes = [int(fields["maxMsgNums"]) for code, fields in peer.asked if code == PULL]
    assert len(sizes) == 157  # no answer was thrown away
    assert set(sizes) == {64, 32, 8}


def test_an_answer_that_ends_with_a_file_of_the_broker_makes_no_later_ask_smaller(peer, pull):
    fill(peer, 3_000)
    peer.per_file = 1_000
    assert pull(span(0, 3_000), pullBatchSize="64") == expected(span(0, 3_000))
    sizes = [int(fields["maxMsgNums"]) for code, fields in peer.asked if code == PULL]
    assert sorted(size for size in sizes if size != 64) == [24, 48, 56], "two rests, and the end"


def test_no_more_rows_are_asked_for_than_fit_into_an_answer(peer, pull):
    fill(peer, 5_000)
    assert pull(span(0, 5_000), pullMaxBytes="9000") == expected(span(0, 5_000))
    most = 9000 // len(peer.queues["T"][0][0])
    first, _, *sizes = [int(fields["maxMsgNums"]) for code, fields in peer.asked if code == PULL]
    assert first == 4096
    assert most * 15 // 16 < max(sizes) <= most


def test_nothing_to_read_asks_nothing(peer, pull):
    fill(peer, 1)
    assert pull() == pull(span(1, 1)) == []
    assert peer.count(PULL) == 0


@pytest.mark.parametrize("trouble", [HangUp(), Refuse(2, "busy"), Refuse(1, "starting"), Silence()])
def test_a_broker_that_fails_for_a_while_costs_no_row_and_doubles_none(peer, pull, trouble):
    fill(peer, 200, 100)
    peer.per_pull = 10
    peer.answers[PULL].extend([trouble, trouble])
    ranges = [span(0, 200), span(0, 100, 1)]
    assert pull(*ranges, pullTimeoutMs="50", pullBatchSize="10") == expected(*ranges)


def test_a_connection_lost_in_the_middle_is_taken_up_where_rows_were_given_out(peer, pull):
    fill(peer, 500)
    peer.per_pull = 10
    peer.later = {(PULL, 20): HangUp(), (PULL, 33): HangUp(), (PULL, 60): HangUp()}
    assert pull(span(0, 500), pullBatchSize="10") == expected(span(0, 500))


def test_a_broker_that_stays_away_is_an_error(peer, pull):
    fill(peer, 5)
    peer.answers[PULL].extend([HangUp()] * 3)
    with pytest.raises(NetworkError):
        pull(span(0, 5))


def test_a_queue_that_its_topic_does_not_show_any_more_is_named_with_what_to_do(peer, pull):
    fill(peer, 5, 5)
    hidden = Refuse(1, "queueId[1] is illegal, topic:[T] topicConfig.readQueueNums:[1] consumer:[127.0.0.1:1]")
    peer.answers[PULL].extend([hidden] * 3)
    with pytest.raises(NetworkError, match=r"T@.*\[1\] has messages that were not read.* Give it 2 again until"):
        pull(span(0, 5, 1))
    assert pull(span(0, 5, 1)) == [(1, offset) for offset in range(5)]


def test_a_refusal_that_will_not_change_is_an_error_at_once(peer, pull):
    fill(peer, 5)
    peer.answers[PULL].append(Refuse(26, "group G not exist"))
    with pytest.raises(RemoteError, match="group G not exist"):
        pull(span(0, 5))
    assert peer.count(PULL) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        Refuse(1, "The broker does not support consumer to filter message by SQL92"),
        Refuse(23, "parse the consumer's subscription failed"),
    ],
)
def test_a_filter_that_the_broker_will_not_take_is_told_at_once(peer, pull, refusal):
    fill(peer, 5)
    peer.answers[PULL].extend([refusal] * 3)
    with pytest.raises(ConfigError, match=r"refuses the filter filter\.sql='a > 1'"):
        pull(span(0, 5), **{"filter.sql": "a > 1"})
    assert peer.count(PULL) == 1


def test_who_may_not_read_is_told_at_once(peer, pull):
    fill(peer, 5)
    peer.answers[PULL].extend([Refuse(1, "org.apache.rocketmq.acl.common.AclException: no")] * 3)
    with pytest.raises(AccessDenied):
        pull(span(0, 5))
    assert peer.count(PULL) == 1


def test_rows_removed_by_retention_end_the_query_or_are_left_out(peer, pull):
    fill(peer, 100)
    peer.delete("T", 0, 40)
    with pytest.raises(RowsLost, match=r"offsets 0 to 39 of T@broker-a\[0\] are gone"):
        pull(span(0, 100))
    assert pull(span(0, 100), failOnDataLoss="false") == expected(span(40, 100))
    assert pull(span(0, 30), span(60, 100), failOnDataLoss="false") == expected(span(60, 100))


def test_rows_that_were_removed_are_told_once_and_exactly(peer, pull, caplog):
    fill(peer, 300, 20)
    peer.delete("T", 0, 140)
    ranges = span(0, 30), span(50, 100), span(100, 300), span(0, 20, 1)
    rows = pull(*ranges, failOnDataLoss="false", pullBatchSize="10")
    assert rows == expected(span(140, 300), span(0, 20, 1))
    assert caplog.messages == [
        "data lost: offsets 0 to 29 of T@broker-a[0] are gone",
        "data lost: offsets 50 to 139 of T@broker-a[0] are gone",
    ]


def test_rows_that_a_broker_lost_at_its_end_are_waited_for_first(peer, pull):
    fill(peer, 100)
    with pytest.raises(RowsLost, match="ends at offset 100, but was read or asked for up to 120"):
        pull(span(0, 120), pullBatchSize="50")
    assert pull(span(0, 120), span(50, 60), failOnDataLoss="false", pullBatchSize="50") == expected(
        span(0, 100), span(50, 60)
    )
    assert pull(span(110, 120), failOnDataLoss="false") == []
    # By offset: on the connections that were given up, the peer may still be reading what was asked before.
    offsets = [fields["queueOffset"] for code, fields in peer.asked if code == PULL]
    assert offsets.count("110") == 3


def test_rows_that_are_being_removed_are_lost_too(peer, pull):
    fill(peer, 100)
    skip = Refuse(20, "MESSAGE_WAS_REMOVING", PullMessageReply(0, 30, 0, 100))
    peer.answers[PULL].append(skip)
    with pytest.raises(RowsLost, match="offsets 0 to 29"):
        pull(span(0, 100))
    peer.answers[PULL].append(skip)
    assert pull(span(0, 100), failOnDataLoss="false") == expected(span(30, 100))


def test_a_broker_that_does_not_go_on_is_asked_again_but_not_for_ever(peer, pull):
    fill(peer, 10)
    stuck = Refuse(20, "NO_MATCHED_MESSAGE", PullMessageReply(0, 0, 0, 10))
    peer.answers[PULL].extend([stuck, stuck])
    assert pull(span(0, 10)) == expected(span(0, 10))
    peer.answers[PULL].extend([stuck] * 3)
    with pytest.raises(NetworkError, match="has no messages of"):
        pull(span(0, 10))


def test_a_filtered_pull_may_skip_and_reach_beyond_its_range(peer, connect):
    peer.store("T", 0, [b"x"] * 100, lambda offset: b"TAGS\x01%s\x02" % (b"odd" if offset % 2 else b"even"))
    peer.per_pull = 10
    options = peer.source(topic="T", subExpression="odd")
    found = list(Pulls(connect(), [span(0, 31), span(40, 45)], options).answers())
    assert [pulled.count for pulled in found] == [None] * len(found)
    assert [pulled.reaches_beyond for pulled in found] == [False, True, True]
    offsets = [
        offset for pulled in found for offset in RecordColumns(pulled.body).queue_offsets if offset < pulled.range.end
    ]
    assert offsets == [*range(1, 31, 2), 41, 43]


def test_a_filter_that_matches_nothing_reads_to_the_end(peer, pull):
    fill(peer, 100)
    peer.per_pull = 5
    assert pull(span(0, 100), subExpression="absent") == []
    assert pull(span(0, 100), **{"filter.sql": "a > 1"}) == []
    asked = [fields for code, fields in peer.asked if code == PULL]
    assert (asked[0]["subscription"], asked[0]["expressionType"], asked[0]["sysFlag"]) == (
        "absent",
        "TAG",
        "4",
    )
    assert (asked[-1]["subscription"], asked[-1]["expressionType"]) == ("a > 1", "SQL92")
