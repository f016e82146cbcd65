"""Spark's reader and sender against Apache's brokers: 32 messages a pull, nearest times, batches and new topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from sparrowmq.client.cluster.blocking_network import BlockingNetwork
from sparrowmq.errors import NoRoute
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.options import SinkOptions, SourceOptions, parse
from sparrowmq.spark.sink.row_identity import Writing
from sparrowmq.spark.sink.sender import Sender
from sparrowmq.spark.sink.writer import send_all
from sparrowmq.spark.source.partition_ranges import Bounds, between
from sparrowmq.spark.source.query_offsets import OffsetClient, bounds_of
from sparrowmq.spark.source.row_reader import Rows, read
from sparrowmq.spark.worker import connect
from tests.interop.apache import ApacheBroker, ApacheNamesrv

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("queueId", pa.int32()), ("queueOffset", pa.int64()), ("body", pa.string()), ("tags", pa.string())])
COUNT = 3000
SHOWN_LIMIT_S = 30


class Filled(NamedTuple):
    """A broker with `COUNT` numbered messages in topic T, sent before `half_ms` the first half, after it the second."""

    broker: ApacheBroker
    options: dict[str, str]
    half_ms: int


@pytest.fixture(scope="module", params=["4.9.7", pytest.param("5.4.0", marks=pytest.mark.nightly)])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    store = tmp_path_factory.mktemp("store")
    with (
        ApacheNamesrv(request.param) as namesrv,
        ApacheBroker(request.param, namesrv.address, Path(store) / "store") as broker,
    ):
        options = {"nameServer": namesrv.address, "topic": "T"}
        send(options, 0, COUNT // 2)
        half_ms = time.time_ns() // 1_000_000 + 5
        while time.time_ns() // 1_000_000 <= half_ms:
            pass
        send(options, COUNT // 2, COUNT // 2)
        yield Filled(broker, options, half_ms)
        broker.kill()  # to stop in order takes it nine seconds


def send(options: dict[str, str], first: int, count: int) -> None:
    """Send numbers, odd ones with tag BB, others with Aa: the two have the same hash."""
    given = parse(SinkOptions, options | {"sendBatchRows": "100"})
    with connect(given) as network:
        sender = Sender(network, given)
        for number in range(first, first + count):
            tag = b"BB" if number % 2 else b"Aa"
            sender.put("T", BatchPart(b"%d" % number, b"TAGS\x01" + tag + b"\x02"))
        sender.finish()
        assert sender.stored == count
        deadline = time.monotonic() + SHOWN_LIMIT_S
        while sum(held.end for held in held_by(network).values()) < first + count:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def held_by(network: BlockingNetwork) -> dict[MessageQueue, Bounds]:
    try:
        return bounds_of(network, network.route("T").readable)
    except NoRoute:  # the topic is new, and the broker has not told the name server yet
        return {}


def table(filled: Filled, **given: str) -> list[dict[str, object]]:
    options = parse(SourceOptions, filled.options | given)
    with connect(options) as network:
        plan = OffsetClient(network, options)
        bounds = plan.bounds()
        ranges = between(plan.starts(bounds, otherwise="earliest"), plan.ends(bounds))
        batches = list(read(network, ranges, Rows(SCHEMA, options), options))
    return [row for batch in batches for row in batch.to_pylist()]


def numbers(rows: list[dict[str, object]]) -> list[int]:
    return sorted(int(str(row["body"])) for row in rows)


@pytest.mark.parametrize("in_flight", ["1", "16"])
def test_everything_sent_is_read_once_and_in_order(filled, in_flight):
    rows = table(filled, pullsInFlight=in_flight)
    assert numbers(rows) == list(range(COUNT))
    places = [(row["queueId"], row["queueOffset"]) for row in rows]
    assert places == sorted(places)


def test_tags_with_the_same_hash_are_told_apart(filled):
    assert numbers(table(filled, tags="Aa")) == list(range(0, COUNT, 2))


def test_a_time_divides_the_messages_exactly(filled):
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    assert numbers(table(filled, startingTimestamp=str(filled.half_ms), **late)) == list(range(COUNT // 2, COUNT))
    assert numbers(table(filled, endingTimestamp=str(filled.half_ms))) == list(range(COUNT // 2))


def test_progress_is_kept_for_a_group_and_taken_up(filled):
    table(filled, group="G")  # 5.x keeps no offsets of a group that it does not know
    options = parse(SourceOptions, filled.options | {"group": "G", "startingOffsets": "group"})
    with connect(options) as network:
        plan = OffsetClient(network, options)
        bounds = plan.bounds()
        ends = {queue: held.end - 3 for queue, held in bounds.items()}
        plan.commit_offsets("G", ends)
        assert plan.starts(bounds, otherwise="latest") == ends


@pytest.mark.slow
def test_rows_that_a_repeated_task_sends_have_the_ids_that_they_had(filled):
    options = parse(SinkOptions, {**filled.options, "topic": "R", "deliveryGuarantee": "idempotent"})
    rows = pa.table({"body": [str(number) for number in range(1200)]})
    with connect(options) as network:
        for partition, batches in ((0, rows), (0, rows.slice(0, 700)), (0, rows), (1, rows)):
            writing = Writing("a query", 7, partition)
            send_all(iter(batches.to_batches(max_chunksize=500)), network, options, writing)
        found = ids_and_bodies(filled.options["nameServer"], "R", 1200 * 3 + 700)
    assert len(found) == 1200 * 3 + 700
    once = set(found)
    assert len(once) == len({unique for unique, _ in once}) == 1200 * 2
    assert sorted(int(body) for _, body in once) == sorted([*range(1200)] * 2)


def ids_and_bodies(namesrv: str, topic: str, count: int) -> list[tuple[str, str]]:
    """Of all messages of a topic, once there are so many."""
    options = parse(SourceOptions, {"nameServer": namesrv, "topic": topic})
    schema = pa.schema([("msgId", pa.string()), ("body", pa.string())])
    deadline = time.monotonic() + SHOWN_LIMIT_S
    with connect(options) as network:
        plan = OffsetClient(network, options)
        while True:
            try:
                bounds = plan.bounds()
            except NoRoute:  # the topic is new, and the broker has not told the name server yet
                bounds = {}
            if sum(held.end for held in bounds.values()) >= count:
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ranges = between(plan.starts(bounds, otherwise="earliest"), plan.ends(bounds))
        parts = [part.to_pydict() for part in read(network, ranges, Rows(schema, options), options)]
    return [pair for part in parts for pair in zip(part["msgId"], part["body"], strict=True)]


@pytest.mark.slow
def test_a_broker_that_restarts_is_read_on(filled):
    options = parse(SourceOptions, filled.options | {"retries": "60", "retryIntervalMs": "500", "pullBatchSize": "32"})
    with connect(options) as network:
        plan = OffsetClient(network, options)
        bounds = plan.bounds()
        batches = read(
            network,
            between(plan.starts(bounds, "earliest"), plan.ends(bounds)),
            Rows(SCHEMA, options),
            options,
        )
        filled.broker.stop()
        try:
            filled.broker.__enter__()
        except (TimeoutError, ChildProcessError):  # Apache's broker took too long, on a busy machine
            filled.broker.kill()
            filled.broker.__enter__()
        rows = [row for batch in batches for row in batch.to_pylist()]
    assert numbers(rows) == list(range(COUNT))
