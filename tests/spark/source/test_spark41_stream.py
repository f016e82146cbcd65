"""sparrowmq.spark.source.stream_source: a stream as Spark 4.1 calls it, which does not say where the stream is."""

import json

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from sparrowmq.errors import ConfigError, NetworkError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.source.partition_ranges import from_json
from sparrowmq.spark.source.stream_source import UnlimitedStreamReader
from tests.spark.peer import BROKER, HangUp

SCHEMA = pa.schema([("queueId", pa.int32()), ("queueOffset", pa.int64())])


def json_of(*offsets):
    return {"v": 1, "topics": {"T": {BROKER: {str(number): offset for number, offset in enumerate(offsets)}}}}


@pytest.fixture
def stream(peer, connect):
    def stream(**given):
        options = {"topic": "T", "retries": "1", "startingOffsets": "earliest"} | given
        return UnlimitedStreamReader(peer.source(**options), SCHEMA)

    peer.store("T", 0, [b"x"] * 10)
    return stream


def rows(reader, start, end):
    batches = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
    return sorted((row["queueId"], row["queueOffset"]) for batch in batches for row in batch.to_pylist())


def test_batches_follow_each_other(peer, stream):
    reader = stream()
    start = reader.initialOffset()
    end = reader.latestOffset()
    assert (start, end) == (json_of(0), json_of(10))
    assert len(rows(reader, start, end)) == 10
    peer.store("T", 0, [b"x"] * 5)
    assert rows(reader, end, reader.latestOffset()) == [(0, offset) for offset in range(10, 15)]


def test_an_absent_broker_is_held_once_the_place_is_known(peer, stream):
    reader = stream()
    rows(reader, reader.initialOffset(), reader.latestOffset())
    peer.answers[30].extend([HangUp()] * 9)
    assert reader.latestOffset() == json_of(10)


def test_after_a_restart_the_first_batch_needs_all_brokers_and_loses_no_new_queue(peer, stream):
    peer.store("T", 1, [b"x"] * 3)
    with pytest.raises(NetworkError):
        peer.answers[30].extend([HangUp()] * 9)
        stream(retries="0").latestOffset()
    peer.answers.clear()
    again = stream()
    end = again.latestOffset()
    assert end == json_of(10, 3)
    assert rows(again, json_of(8), end) == [(0, 8), (0, 9), (1, 0), (1, 1), (1, 2)]
    latest = stream(newQueueOffsets="latest")
    assert rows(latest, json_of(8), end) == [(0, 8), (0, 9)]
    assert MessageQueue("T", BROKER, 1) in from_json(latest.latestOffset())


LIMITS = ["maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger"]


@pytest.mark.parametrize(("option", "value"), [*((limit, "10") for limit in LIMITS), ("kafkaCompat", "true")])
def test_limits_and_numbers_of_partitions_are_refused(stream, option, value, tmp_path):
    with pytest.raises(ConfigError, match=r"need Spark 4\.2 or later"):
        stream(**{option: value})
    stream(**{option: value}, checkpointLocation=str(tmp_path))


@pytest.fixture
def checkpoint(tmp_path):
    """Where a query has planned its batches up to some offsets."""

    def checkpoint(*sources):
        folder = tmp_path / "checkpoint" / "offsets"
        folder.mkdir(parents=True)
        (folder / "9").write_text("v1\n{}\n" + json.dumps(json_of(1)))
        (folder / ".10.crc").write_text("of a file")
        (folder / "10").write_text("\n".join(["v1", "{}", *map(json.dumps, sources)]))
        return f"file:{tmp_path}/checkpoint"

    return checkpoint


def test_with_its_checkpoint_a_batch_is_as_small_as_it_shall_be_after_a_restart_too(stream, checkpoint):
    given = {"maxOffsetsPerTrigger": "3", "checkpointLocation": checkpoint(json_of(4))}
    reader = stream(**given)
    end = reader.latestOffset()
    assert end == json_of(7)
    assert rows(reader, json_of(4), end) == [(0, 4), (0, 5), (0, 6)]
    assert reader.latestOffset() == json_of(10)


def test_the_first_batch_is_as_small_as_it_shall_be(stream, tmp_path):
    assert stream(maxOffsetsPerTrigger="3", checkpointLocation=str(tmp_path)).latestOffset() == json_of(3)


def test_one_of_several_sources_is_not_taken_for_another(stream, checkpoint):
    reader = stream(checkpointLocation=checkpoint(json_of(4), json_of(5)))
    with pytest.raises(ConfigError, match="has 2 sources; leave the option checkpointLocation of this one out"):
        reader.latestOffset()


def test_a_checkpoint_of_other_topics_is_refused(stream):
    of_another = {"v": 1, "topics": {"U": {BROKER: {"0": 3}}}}
    with pytest.raises(ConfigError, match="read U, and this query reads none of it"):
        stream().partitions(of_another, of_another)
