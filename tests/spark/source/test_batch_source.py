"""sparrowmq.spark.source.batch_source: a table of what the topics hold."""

import pickle

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from sparrowmq.spark.source.batch_source import BatchReader

SCHEMA = pa.schema([("queueId", pa.int32()), ("queueOffset", pa.int64())])


@pytest.fixture
def rows(peer, connect):
    peer.store("T", 0, [b"x"] * 50, times=lambda offset: 100 + offset)
    peer.store("T", 1, [b"x"] * 5, times=lambda offset: 100 + offset)

    def rows(**given):
        reader = BatchReader(peer.source(topic="T", **given), SCHEMA)
        tasks = reader.partitions()
        copy = pickle.loads(pickle.dumps(reader))
        batches = [batch for task in tasks for batch in copy.read(pickle.loads(pickle.dumps(task)))]
        found = [(row["queueId"], row["queueOffset"]) for batch in batches for row in batch.to_pylist()]
        return sorted(found), len(tasks)

    return rows


def test_everything_is_read_by_default(rows):
    assert rows() == ([(0, offset) for offset in range(50)] + [(1, offset) for offset in range(5)], 1)


def test_a_range_of_offsets_or_of_times(rows):
    offsets = {
        "startingOffsets": '{"T":{"broker-a":{"0":48,"1":1}}}',
        "endingOffsets": '{"T":{"broker-a":{"0":49,"1":3}}}',
    }
    assert rows(**offsets)[0] == [(0, 48), (1, 1), (1, 2)]
    assert rows(startingTimestamp="103", endingTimestamp="105")[0] == [(0, 3), (0, 4), (1, 3), (1, 4)]


def test_as_many_tasks_as_asked_for(rows):
    found, tasks = rows(minPartitions="5")
    assert tasks == 5
    assert len(found) == 55


def test_an_empty_table_has_no_rows(rows, peer):
    assert rows(startingOffsets="latest") == ([], 0)
    reader = BatchReader(peer.source(topic="T"), SCHEMA)
    assert list(reader.read(InputPartition(None))) == []
