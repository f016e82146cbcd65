"""sparrowmq.spark.source.stream_source: micro-batches, planned as Spark would ask for them."""

import json

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark import cloudpickle

from sparrowmq.errors import ConfigError, NetworkError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.source.partition_ranges import RowsLost, from_json
from sparrowmq.spark.source.stream_source import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, StreamReader
from tests.spark.peer import BROKER, HangUp

SCHEMA = pa.schema([("queueId", pa.int32()), ("queueOffset", pa.int64())])
ALL = ReadAllAvailable()


def q(number):
    return MessageQueue("T", BROKER, number)


def json_of(*offsets):
    return {"v": 1, "topics": {"T": {BROKER: {str(number): offset for number, offset in enumerate(offsets)}}}}


@pytest.fixture
def stream(peer, connect):
    def stream(now=lambda: 0.0, **given):
        return StreamReader(peer.source(**({"topic": "T", "retries": "1"} | given)), SCHEMA, now)

    peer.store("T", 0, [b"x"] * 100)
    peer.store("T", 1, [b"x"] * 10)
    return stream


def rows(reader, start, end):
    """What the tasks of a batch read; each reads in a copy, as in a worker."""
    copy = cloudpickle.loads(cloudpickle.dumps(reader))
    batches = [batch for task in reader.partitions(start, end) for batch in copy.read(task)]
    return sorted((row["queueId"], row["queueOffset"]) for batch in batches for row in batch.to_pylist())


def test_a_stream_starts_at_the_end_unless_told_otherwise_and_stays_there(peer, stream):
    reader = stream()
    assert reader.initialOffset() == json_of(100, 10)
    peer.store("T", 0, [b"x"])
    assert reader.initialOffset() == json_of(100, 10)
    assert stream(startingOffsets="earliest").initialOffset() == json_of(0, 0)


def test_a_checkpoint_of_other_topics_is_refused(stream):
    of_another = {"v": 1, "topics": {"U": {BROKER: {"0": 3, "1": 0}}}}
    for ask in (
        lambda: stream().latestOffset(of_another, ALL),
        lambda: stream().partitions(of_another, of_another),
    ):
        with pytest.raises(ConfigError, match="read U, and this query reads none of it; give each query a checkpoint"):
            ask()
    both = {"v": 1, "topics": of_another["topics"] | json_of(100, 10)["topics"]}
    assert stream().latestOffset(both, ALL) == both
    for chosen in ({"subscribePattern": "U|V"}, {"assign": json.dumps({"U": {BROKER: [0]}})}):
        assert stream(topic=None, **chosen).partitions(of_another, of_another) == []


def test_each_batch_goes_on_where_the_last_ended(peer, stream):
    reader = stream()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    assert reader.partitions(start, start) == []
    peer.store("T", 1, [b"x"] * 3)
    end = reader.latestOffset(start, ALL)
    assert rows(reader, start, end) == [(1, 10), (1, 11), (1, 12)]
    assert reader.latestOffset(end, ALL) == end


def test_partitions_have_numbers_that_a_checkpoint_of_before_does_not_have(peer, stream):
    peer.store("T", 2, [b"x"])
    chosen = {"topic": None, "assign": json.dumps({"T": {BROKER: [1, 2]}}), "startingOffsets": "earliest"}
    assert "partitions" not in stream(**chosen).initialOffset()
    reader = stream(kafkaCompat="true", **chosen)
    start = reader.initialOffset()
    assert start["partitions"] == {"T": [[BROKER, 0, 3]]}
    tasks = reader.partitions(start, reader.latestOffset(start, ALL))
    assert sorted(each.number for task in tasks for each in task.value.ranges) == [1, 2]
    of_before = {name: value for name, value in start.items() if name != "partitions"}
    assert reader.latestOffset(of_before, ALL)["partitions"] == start["partitions"]


def test_the_rate_is_limited_in_rows(stream):
    reader = stream(startingOffsets="earliest", maxOffsetsPerTrigger="22")
    assert reader.getDefaultReadLimit() == ReadMaxRows(22)
    assert reader.latestOffset(json_of(0, 0), ReadMaxRows(22)) == json_of(20, 2)
    assert reader.latestOffset(json_of(0, 0), ALL) == json_of(100, 10)
    assert reader.reportLatestOffset() == json_of(100, 10)


def test_the_rate_is_limited_in_bytes(stream):
    reader = stream(startingOffsets="earliest", maxBytesPerTrigger="4096")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(4096)
    end = from_json(reader.latestOffset(json_of(0, 0), ReadMaxBytes(22 * 93)))
    assert end == {q(0): 20, q(1): 2}
    assert reader.latestOffset(json_of(100, 10), ReadMaxBytes(50)) == json_of(100, 10)


@pytest.mark.parametrize(
    ("max_rows", "max_bytes", "expected"),
    [
        (22, 10**9, (20, 2)),  # rows are fewer
        (88, 22 * 93, (20, 2)),  # bytes are fewer
        (10**9, 22 * 93, (20, 2)),
        (10**9, 10**9, (100, 10)),
    ],
)
def test_rows_and_bytes_limit_a_batch_together(stream, max_rows, max_bytes, expected):
    reader = stream(maxOffsetsPerTrigger=str(max_rows), maxBytesPerTrigger=str(max_bytes))
    end = reader.latestOffset(json_of(0, 0), reader.getDefaultReadLimit())
    assert end == json_of(*expected)
    assert reader.latestOffset(json_of(0, 0), ALL) == json_of(100, 10), "Trigger.Once has no limit"


def test_without_a_limit_everything_is_read(stream):
    assert stream().getDefaultReadLimit() == ALL
    assert stream().reportLatestOffset() is None


def test_a_limit_in_bytes_needs_no_sample_of_an_absent_broker(peer, stream):
    peer.answers[11].extend([HangUp()] * 2)
    end = from_json(stream(startingOffsets="earliest").latestOffset(json_of(0, 0), ReadMaxBytes(22 * 1024)))
    assert sum(end.values()) == 22


def test_few_rows_wait_for_more_until_the_delay_is_over(peer, stream):
    now = [0.0]
    reader = stream(lambda: now[0], minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    start = reader.initialOffset()
    peer.store("T", 0, [b"x"] * 4)
    assert reader.latestOffset(start, ALL) == start
    assert reader.reportLatestOffset() == json_of(104, 10)
    now[0] = 9.9
    assert reader.latestOffset(start, ALL) == start
    now[0] = 10.0
    end = reader.latestOffset(start, ALL)
    assert end == json_of(104, 10)
    peer.store("T", 0, [b"x"] * 4)
    assert reader.latestOffset(end, ALL) == end
    peer.store("T", 0, [b"x"])
    assert reader.latestOffset(end, ALL) == json_of(109, 10)


def test_available_now_reads_to_where_the_queues_ended_and_not_beyond(peer, stream):
    reader = stream(startingOffsets="earliest", minOffsetsPerTrigger="1000000")
    reader.prepareForTriggerAvailableNow()
    peer.store("T", 0, [b"x"] * 7)
    peer.store("T", 2, [b"x"] * 7)
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(50))
    assert sum(from_json(first).values()) in range(48, 53)
    end = reader.latestOffset(first, ALL)
    assert from_json(end) == {q(0): 100, q(1): 10, q(2): 0} or from_json(end) == {q(0): 100, q(1): 10}
    assert reader.latestOffset(end, ALL) == end


def test_available_now_after_a_restart_never_goes_back(peer, stream):
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    peer.store("T", 0, [b"x"] * 7)
    assert reader.latestOffset(json_of(105, 3), ALL) == json_of(105, 10)


@pytest.mark.parametrize(("place", "begin"), [("earliest", 0), ("latest", 6)])
def test_a_new_queue_is_noted_first_and_read_from_the_next_batch_on(peer, stream, place, begin):
    reader = stream(newQueueOffsets=place)
    start = reader.initialOffset()
    peer.store("T", 2, [b"x"] * 6)
    noted = reader.latestOffset(start, ALL)
    assert noted == json_of(100, 10, begin)
    assert rows(reader, start, noted) == []
    peer.store("T", 2, [b"x"])
    end = reader.latestOffset(noted, ALL)
    assert rows(reader, noted, end) == [(2, offset) for offset in range(begin, 7)]
    assert rows(reader, noted, end) == rows(stream(), noted, end)


def test_a_replayed_batch_has_the_same_tasks(stream):
    start, end = json_of(3, 4), json_of(99, 10)
    tasks = [task.value for task in stream(minPartitions="4").partitions(start, end)]
    assert tasks == [task.value for task in stream(minPartitions="4").partitions(start, end)]
    assert len(tasks) == 4


def renewed(*offsets, incarnation):
    return json_of(*offsets) | {"incarnations": {"T": {BROKER: incarnation}}}


def test_a_queue_of_the_same_topic_that_went_back_is_lost_data(peer, stream):
    peer.incarnations["T"] = 7_000
    start = renewed(150, 10, incarnation=7_000)
    with pytest.raises(RowsLost, match="ends at offset 100, but was read or asked for up to 150"):
        stream().latestOffset(start, ALL)
    assert stream(failOnDataLoss="false").latestOffset(start, ALL) == renewed(100, 10, incarnation=7_000)


def test_a_topic_that_was_made_again_is_read_from_its_first_row(peer, stream, caplog):
    peer.incarnations["T"] = 7_000
    old = stream(startingOffsets="earliest").initialOffset()
    assert old == renewed(0, 0, incarnation=7_000)
    old = renewed(60, 5, incarnation=7_000)
    peer.incarnations["T"] = 8_000
    with pytest.raises(RowsLost, match=r"topic T on broker-a was deleted and made again\. .* queue 0 to 60"):
        stream().latestOffset(old, ALL)
    reader = stream(failOnDataLoss="false", maxOffsetsPerTrigger="22")
    first = reader.latestOffset(old, ReadMaxRows(22))
    assert first == renewed(20, 2, incarnation=8_000)
    assert rows(reader, old, first) == [(0, each) for each in range(20)] + [(1, 0), (1, 1)]
    assert rows(stream(), old, first) == rows(reader, old, first), "a replayed batch has the same rows"
    end = reader.latestOffset(first, ALL)
    assert end == renewed(100, 10, incarnation=8_000)
    assert len(rows(reader, first, end)) == 88
    (said,) = [each for each in caplog.messages if "was deleted and made again" in each]
    assert said.endswith("Of the topic before, queue 0 to 60, queue 1 to 5 was read, and later rows are gone")


def test_of_a_broker_without_incarnations_an_end_that_went_back_is_a_new_topic(stream):
    with pytest.raises(RowsLost, match="because a queue ends before the offset that was read"):
        stream().latestOffset(json_of(150, 10), ALL)
    reader = stream(failOnDataLoss="false")
    end = reader.latestOffset(json_of(150, 5), ALL)
    assert end == renewed(100, 10, incarnation=-1)
    assert len(rows(reader, json_of(150, 5), end)) == 110
    assert reader.latestOffset(end, ALL) == end
    again = reader.latestOffset(renewed(150, 5, incarnation=-1), ALL)
    assert again == renewed(100, 10, incarnation=-2)


def test_a_batch_with_a_limit_has_a_whole_gap_and_tells_it_once(peer, stream, caplog):
    """Rows that retention removed before a slow stream came to them."""
    reader = stream(failOnDataLoss="false", maxOffsetsPerTrigger="20")
    start, got = json_of(5, 10), []
    peer.delete("T", 0, 70)
    for _ in range(2):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        got.append(rows(reader, start, end))
        start = end
    assert got == [[(0, offset) for offset in range(first, first + count)] for first, count in ((70, 20), (90, 10))]
    assert caplog.messages == ["data lost: offsets 5 to 69 of T@broker-a[0] are gone"]
    reader = stream(failOnDataLoss="false", maxBytesPerTrigger="20")
    reader.prepareForTriggerAvailableNow()
    peer.store("T", 0, [b"x"] * 50)
    peer.delete("T", 0, 50)
    assert reader.latestOffset(json_of(90, 10), reader.getDefaultReadLimit()) == json_of(100, 10), "no further"
    with pytest.raises(RowsLost, match=r"offsets 5 to 119 of T@broker-a\[0\] are gone"):
        rows(stream(), json_of(5, 10), json_of(130, 10))


def test_available_now_reads_a_topic_that_was_made_again(peer, stream):
    peer.incarnations["T"] = 8_000
    reader = stream(failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    peer.store("T", 0, [b"x"] * 7)
    old = renewed(60, 5, incarnation=7_000)
    end = reader.latestOffset(old, ALL)
    assert end == renewed(100, 10, incarnation=8_000)
    assert len(rows(reader, old, end)) == 110


def test_a_task_reads_no_other_topic_of_the_name(peer, stream):
    peer.incarnations["T"] = 7_000
    start, end = renewed(0, 0, incarnation=7_000), renewed(100, 10, incarnation=7_000)
    assert len(rows(stream(), start, end)) == 110
    peer.incarnations["T"] = 8_000
    with pytest.raises(RowsLost, match=r"offsets 0 to \d+ of .*T.* are gone"):
        rows(stream(), start, end)
    assert rows(stream(failOnDataLoss="false"), start, end) == []


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_broker_without_a_route_keeps_its_place_while_the_others_are_read(stream, strict):
    start = json_of(60, 10)
    start["topics"]["T"]["broker-b"] = {"0": 5}
    reader = stream(failOnDataLoss=strict)
    end = reader.latestOffset(start, ALL)
    assert from_json(end) == {q(0): 100, q(1): 10, MessageQueue("T", "broker-b", 0): 5}
    assert rows(reader, start, end) == [(0, offset) for offset in range(60, 100)]


def test_a_broker_that_restarts_is_asked_again_at_once(peer, stream):
    peer.answers[30].append(HangUp())
    assert stream().latestOffset(json_of(0, 0), ALL) == json_of(100, 10)


def test_a_broker_that_does_not_answer_is_away_until_it_does(peer, stream, caplog):
    now = [0.0]
    reader = stream(lambda: now[0])
    peer.answers[30].extend([HangUp()] * 9)
    for _trigger in range(3):
        assert reader.latestOffset(json_of(50, 10), ALL) == json_of(50, 10)
    peer.answers[30].clear()
    now[0] = 60.0
    assert reader.latestOffset(json_of(50, 10), ALL) == json_of(100, 10)
    begun, ended = caplog.messages
    assert begun.startswith("broker broker-a is away; its queues (2) are held")
    assert ended == "broker broker-a is back after 60 s"


def test_a_name_server_that_is_away_is_not_needed(peer, stream):
    reader = stream(retries="0")
    start = reader.initialOffset()
    peer.store("T", 0, [b"x"] * 5)
    peer.answers[105].extend([HangUp()] * 9)
    end = reader.latestOffset(start, ALL)
    asked = peer.count(105)
    assert rows(reader, start, end) == [(0, offset) for offset in range(100, 105)]
    assert peer.count(105) == asked


def test_a_first_start_needs_everybody(peer, stream):
    peer.answers[30].extend([HangUp()] * 9)
    with pytest.raises(NetworkError):
        stream(retries="1").initialOffset()
    peer.answers[105].extend([HangUp()] * 9)
    with pytest.raises(NetworkError):
        stream(retries="1", retryIntervalMs="2").latestOffset(json_of(100, 10), ALL)


def test_available_now_reads_those_there_and_leaves_the_others_to_the_next_run(peer, stream, caplog):
    start = json_of(100, 10)
    start["topics"]["T"]["broker-b"] = {"0": 5}
    reader = stream(retries="0")
    reader.prepareForTriggerAvailableNow()
    peer.store("T", 0, [b"x"] * 9)
    assert reader.latestOffset(start, ALL) == start
    peer.answers[30].extend([HangUp()] * 9)
    assert reader.latestOffset(json_of(50, 10), ALL) == json_of(50, 10)
    assert "this run ends without the rows of absent brokers; the next run reads them" in caplog.text
    peer.answers[30].clear()
    assert reader.latestOffset(json_of(50, 10), ALL) == json_of(100, 10)


def test_progress_is_told_to_a_group_even_after_the_last_batch(peer, stream):
    reader = stream(group="G", commitOffsets="true")
    reader.latestOffset(json_of(60, 10), ALL)
    assert peer.committed == {("G", 0): 60, ("G", 1): 10}
    reader.commit(json_of(100, 10))
    assert peer.committed == {("G", 0): 100, ("G", 1): 10}
    asked = peer.count(15)
    reader.latestOffset(json_of(100, 10), ALL)
    assert peer.count(15) == asked
    reader.stop()


def test_nothing_is_told_to_a_group_unless_asked_for(peer, stream):
    stream(group="G").latestOffset(json_of(60, 10), ALL)
    assert peer.committed == {}
