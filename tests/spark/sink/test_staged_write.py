"""sparrowmq.spark.sink.exactly_once: the ways in which tasks, drivers and brokers die, and each row is there once.

The numbers are those of the failure cases that the sink was designed for. Spark calls `write` and `commit` as the tests
do here; that it does so is shown by test_with_spark.py and test_kills.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import msgspec
import pyarrow as pa

from sparrowmq.client.cluster.blocking_network import BlockingNetwork
from sparrowmq.errors import ConfigError, InvalidMessage, NoRoute, SendFailed
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateTopic
from sparrowmq.protocol.requests.headers import CommitBatch
from sparrowmq.spark.options import SinkOptions, SourceOptions, parse
from sparrowmq.spark.sink.exactly_once import StagedSender, commit
from sparrowmq.spark.sink.row_identity import Writing
from sparrowmq.spark.sink.sender import QueueBatch
from sparrowmq.spark.sink.writer import Stored, StreamWriter, commit_staged, send_all
from sparrowmq.spark.source.partition_ranges import between
from sparrowmq.spark.source.query_offsets import OffsetClient
from sparrowmq.spark.source.row_reader import Rows, read
from sparrowmq.spark.worker import connect, network_of
from sparrowmq.testing.background import BackgroundCluster
from tests.interop.apache import free_ports
from tests.interop.servers import OurBroker, OurNamesrv, topic_fields
from tests.interop.wire import Wire
from tests.spark.peer import BROKER, Refuse

DEADLINE_S = 30
SCHEMA = pa.schema([("body", pa.string())])


class Query:
    """A query that writes to a topic of its own at one broker, as Spark runs it."""

    def __init__(self, namesrv: str, topic: str, broker: str = "broker-0", **given: str) -> None:
        self.given = {"nameServer": namesrv, "topic": topic, "retryIntervalMs": "100"}
        said = {"deliveryGuarantee": "exactly_once", "brokerName": broker, "sendBatchRows": "10"}
        self.options = parse(SinkOptions, self.given | said | given)
        self.network = connect(self.options, waits=True)
        self.run = "run-1"

    def task(self, batch: int, partition: int, rows: range, fails_at: int | None = None) -> Stored:
        """One attempt of a task; with `fails_at` it dies when it comes to that row."""

        def batches() -> Iterator[pa.RecordBatch]:
            for row in rows:
                if row == fails_at:
                    raise KeyboardInterrupt
                yield pa.RecordBatch.from_pydict({"body": [str(row)]})

        writing = Writing(self.given["topic"], batch, partition, self.run)
        return send_all(batches(), self.network, self.options, writing)

    def commit(self, *reports: Stored | None, plan: str | None = None) -> None:
        commit_staged(self.network, self.options, reports, plan)

    def restart(self) -> None:
        """The driver died; the query is started again from its checkpoint."""
        self.run += "+"

    def read(self) -> list[int]:
        options = parse(SourceOptions, self.given)
        with connect(options) as network:
            plan = OffsetClient(network, options)
            try:
                bounds = plan.bounds()
            except NoRoute:  # the broker has not told the name server of its new topic yet
                return []
            ranges = between(plan.starts(bounds, otherwise="earliest"), plan.ends(bounds))
            parts = list(read(network, ranges, Rows(SCHEMA, options), options))
        return sorted(int(row["body"] or -1) for part in parts for row in part.to_pylist())

    def shows(self, rows: range) -> bool:
        """Whether these rows, and each once, come to be there, and then nothing more."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self.read()) < len(rows):
            assert time.monotonic() < deadline, self.read()
            time.sleep(0.01)
        return self.read() == list(rows)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster.namesrv


Begin = Callable[..., Query]
_numbers = count()


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Begins queries, and leaves their connections after the test."""
    with ExitStack() as stack:

        def begin(namesrv: str, topic: str | None = None, **given: str) -> Query:
            query = Query(namesrv, topic or f"t-{next(_numbers)}", **given)
            stack.callback(query.network.forget)
            return query

        yield begin


@pytest.fixture
def query(namesrv: str, begin: Begin) -> Query:
    return begin(namesrv)


def test_nothing_is_there_before_the_commit_and_everything_after_it(query):
    reports = [query.task(0, 0, range(25)), query.task(0, 1, range(25, 60))]
    assert query.read() == []
    query.commit(*reports)
    assert query.shows(range(60))
    assert [report.count for report in reports] == [25, 35]


def test_1_2_a_task_dies_and_another_attempt_does_its_work(query):
    for fails_at in (0, 15):
        with pytest.raises(KeyboardInterrupt):
            query.task(0, 0, range(25), fails_at)
    query.commit(query.task(0, 0, range(25)))
    assert query.shows(range(25))


def test_3_an_executor_dies_after_its_task_was_done(query):
    query.task(0, 0, range(25))  # nobody hears of it
    query.commit(query.task(0, 0, range(25)))
    assert query.shows(range(25))


def test_4_of_two_attempts_side_by_side_one_counts(query):
    slow, quick = query.task(0, 0, range(25)), query.task(0, 0, range(25))
    query.commit(quick, query.task(0, 1, range(25, 30)))
    assert slow.attempt != quick.attempt
    assert query.shows(range(30))


@pytest.mark.parametrize("wrote", [1, 2])
def test_5_6_a_driver_dies_before_it_commits(query, wrote):
    for partition in range(wrote):
        query.task(0, partition, range(partition * 10, partition * 10 + 10))
    query.restart()
    query.commit(query.task(0, 0, range(10)), query.task(0, 1, range(10, 20)))
    assert query.shows(range(20))


def test_7_8_a_driver_dies_after_it_has_committed(query, caplog):
    query.commit(query.task(0, 0, range(25)))
    query.restart()
    query.commit(query.task(0, 0, range(25)))
    assert re.search("partition 0 of batch 0 of t-.* was committed before", caplog.text)
    query.commit(query.task(1, 0, range(25, 30)))
    assert query.shows(range(30))


def test_9_a_batch_that_is_given_up_leaves_nothing(query):
    query.task(0, 0, range(25))
    query.commit(None, None)  # what abort is given says nothing
    query.restart()
    query.commit(query.task(0, 0, range(25)))
    assert query.shows(range(25))


def test_12_with_a_new_checkpoint_it_is_another_query(query):
    query.commit(query.task(0, 0, range(5)))
    other = Writing("another query", run="run-1")
    batches = iter([pa.RecordBatch.from_pydict({"body": ["5"]})])
    commit_staged(query.network, query.options, [send_all(batches, query.network, query.options, other)])
    assert query.shows(range(6))


def test_13_a_batch_may_be_repeated_in_other_partitions(query):
    query.task(0, 0, range(10))
    query.task(0, 1, range(10, 20))
    query.restart()
    query.commit(*(query.task(0, part, range(part * 5, part * 5 + 5)) for part in range(4)))
    query.restart()
    query.commit(query.task(0, 0, range(20)))
    assert query.shows(range(20))


def test_14_all_rows_go_to_the_one_broker(namesrv, begin):
    query = begin(namesrv, "t-elsewhere", broker="broker-9")
    with pytest.raises(SendFailed, match="broker broker-9 has no queue of topic t-elsewhere"):
        query.task(0, 0, range(5))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of two brokers."""
    with BackgroundCluster(tmp_path_factory.mktemp("brokers"), brokers=2) as cluster:
        yield cluster.namesrv


def spread(query: Query, batch: int, rows: range) -> Stored:
    """A task that stages at both brokers."""
    report = query.task(batch, 0, rows)
    assert report.attempt is not None and sorted(report.attempt.requests) == ["broker-0", "broker-1"]
    return report


def test_14_rows_of_all_brokers_are_there_once(pair, begin):
    query = begin(pair, allBrokers="true")
    reports = [spread(query, 0, range(100)), query.task(0, 1, range(100, 200))]
    assert query.read() == []
    query.commit(*reports)
    query.commit(*reports)
    assert query.shows(range(200))
    assert {queue.broker_name for queue in query.network.route(query.given["topic"]).readable} == {
        "broker-0",
        "broker-1",
    }


def test_14_a_driver_that_dies_between_two_brokers_is_followed_by_one_that_ends_its_work(pair, begin):
    query = begin(pair, allBrokers="true")
    died = spread(query, 0, range(100)).attempt
    assert died is not None
    own = {"attempts": {died.name: died.requests["broker-0"]}}
    others = {"broker-1": {died.name: died.requests["broker-1"]}}
    request = CommitBatch(died.writing.writer, died.writing.run, 0)
    link = query.network.link_to("broker-0")
    link.call(request, msgspec.json.encode(own | {"others": others}))  # and at broker-1 never
    query.restart()
    again = query.task(0, 0, range(20))  # rows that lie elsewhere than before are no matter
    query.commit(again, query.task(0, 1, range(20, 100)))
    assert query.shows(range(100))
    query.commit(spread(query, 1, range(100, 200)))
    assert query.shows(range(200))


def test_14_a_broker_that_lacks_one_of_the_topics_publishes_the_rows_of_the_others(pair, begin):
    query = begin(pair, allBrokers="true", onError="dlq", dlqTopic="t-narrow", retries="1")
    only_at = query.network.link_to("broker-0")
    only_at.call(UpdateAndCreateTopic("t-narrow", read_queue_nums=1, write_queue_nums=1, perm=6))
    rows = {"body": [*map(str, range(100)), "bad"], "tags": ["a"] * 100 + ["\x01"]}
    batches = iter([pa.RecordBatch.from_pydict(rows)])
    report = send_all(batches, query.network, query.options, Writing(query.given["topic"], run=query.run))
    with connect(query.options) as drivers:  # Spark commits in another process than its tasks are in
        commit_staged(drivers, query.options, [report])
    assert query.shows(range(100))


def test_a_batch_that_got_no_answer_stays_with_its_broker(pair, begin):
    query = begin(pair, allBrokers="true")
    topic = query.given["topic"]
    sender = StagedSender(query.network, query.options, Writing(topic, run=query.run))
    for queue in sender.queues(topic):
        instead = [sender.queue_instead(QueueBatch(queue, is_loose=True)) for _ in range(8)]
        assert {each.broker_name for each in instead} == {queue.broker_name}
        assert len(set(instead)) > 1


def test_15_what_a_repeated_batch_says_otherwise_is_not_taken(query):
    query.commit(query.task(0, 0, range(5)))
    query.restart()
    query.commit(query.task(0, 0, range(100, 107)))  # as with current_timestamp() or rand()
    assert query.shows(range(5))


def test_16_batches_must_be_repeated_as_they_were(namesrv):
    with pytest.raises(ConfigError, match="exactly_once cannot be kept with asyncProgressTrackingEnabled"):
        Query(namesrv, "t", asyncProgressTrackingEnabled="true")


def test_17_a_query_that_was_started_elsewhere_too_is_refused(query):
    query.commit(query.task(0, 0, range(5)))
    staged = query.task(1, 0, range(5, 10))
    query.restart()
    query.commit(query.task(1, 0, range(5, 8)))
    query.run = "run-1"
    for zombie in (lambda: query.task(2, 0, range(10, 15)), lambda: query.commit(staged)):
        with pytest.raises(
            SendFailed,
            match=r"was started again as run run-1\+, which ends run run-1; do not run a query twice",
        ):
            zombie()
    assert query.shows(range(8))


def test_18_an_older_checkpoint_is_refused(query):
    for batch in range(2):
        query.commit(query.task(batch, 0, range(5 * batch, 5 * batch + 5)), plan=f"offsets {batch}")
    query.restart()
    for batch, plan in ((1, "offsets that were planned again"), (0, None)):
        with pytest.raises(SendFailed, match=r"refuses the commit of batch .* the checkpoint is an older copy"):
            query.commit(query.task(batch, 0, range(5, 20)), plan=plan)
    query.commit(query.task(1, 0, range(5, 10)), plan="offsets 1")
    assert query.shows(range(10))


def test_18_a_stream_names_its_batches_by_the_files_of_its_checkpoint(query, tmp_path):
    (tmp_path / "metadata").touch()
    (tmp_path / "offsets").mkdir()
    writer = StreamWriter(query.options, str(tmp_path))
    try:
        for planned in ("planned", "planned", "planned again, from an older copy"):
            (tmp_path / "offsets" / "0").write_text(planned)
            report = query.task(0, 0, range(5))
            if planned != "planned":
                with pytest.raises(SendFailed, match="the checkpoint is an older copy"):
                    writer.commit([report], 0)
            else:
                writer.commit([report], 0)
            query.restart()
    finally:
        network_of(query.options, waits=True).forget()
    assert query.shows(range(5))


def test_a_batch_without_rows_asks_nobody(query):
    assert commit(query.network, query.options, []) is False
    query.commit(query.task(0, 0, range(0)))


def test_rejected_rows_are_published_with_their_batch(namesrv, begin):
    query = begin(namesrv, "t-rejects", onError="dlq", dlqTopic="t-dead")
    batch = pa.RecordBatch.from_pydict({"body": ["0", "0", "1"], "tags": ["a", "\x01", "a"]})
    report = send_all(iter([batch]), query.network, query.options, Writing("rejecting", run="r"))
    dead = begin(namesrv, "t-dead")
    assert (report.count, report.dead, dead.read()) == (2, 1, [])
    query.commit(report)
    assert query.shows(range(2))
    assert dead.shows(range(1))


def test_delayed_rows_are_refused(query):
    batch = pa.RecordBatch.from_pydict({"body": ["1"], "delayLevel": [3]})
    with pytest.raises(InvalidMessage, match="delayLevel, deliverTimestamp or priority cannot"):
        send_all(iter([batch]), query.network, query.options, Writing("delaying", run="r"))


def test_a_request_that_is_sent_again_is_staged_once(peer, begin):
    peer.store("T", 0, [])
    peer.answers[32_001].extend([Refuse(2, "busy"), Refuse(10, "not flushed in time"), Refuse(0), Refuse(0)])
    report = begin(peer.address, "T", broker=BROKER).task(0, 0, range(20))
    assert report.attempt is not None and (report.count, report.attempt.requests) == (20, {BROKER: 2})
    numbers = [int(fields["number"]) for code, fields in peer.asked if code == 32_001]
    assert sorted(set(numbers)) == [0, 1] and len(numbers) == 4


def test_other_brokers_cannot_keep_it_and_the_query_is_told(peer, begin):
    peer.store("T", 0, [])
    peer.answers[32_001].append(Refuse(3, "request type 32001 not supported"))
    query = begin(peer.address, "T", broker=BROKER)
    with pytest.raises(SendFailed, match="knows no staged batches, as Apache's brokers do not; write idempotent"):
        query.task(0, 0, range(5))


@pytest.fixture
def killable(tmp_path: Path, begin: Begin) -> Iterator[tuple[OurBroker, Query]]:
    with OurNamesrv() as namesrv:
        broker = OurBroker(namesrv.address, tmp_path / "store", {"brokerName": "b", "brokerClusterName": "c"})
        with broker:
            with Wire(broker.port) as wire:
                assert wire.ask(17, topic_fields("T", 4)).code == 0
            yield broker, begin(namesrv.address, "T", broker="b")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_10_a_broker_that_is_killed_at_any_time_publishes_each_batch_once(killable):
    broker, query = killable

    def again() -> None:
        broker.kill()
        broker.__enter__()

    for batch in range(4):
        rows = range(batch * 400, batch * 400 + 400)
        if batch == 0:
            again()
        report = query.task(batch, 0, rows)
        if batch == 1:  # staged, not committed
            again()
        query.commit(report)
        if batch == 2:  # committed; perhaps not published
            again()
            query.commit(query.task(batch, 0, rows))
    assert query.shows(range(1600))
    again()
    query.commit(query.task(3, 0, range(1200, 1600)))
    assert query.shows(range(1600))


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_11_a_commit_that_a_slave_has_outlives_its_master(tmp_path, begin):
    ports = free_ports(2)
    both = {"brokerName": "b", "brokerClusterName": "c"}
    as_master = both | {"brokerRole": "SYNC_MASTER", "haListenPort": ports[0]}
    as_slave = both | {"brokerRole": "SLAVE", "brokerId": 1, "haListenPort": ports[1]}
    with OurNamesrv() as namesrv, ExitStack() as stack:
        master, slave, promoted = (
            OurBroker(namesrv.address, tmp_path / store, conf)
            for store, conf in (("m", as_master), ("s", as_slave), ("s", both))
        )
        stack.enter_context(master)
        with Wire(master.port) as wire:
            assert wire.ask(17, topic_fields("T", 4)).code == 0
        stack.enter_context(slave)
        query = begin(namesrv.address, "T", broker="b")
        query.commit(query.task(0, 0, range(400)))  # told when the slave has it
        master.kill()
        slave.stop()
        stack.enter_context(promoted)
        with Wire(promoted.port) as wire:
            assert wire.ask(17, topic_fields("T", 4)).code == 0
        query.restart()
        query.commit(query.task(0, 0, range(400)))
        query.commit(query.task(1, 0, range(400, 410)))
        assert query.shows(range(410))


@pytest.mark.slow
def test_a_commit_whose_answer_was_lost_is_asked_for_again(killable):
    _, query = killable
    report = query.task(0, 0, range(50))
    with BlockingNetwork([query.given["nameServer"]]) as other:  # a commit of which the answer never came
        assert commit(other, query.options, [report.attempt]) is False
    assert commit(query.network, query.options, [report.attempt]) is True
    assert query.shows(range(50))
