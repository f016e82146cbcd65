"""Brokers and name servers are killed and started again under a strict stream: no row is lost, doubled or held up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark import cloudpickle

from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.options import SinkOptions, SourceOptions, parse
from sparrowmq.spark.sink.sender import Sender
from sparrowmq.spark.source.partition_ranges import from_json
from sparrowmq.spark.source.stream_source import ReadAllAvailable, StreamReader
from sparrowmq.spark.worker import _networks, connect
from tests.interop.servers import OurBroker, OurNamesrv, topic_fields
from tests.interop.wire import Wire

TOPIC = "T"
QUEUES = 2
SCHEMA = pa.schema([("brokerName", pa.string()), ("body", pa.string())])
DEADLINE_S = 30
OUTAGE_S = 300
SOON_S = 2.0  # how late the rows of others may be


class Landscape:
    """A name server, brokers a and b, and what was sent to each."""

    def __init__(self, folder: Path) -> None:
        self.namesrv = OurNamesrv()
        self._folder = folder
        self.brokers: dict[str, OurBroker] = {}
        self.sent: dict[str, list[str]] = {"a": [], "b": []}

    def start_broker(self, name: str) -> None:
        """Start a broker, or start it again where it was."""
        if name not in self.brokers:
            conf = {"brokerName": name, "brokerClusterName": "c"}
            self.brokers[name] = OurBroker(self.namesrv.address, self._folder / name, conf)
        self.brokers[name].__enter__()
        with Wire(self.brokers[name].port) as wire:
            assert wire.ask(17, topic_fields(TOPIC, QUEUES)).code == 0

    @property
    def options(self) -> dict[str, str]:
        return {"nameServer": self.namesrv.address, "topic": TOPIC}

    def send(self, name: str, count: int) -> None:
        options = parse(SinkOptions, self.options)
        bodies = [f"{name}-{number}" for number in range(len(self.sent[name]), len(self.sent[name]) + count)]
        with connect(options) as network:
            network.learn({name: {0: self.brokers[name].address}})
            sender = Sender(network, options)
            for number, body in enumerate(bodies):
                part = BatchPart(body.encode(), b"UNIQ_KEY\x01%s\x02" % body.encode())
                sender.put_in_order(MessageQueue(TOPIC, name, number % QUEUES), part)
            sender.finish()
        self.sent[name] += bodies


@pytest.fixture
def land(tmp_path: Path) -> Iterator[Landscape]:
    with ExitStack() as stack:
        land = Landscape(tmp_path)
        stack.enter_context(land.namesrv)
        stack.callback(forget)
        for name in land.sent:
            land.start_broker(name)
            stack.push(land.brokers[name])
        yield land


def forget() -> None:
    """What this process knows of brokers, as a new one."""
    for kept in _networks.values():
        kept.forget()


class Query:
    """Triggers a stream as Spark does; `got` are the bodies by broker."""

    def __init__(self, land: Landscape, **options: str) -> None:
        given = {"retryIntervalMs": "100", "startingOffsets": "earliest"} | options
        self.reader = StreamReader(parse(SourceOptions, land.options | given), SCHEMA)
        self.got: dict[str, list[str]] = {"a": [], "b": []}
        self.offset: dict[str, Any] = {}

    def trigger(self) -> None:
        start = self.offset or self.reader.initialOffset()
        end = self.reader.latestOffset(start, ReadAllAvailable())
        copy = cloudpickle.loads(cloudpickle.dumps(self.reader))
        for task in self.reader.partitions(start, end):
            for batch in copy.read(task):
                for row in batch.to_pylist():
                    self.got[row["brokerName"]].append(row["body"])
        self.offset = end

    def until(self, name: str, bodies: list[str], limit_s: float = DEADLINE_S) -> None:
        deadline = time.monotonic() + limit_s
        while sorted(self.got[name]) != sorted(bodies):
            assert time.monotonic() < deadline, (len(self.got[name]), len(bodies))
            assert len(self.got[name]) <= len(bodies)
            self.trigger()
            time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_broker_is_waited_for_while_the_other_is_read(land, caplog):
    land.send("a", 50)
    land.send("b", 50)
    query = Query(land)
    query.until("a", land.sent["a"])
    query.until("b", land.sent["b"])
    land.send("b", 20)
    land.brokers["b"].kill()
    for _round in range(3):
        land.send("a", 30)
        query.until("a", land.sent["a"], SOON_S)
    land.start_broker("b")
    query.until("b", land.sent["b"])
    told = [text for text in caplog.messages if "broker b" in text]
    assert [text.partition(";")[0].partition(" after")[0] for text in told] == [
        "broker b is away",
        "broker b is back",
    ]


@pytest.mark.slow
def test_without_a_name_server_rows_come_in_time(land):
    land.send("a", 10)
    query = Query(land)
    query.until("a", land.sent["a"])
    land.namesrv.kill()
    for _round in range(3):
        land.send("a", 30)
        land.send("b", 30)
        query.until("a", land.sent["a"], SOON_S)
        query.until("b", land.sent["b"], SOON_S)
    land.namesrv.__enter__()
    land.send("b", 5)
    query.until("b", land.sent["b"], SOON_S)


@pytest.mark.nightly
@pytest.mark.timeout(OUTAGE_S + 120)
@pytest.mark.parametrize("who", ["broker", "name server"])
def test_five_minutes_without_one_of_them_lose_double_and_delay_nothing(land, who):
    query, most_s = Query(land), 0.0
    gone = land.brokers["b"] if who == "broker" else land.namesrv
    there = ["a"] if who == "broker" else ["a", "b"]
    for name in land.sent:
        land.send(name, 20)
        query.until(name, land.sent[name])
    land.send("b", 20)
    gone.kill()
    end = time.monotonic() + OUTAGE_S
    while time.monotonic() < end:
        for name in there:
            land.send(name, 30)
            sent = time.monotonic()
            query.until(name, land.sent[name], SOON_S)
            most_s = max(most_s, time.monotonic() - sent)
        time.sleep(1)
    gone.__enter__()
    for name in land.sent:
        land.send(name, 20)
        query.until(name, land.sent[name])
    print(f"{who} away for {OUTAGE_S} s: the latest rows came after {most_s:.2f} s")
    assert most_s <= SOON_S


@pytest.mark.slow
def test_after_a_drained_broker_left_a_strict_query_restarts_and_runs_on(land):
    land.send("a", 10)
    land.send("b", 10)
    query = Query(land)
    query.until("a", land.sent["a"])
    query.until("b", land.sent["b"])
    land.brokers["b"].stop()  # says good-bye, so the name server forgets it at once
    forget()
    again = Query(land)
    again.got, again.offset = query.got, query.offset
    land.send("a", 10)
    again.until("a", land.sent["a"], SOON_S)
    held = from_json(again.offset)
    assert sum(offset for queue, offset in held.items() if queue.broker_name == "b") == 10
    forget()
    last = Query(land, startingOffsets="latest")
    last.reader.prepareForTriggerAvailableNow()
    assert last.reader.latestOffset(again.offset, ReadAllAvailable()) == again.offset
