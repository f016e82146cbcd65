"""The data source inside Spark: what only Spark itself can show. Planning and reading are tested in the other files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import NoRoute
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.spark.options import SinkOptions, SourceOptions, parse
from sparrowmq.spark.repeats import without_repeats
from sparrowmq.spark.schema import COLUMNS, INTERNAL, KAFKA_COLUMNS
from sparrowmq.spark.sink.exactly_once import DECIDER_FILE
from sparrowmq.spark.sink.sender import Sender
from sparrowmq.spark.source.partition_ranges import Bounds
from sparrowmq.spark.source.query_offsets import bounds_of
from sparrowmq.spark.source.stream_source import HAS_LIMITS, newest_planned_end
from sparrowmq.spark.worker import connect
from sparrowmq.testing.background import BackgroundCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(240)

DEADLINE_S = 30
LIMIT = {"maxOffsetsPerTrigger": "40"} if HAS_LIMITS else {}
DELAYED = "body string, deliverTimestamp timestamp"
_names = count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the broker's store."""
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def namesrv(folder: Path) -> Iterator[str]:
    with BackgroundCluster(folder) as cluster:
        yield cluster.namesrv


class Topic:
    """A topic of one test."""

    def __init__(self, spark: SparkSession, namesrv: str) -> None:
        self.name = f"topic-{next(_names)}"
        self.spark = spark
        self.options = {"nameServer": namesrv, "topic": self.name}

    def send(self, first: int, count: int, **properties: str) -> None:
        """Messages whose bodies are numbers, `first` of which were sent before; returns when they can be read."""
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
        numbers = range(first, first + count)
        self._send([BatchPart(b"%d" % number, b"UNIQ_KEY\x01id-%d\x02" % number + text) for number in numbers])
        self.wait_for(first + count)

    def send_bodies(self, bodies: Sequence[bytes]) -> None:
        """Messages with these bodies; returns when they can be read."""
        before = sum(self.ends().values())
        self._send([BatchPart(body, b"UNIQ_KEY\x01id-%d\x02" % at) for at, body in enumerate(bodies)])
        self.wait_for(before + len(bodies))

    def _send(self, parts: Sequence[BatchPart]) -> None:
        options = parse(SinkOptions, self.options)
        with connect(options) as network:
            sender = Sender(network, options)
            for part in parts:
                sender.put(self.name, part)
            sender.finish()

    def wait_for(self, rows: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while sum(self.ends().values()) < rows:
            assert time.monotonic() < deadline, self.ends()
            time.sleep(0.01)

    def ends(self) -> dict[str, int]:
        return {queue: held.end for queue, held in self._bounds().items()}

    def begins(self) -> dict[str, int]:
        """By queue the first offset that retention has left."""
        return {queue: held.start for queue, held in self._bounds().items()}

    def _bounds(self) -> dict[str, Bounds]:
        with connect(parse(SourceOptions, self.options)) as network:
            try:
                bounds = bounds_of(network, network.route(self.name).readable)
            except NoRoute:  # the broker has not told the name server of its new topic yet
                return {}
        return {str(queue.queue_id): held for queue, held in bounds.items()}

    def read(self, **options: str) -> DataFrame:
        return self.spark.read.format("rocketmq").options(**(self.options | options)).load()

    def stream(self, **options: str) -> DataFrame:
        given = self.options | {"startingOffsets": "earliest"} | options
        return self.spark.readStream.format("rocketmq").options(**given).load()


@pytest.fixture
def topic(spark: SparkSession, namesrv: str) -> Topic:
    return Topic(spark, namesrv)


def numbers(table: DataFrame) -> list[int]:
    return sorted(int(row[0]) for row in table.select(f.col("body").cast("string")).collect())


def everything(batches: dict[int, list[int]]) -> list[int]:
    return sorted(chain.from_iterable(batches.values()))


def run(stream: DataFrame, checkpoint: Path, batches: dict[int, list[int]]) -> None:
    """Read all there is now; what each batch had is added to `batches`."""

    def keep(rows: DataFrame, batch: int) -> None:
        batches.setdefault(batch, []).extend(numbers(rows))

    writing = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    writing.trigger(availableNow=True).start().awaitTermination(DEADLINE_S * 2)


def test_a_table_has_every_column_and_row(topic):
    topic.send(0, 300, TAGS="paid", KEYS="a b", region="eu")
    everything = topic.read(includeInternal="true")
    rows = everything.collect()
    assert everything.columns == list(COLUMNS)
    assert len(topic.read().columns) == len(COLUMNS) - len(INTERNAL)
    assert sorted(int(row.body) for row in rows) == list(range(300))
    assert {row.topic for row in rows} == {topic.name}
    assert {(row.tags, row["keys"], row.properties["region"]) for row in rows} == {("paid", "a b", "eu")}
    assert {row.msgId for row in rows} == {f"id-{number}" for number in range(300)}
    assert all(row.bornTimestamp <= row.storeTimestamp and row.storeSize > 91 for row in rows)
    assert "__CRC32#" in rows[0].properties
    assert "__CRC32#" not in topic.read().first().properties


def test_a_query_reads_the_offsets_and_the_columns_asked_for(topic):
    topic.send(0, 100)
    ends = topic.ends()
    start = json.dumps({topic.name: {"broker-0": dict.fromkeys(ends, -2)}})
    end = json.dumps({topic.name: {"broker-0": {queue: min(10, held) for queue, held in ends.items()}}})
    table = topic.read(startingOffsets=start, endingOffsets=end, columns="queueOffset,body", minPartitions="3")
    assert table.columns == ["queueOffset", "body"]
    assert table.count() == sum(min(10, held) for held in ends.values())
    assert table.agg(f.max("queueOffset")).first()[0] < 10


def test_a_query_reads_the_time_asked_for(topic):
    topic.send(0, 50)
    middle = topic.read().agg(f.max("storeTimestamp")).first()[0].timestamp() * 1000 + 1
    deadline = time.monotonic() + DEADLINE_S
    while time.time() * 1000 <= middle + 1:
        assert time.monotonic() < deadline
    topic.send(50, 50)
    given = {"startingOffsetsByTimestampStrategy": "latest"}
    assert numbers(topic.read(startingTimestamp=str(round(middle)), **given)) == list(range(50, 100))
    assert numbers(topic.read(endingTimestamp=str(round(middle)))) == list(range(50))


@pytest.mark.slow
def test_the_log_files_of_a_broker_have_the_same_rows(topic, spark, folder):
    topic.send(0, 500, TAGS="paid", region="eu")
    topic.send(500, 100, TAGS="open")
    (store,) = [found.parent for found in folder.rglob("commitlog")]
    stored = spark.read.format("rocketmq").options(topic=topic.name, brokerName="broker-0", minPartitions="3")
    files, broker = stored.load(str(store)), topic.read()
    assert files.rdd.getNumPartitions() == 3
    assert files.schema == broker.schema
    assert sorted(files.collect(), key=place) == sorted(broker.collect(), key=place)
    assert numbers(stored.option("tags", "open").load(str(store))) == list(range(500, 600))


def place(row):
    return row.queueId, row.queueOffset


def test_tags_filter_and_a_users_schema_prunes(topic, spark):
    topic.send(0, 20, TAGS="paid")
    topic.send(20, 20, TAGS="open")
    assert numbers(topic.read(tags="paid || absent")) == list(range(20))
    reader = spark.read.format("rocketmq").options(**topic.options).schema("body string, tags string")
    assert {(row.body, row.tags) for row in reader.load().collect() if row.body == "30"} == {("30", "open")}


@pytest.mark.slow
def test_a_stream_is_limited_goes_on_after_a_restart_and_repeats_an_unfinished_batch(topic, tmp_path):
    topic.send(0, 100)
    batches: dict[int, list[int]] = {}
    limited = topic.stream(**LIMIT, failOnDataLoss="true")
    run(limited, tmp_path / "checkpoint", batches)
    assert everything(batches) == list(range(100))
    if HAS_LIMITS:
        assert len(batches) == 3 and max(map(len, batches.values())) <= 40 + 4
    last = max(batches)
    # The driver dies after the batch was done and before it says so: Spark does the batch again.
    (tmp_path / "checkpoint" / "commits" / str(last)).unlink()
    (tmp_path / "checkpoint" / "commits" / f".{last}.crc").unlink(missing_ok=True)
    topic.send(100, 30)
    again: dict[int, list[int]] = {}
    run(limited, tmp_path / "checkpoint", again)
    if not HAS_LIMITS:  # Trigger.AvailableNow is one batch there, and this time it was the unfinished one
        assert again.keys() == {last}
        run(limited, tmp_path / "checkpoint", again)
    assert again.pop(last) == batches[last]
    assert everything(again) == list(range(100, 130))


@pytest.mark.slow
def test_lost_data_ends_a_stream_or_is_passed_over(spark, peer, tmp_path):
    peer.store("T", 0, [b"%d" % number for number in range(50)])
    options = {"nameServer": peer.address, "topic": "T", "retries": "1", "retryIntervalMs": "1"}
    given = options | {"startingOffsets": "earliest"} | LIMIT
    strict = spark.readStream.format("rocketmq").options(**given).load()
    batches: dict[int, list[int]] = {}
    run(strict, tmp_path / "checkpoint", batches)
    peer.store("T", 0, [b"%d" % number for number in range(50, 100)])
    peer.delete("T", 0, 70)
    with pytest.raises(PySparkException, match=r"offsets 50 to 69 of .* are gone"):
        run(strict, tmp_path / "checkpoint", {})
    tolerant = spark.readStream.format("rocketmq").options(**given, failOnDataLoss="false").load()
    found: dict[int, list[int]] = {}
    run(tolerant, tmp_path / "checkpoint", found)
    assert everything(found) == list(range(70, 100))


def test_a_table_is_appended_to_a_topic(topic, spark):
    rows = spark.range(1000).select(
        f.col("id").cast("string").alias("body"),
        f.concat(f.lit("key-"), "id").alias("keys"),
        f.when(f.col("id") % 2 == 0, "even").alias("tags"),
        f.create_map(f.lit("source"), f.lit("spark")).alias("properties"),
    )
    rows.write.format("rocketmq").options(**topic.options).mode("append").save()
    topic.wait_for(1000)
    stored = {int(row.body): row for row in topic.read().collect()}
    assert stored.keys() == set(range(1000))
    assert (stored[4].tags, stored[5].tags, stored[5]["keys"]) == ("even", None, "key-5")
    assert stored[5].properties["source"] == "spark"
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        rows.write.format("rocketmq").options(**topic.options).mode("overwrite").save()


def test_rows_are_delivered_at_the_times_that_they_name(topic, spark):
    now = datetime.now(UTC)
    due = [None, now - timedelta(hours=1), now + timedelta(seconds=2), now + timedelta(hours=1)]
    rows = spark.createDataFrame([(str(number), time) for number, time in enumerate(due)], DELAYED)
    rows.write.format("rocketmq").options(**topic.options).mode("append").save()
    topic.wait_for(3)
    assert numbers(topic.read()) == [0, 1, 2], "the last row is due in an hour"


def pieces_of_the_page() -> list[str]:
    """The Python code of docs/use/spark.md, block by block."""
    page = (Path(__file__).parents[2] / "docs" / "use" / "spark.md").read_text()
    return [each.partition("```")[0] for each in page.split("```python\n")[1:]]


@pytest.mark.slow
def test_pieces_of_the_page_read_stream_and_write(topic, spark, namesrv, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sparrowmq.spark.register.session", lambda: spark)
    copy, once = Topic(spark, namesrv), Topic(spark, namesrv)
    topic.send(0, 20, TAGS="paid", KEYS="k-1")
    places = {"localhost:9876": namesrv, '"broker-a"': '"broker-0"', "/lake/": f"{tmp_path}/"}
    places |= {f'"{name}"': f'"{own.name}"' for name, own in (("orders", topic), ("copy", copy), ("once", once))}
    pieces = pieces_of_the_page()
    names: dict[str, Any] = {}
    pieces = [each for each in pieces if "queries" not in each]
    for piece in [*pieces[:3], *(each for each in pieces if "exactly_once" in each)]:
        for theirs, here in places.items():
            piece = piece.replace(theirs, here)
        exec(piece, names)
        if "query" in names:
            query = names.pop("query")
            try:
                query.processAllAvailable()
            finally:
                query.stop()
    assert "|paid|" in capsys.readouterr().out
    assert numbers(spark.read.parquet(str(tmp_path / "orders"))) == list(range(20))
    for written in (copy, once):
        written.wait_for(20)
        assert numbers(written.read(tags="paid")) == list(range(20))


@pytest.mark.slow
def test_streams_start_one_after_the_other_as_on_the_page(topic, spark, namesrv, tmp_path):
    other = Topic(spark, namesrv)
    topic.send(0, 5)
    other.send(0, 5)
    [piece] = [each for each in pieces_of_the_page() if "queries" in each]
    places = {"localhost:9876": namesrv, '"orders"': f'"{topic.name}"', '"payments"': f'"{other.name}"'}
    for theirs, here in (places | {"/lake/": f"{tmp_path}/"}).items():
        assert theirs in piece
        piece = piece.replace(theirs, here)
    names: dict[str, Any] = {"spark": spark}
    exec(piece, names)
    for query in names["queries"]:
        assert query.isActive and query.lastProgress is not None
        query.stop()


@pytest.mark.slow
def test_rows_are_sent_in_the_order_that_the_page_gives_them(topic, spark):
    [piece] = [each for each in pieces_of_the_page() if "in_order(keyed" in each]
    for name, here in (("localhost:9876", topic.options["nameServer"]), ('"sorted"', f'"{topic.name}"')):
        assert name in piece
        piece = piece.replace(name, here)
    orders = spark.range(0, 60, numPartitions=4).selectExpr(
        "concat('{\"order\":\"', id % 3, '\",\"number\":', id, '}') as body",
        "'paid' as tags",
        "timestamp_seconds(100 - id) as bornTimestamp",
    )
    exec(piece, {"orders": orders})
    topic.wait_for(60)
    sent: dict[str, list[int]] = {}
    for row in sorted(topic.read().collect(), key=lambda row: row.queueOffset):
        body = json.loads(row.body)
        sent.setdefault(f"{row.queueId} {body['order']}", []).append(body["number"])
    assert len(sent) == 3, "each order has one queue"
    assert all(numbers == sorted(numbers, reverse=True) for numbers in sent.values())


@pytest.mark.slow
def test_a_stream_is_appended_to_a_topic(topic, spark, namesrv, tmp_path):
    topic.send(0, 200)
    copy = Topic(spark, namesrv)
    writing = topic.stream().select("body", "keys", "properties").writeStream.format("rocketmq").options(**copy.options)
    query = writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S * 2)
    copy.wait_for(200)
    assert numbers(copy.read()) == list(range(200))
    source = json.loads(query.lastProgress.json)["sources"][0]
    assert source["numInputRows"] == 200
    if not HAS_LIMITS:
        return
    assert sum(source["latestOffset"]["topics"][topic.name]["broker-0"].values()) == 200


@pytest.mark.slow
def test_an_idempotent_batch_that_is_repeated_has_the_same_ids(topic, spark, namesrv, tmp_path):
    topic.send(0, 200)
    copy = Topic(spark, namesrv)
    given = copy.options | {"deliveryGuarantee": "idempotent"}
    for expected in (200, 400):
        writing = topic.stream().select("body").writeStream.format("rocketmq").options(**given)
        query = writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S * 2)
        copy.wait_for(expected)
        # The driver dies after the rows were stored and before it says so: Spark does the batch again.
        for log in tmp_path.glob("commits/*0*"):
            log.unlink()
    assert numbers(without_repeats(copy.read())) == list(range(200))
    assert copy.read().select("msgId", "body").distinct().count() == 200


@pytest.mark.slow
def test_an_exactly_once_batch_that_is_repeated_is_there_once(topic, spark, namesrv, tmp_path):
    topic.send(0, 200)
    copy = Topic(spark, namesrv)
    given = copy.options | {"deliveryGuarantee": "exactly_once"}

    def go_on() -> None:
        writing = topic.stream(**LIMIT).select("body").writeStream.format("rocketmq").options(**given)
        query = writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(DEADLINE_S * 2)

    for _ in range(2):
        go_on()
        copy.wait_for(200)
        # The driver dies after the last batch was committed and before it says so: Spark does the batch again.
        last = max(int(log.name) for log in tmp_path.glob("commits/[0-9]*"))
        for log in tmp_path.glob(f"commits/*{last}*"):
            log.unlink()
    topic.send(200, 20)
    go_on()
    if not HAS_LIMITS:  # that run was for the unfinished batch
        go_on()
    copy.wait_for(220)
    assert numbers(copy.read()) == list(range(220))
    assert json.loads((tmp_path / DECIDER_FILE).read_text()) == {"broker": "broker-0"}


@pytest.mark.slow
def test_an_exactly_once_write_is_there_as_a_whole_although_its_tasks_fail(topic, spark, namesrv, tmp_path):
    copy = Topic(spark, namesrv)
    given = copy.options | {
        "deliveryGuarantee": "exactly_once",
        "brokerName": "broker-0",
        "writeId": copy.name,
    }
    failed = str(tmp_path / "failed")

    def fail_once(batches):
        for at, batch in enumerate(batches):
            yield batch
            if at == 1 and not Path(failed).exists():
                Path(failed).touch()
                raise ValueError("as the test says")

    rows = spark.range(0, 40_000, 1, 2).selectExpr("cast(id as string) body").mapInArrow(fail_once, "body string")
    for _ in range(2):  # the second is known by its name
        rows.write.format("rocketmq").options(**given).mode("append").save()
        copy.wait_for(40_000)
    assert numbers(copy.read()) == list(range(40_000))
    assert Path(failed).exists()


@pytest.mark.slow
def test_a_write_within_a_batch_is_idempotent_by_its_name(topic, spark, namesrv, tmp_path):
    topic.send(0, 20)
    copy = Topic(spark, namesrv)
    given = copy.options | {"deliveryGuarantee": "idempotent"}

    def write(rows: DataFrame, _batch: int) -> None:
        for name in ("twice", "twice", "once"):
            write = rows.select("body").write.format("rocketmq").options(**given, writeId=name)
            write.mode("append").save()

    query = topic.stream().writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
    assert query.trigger(availableNow=True).start().awaitTermination(DEADLINE_S * 2)
    copy.wait_for(60)
    assert numbers(without_repeats(copy.read())) == sorted([*range(20), *range(20)])

    def nameless(rows: DataFrame, _batch: int) -> None:
        rows.select("body").write.format("rocketmq").options(**given).mode("append").save()

    topic.send(20, 1)
    query = topic.stream().writeStream.foreachBatch(nameless).option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException, match="a write in foreachBatch needs a name"):
        query.trigger(availableNow=True).start().awaitTermination(DEADLINE_S * 2)


def test_a_topic_is_a_table_in_sql(topic, spark):
    topic.send(0, 10)
    options = ", ".join(f"{name} '{value}'" for name, value in (topic.options | {"columns": "body"}).items())
    given = ", ".join(f"'{name}' = '{value}'" for name, value in topic.options.items())
    spark.sql(f"CREATE TABLE orders USING rocketmq OPTIONS ({options})")
    spark.sql(f"CREATE TEMPORARY VIEW orders_view USING rocketmq OPTIONS ({options})")
    try:
        assert spark.sql("SELECT count(*) FROM orders").first()[0] == 10
        spark.sql("INSERT INTO orders VALUES (CAST('10' AS BINARY))")
        spark.sql(f"INSERT INTO orders WITH ({given}) SELECT CAST('11' AS BINARY) AS body")
        spark.sql("INSERT INTO orders_view SELECT CAST('12' AS BINARY) AS body")
        topic.wait_for(13)
        assert numbers(spark.table("orders")) == numbers(spark.table("orders_view")) == list(range(13))
        topic.send(13, 2)
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders_view USING rocketmq OPTIONS ({options})")
        assert numbers(spark.table("orders")) == numbers(spark.table("orders_view")) == list(range(15))
    finally:
        spark.sql("DROP TABLE orders")
        spark.catalog.dropTempView("orders_view")


@pytest.mark.slow
def test_a_topic_can_look_like_kafkas(topic):
    topic.send(0, 5, KEYS="k")
    table = topic.read(kafkaCompat="true")
    assert table.columns == list(KAFKA_COLUMNS)
    row = table.where("value = '3'").first()
    assert (bytes(row.key), row.topic, row.timestampType) == (b"k", topic.name, 1)
    assert {(header.key, bytes(header.value)) for header in row.headers} >= {("KEYS", b"k")}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_partitions_are_unique_over_brokers_and_a_copy_has_the_same(spark, tmp_path):
    partitions: dict[int, int] = {}
    with BackgroundCluster(tmp_path / "brokers", brokers=2) as cluster, sync.connect(cluster.namesrv) as mq:
        topic, copy = Topic(spark, cluster.namesrv), Topic(spark, cluster.namesrv)
        for name in (topic.name, copy.name):
            mq.admin.create_topic(name, queues=2)

        def keep(rows: DataFrame, _batch: int) -> None:
            writing = rows.select("value", "partition").write.format("rocketmq").options(**copy.options)
            writing.mode("append").save()
            partitions.update({int(row.value): row.partition for row in rows.collect()})

        def run() -> dict[int, tuple[int, int]]:
            """Copy the new messages; returns the partition and the offset of each copy."""
            stream = topic.stream(kafkaCompat="true").writeStream.foreachBatch(keep)
            stream = stream.option("checkpointLocation", str(tmp_path / "state"))
            stream.trigger(availableNow=True).start().awaitTermination()
            rows = copy.read(kafkaCompat="true").collect()
            return {int(row.value): (row.partition, row.offset) for row in rows}

        for number in range(40):
            mq.send(topic.name, b"%d" % number)
        copies = run()
        assert len(set(copies.values())) == 40
        assert {number: partition for number, (partition, _) in copies.items()} == partitions
        assert set(partitions.values()) == {0, 1, 2, 3}
        mq.admin.create_topic(topic.name, queues=3, exist_ok=True)
        for number in range(40, 80):
            mq.send(topic.name, b"%d" % number)
        copies = run()
        assert {number: partition for number, (partition, _) in copies.items()} == partitions
        assert len(set(copies.values())) == 80
        planned = newest_planned_end(str(tmp_path / "state"))
        assert planned is not None
        added = {f"{queue.broker_name}:{queue.queue_id}": number for queue, number in planned.numbers.items()}
        assert (added["broker-0:2"], added["broker-1:2"]) == (4, 5)
        assert added["broker-1:0"] == 2


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger"),
        ({"failOnDataLoss": "maybe"}, "write true or false"),
        ({"topic": "absent"}, "no route for topic"),
        ({"deliveryGuarantee": "exactly_once", "columns": "bdoy"}, "there is no column bdoy"),
    ],
)
def test_a_wrong_option_is_told_in_sparks_own_error(topic, given, advice):
    topic.send(0, 1)
    with pytest.raises(PySparkException, match=advice):
        topic.read(**given).count()


@pytest.mark.slow
def test_pushed_filters_choose_what_is_read(topic, spark):
    topic.send(0, 100)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        whole, pushed = topic.read(), topic.read(pushdown="true")
        for condition in (
            "queueId = 0",
            "queueOffset > 3 AND queueOffset <= 7",
            "storeTimestamp < now()",
            "tags = 'no'",
        ):
            assert numbers(pushed.where(condition)) == numbers(whole.where(condition)), condition
        assert pushed.where("queueId = 0 AND queueOffset < 2").rdd.getNumPartitions() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
