"""sparrowmq.spark.sink.writer: rows become messages."""

import time

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from sparrowmq.client.sending.queue_choice import by_key
from sparrowmq.errors import ConfigError, InvalidMessage
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import HeartBeatReply
from sparrowmq.spark.schema import COLUMNS, KAFKA_COLUMNS
from sparrowmq.spark.sink.row_identity import Writing
from sparrowmq.spark.sink.row_messages import COLUMNS as COLUMNS_OF_SINK
from sparrowmq.spark.sink.writer import (
    BatchWriter,
    Stored,
    StreamWriter,
    check_columns,
    count_stored,
    log_failure,
    log_result,
    send_all,
)
from tests.spark.columns.decoding import decode
from tests.spark.peer import BROKER, Refuse

WRITING = Writing("query-1", batch=5, partition=2)
MAP = pa.map_(pa.string(), pa.string())


@pytest.fixture
def send(peer, connect):
    for queue_id in range(4):
        peer.store("T", queue_id, [])

    def send(columns, **given):
        batch = pa.RecordBatch.from_pydict(columns)
        report = send_all(iter([batch]), connect(), peer.sink(**({"topic": "T"} | given)), WRITING)
        assert report == Stored(batch.num_rows)
        return stored(peer)

    return send


def stored(peer, topic="T"):
    body = b"".join(message for messages in peer.queues[topic].values() for message in messages)
    rows = decode(body, ["queueId", "body", "keys", "tags", "properties"]).to_pylist()
    return sorted(({**row, "properties": dict(row["properties"])} for row in rows), key=lambda row: row["body"])


def test_a_body_is_enough(send):
    one, two = send({"body": [b"1", b"2"]})
    assert one["properties"].keys() == {"UNIQ_KEY"}
    assert one["properties"] != two["properties"]
    assert len(one["properties"]["UNIQ_KEY"]) == 32


def test_text_bodies_are_utf8(send):
    assert [row["body"] for row in send({"body": ["naïve"]})] == ["naïve".encode()]


def test_everything_that_a_row_may_say(send, peer):
    rows = send(
        {
            "BODY": [b"1", b"2", b"3"],
            "tags": ["paid", None, ""],
            "keys": pa.array([["a", "b"], None, ["c", None]], pa.list_(pa.string())),
            "properties": pa.array([[("region", "eu")], None, []], MAP),
        }
    )
    assert [(row["keys"], row["tags"], row["properties"].get("region")) for row in rows] == [
        ("a b", "paid", "eu"),
        (None, None, None),
        ("c", None, None),
    ]


def test_kafkas_names_are_taken_too(send):
    row = send({"key": pa.array([b"k"], pa.binary()), "value": pa.array([b"v"], pa.binary())})[0]
    assert (row["body"], row["keys"]) == (b"v", "k")
    with pytest.raises(InvalidMessage, match="is not UTF-8 text"):
        send({"key": pa.array([b"\xff"], pa.binary()), "value": pa.array([b"v"], pa.binary())})


def test_rows_go_to_their_own_topic_unless_the_option_names_one(send, peer, connect):
    peer.store("U", 0, [])
    rows = {"body": [b"1", b"2"], "topic": ["T", "U"]}
    assert len(send(rows)) == 2
    send_all(iter([pa.RecordBatch.from_pydict(rows)]), connect(), peer.sink(), WRITING)
    assert [row["body"] for row in stored(peer, "U")] == [b"2"]


def test_rows_with_one_sharding_key_go_where_a_java_producer_sends_them_in_order(send, peer):
    queues = [MessageQueue("T", BROKER, number) for number in range(4)]
    rows = send({"body": [b"%03d" % number for number in range(200)], "shardingKey": ["even", "odd"] * 100})
    for row in rows:
        key = "odd" if int(row["body"]) % 2 else "even"
        assert row["queueId"] == by_key(key, queues).queue_id
        assert row["properties"]["__SHARDINGKEY"] == key
    for messages in peer.queues["T"].values():
        bodies = [decode(message, ["body"]).to_pylist()[0]["body"] for message in messages]
        assert bodies == sorted(bodies)


def test_a_row_may_name_its_queue(send):
    rows = send({"body": [b"1", b"2"], "queueId": [3, None], "brokerName": [BROKER, None]})
    assert rows[0]["queueId"] == 3
    with pytest.raises(InvalidMessage, match=r"names T@broker-a\[9\], which does not exist.*drop the columns"):
        send({"body": [b"1"], "queueId": [9], "brokerName": [BROKER]})


def test_a_delayed_row_goes_alone(send, peer):
    rows = send({"body": [b"1", b"2", b"3"], "delayLevel": [3, 0, None], "flag": [5, None, None]})
    assert [row["properties"].get("DELAY") for row in rows] == ["3", None, None]
    assert (peer.count(310), peer.count(320)) == (1, 1)


def later(*seconds):
    """Times from now on."""
    now_ms = time.time_ns() // 1_000_000
    times = [None if each is None else (now_ms + each * 1000) * 1000 for each in seconds]
    return pa.array(times, pa.timestamp("us", "UTC"))


def test_a_row_for_a_time_goes_alone_and_one_whose_time_is_over_does_not_wait(send, peer):
    peer.answers[34].append(Refuse(0, "", HeartBeatReply(timer_max_delay_sec=60)))
    times = later(3600, -3600, None, 7200)
    rows = send({"body": [b"1", b"2", b"3", b"4"], "deliverTimestamp": times})
    due = [str(times[0].value // 1000), None, None, str(times[3].value // 1000)]
    assert [row["properties"].get("TIMER_DELIVER_MS") for row in rows] == due
    assert (peer.count(34), peer.count(310), peer.count(320)) == (1, 2, 1)


def test_a_row_for_a_time_is_rejected_where_brokers_know_levels_only(peer, connect, caplog):
    peer.store("T", 0, [])
    peer.answers[34].append(Refuse(0, "", HeartBeatReply()))
    batch = pa.RecordBatch.from_pydict({"body": [b"1", b"2"], "deliverTimestamp": later(3600, None)})
    report = send_all(iter([batch]), connect(), peer.sink(topic="T", onError="skip"), WRITING)
    assert report == Stored(1, skipped=1)
    assert "broker broker-a delivers after its delay levels only" in caplog.text


def test_a_row_has_one_delay(send):
    with pytest.raises(InvalidMessage, match="has a delayLevel and a deliverTimestamp"):
        send({"body": [b"1"], "delayLevel": [3], "deliverTimestamp": later(3600)})


def test_a_priority_is_a_property_of_a_message_that_goes_alone(send, peer):
    rows = send({"body": [b"1", b"2"], "priority": [4, None]})
    assert [row["properties"].get("_SYS_MSG_PRIORITY_") for row in rows] == ["4", None]
    assert (peer.count(310), peer.count(320)) == (2, 0), "the other row needs no batch"
    with pytest.raises(InvalidMessage, match="has the priority -1; write 0 to"):
        send({"body": [b"1"], "priority": [-1]})


def test_a_copied_row_leaves_out_what_rocketmq_itself_wrote(send):
    properties = [[("UNIQ_KEY", "old"), ("CLUSTER", "c"), ("KEYS", "old"), ("region", "eu")]]
    row = send({"body": [b"1"], "keys": ["new"], "properties": pa.array(properties, MAP), "queueOffset": [77]})[0]
    assert row["properties"].keys() == {"region", "KEYS", "UNIQ_KEY"}
    assert (row["keys"], row["properties"]["UNIQ_KEY"] == "old") == ("new", False)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"body": pa.array([None], pa.binary())}, "a row has no body"),
        ({"body": [b"1"], "tags": ["a\x01b"]}, "0x01 or 0x02"),
        ({"body": [b"1"], "properties": pa.array([[("", "x")]], MAP)}, "empty name"),
    ],
)
def test_a_row_that_cannot_be_a_message_is_refused(send, columns, complaint):
    with pytest.raises(InvalidMessage, match=complaint):
        send(columns)


def test_a_null_property_is_none(send):
    properties = [[("region", None), ("city", "x")], [("region", None)], None]
    rows = send({"body": [b"1", b"2", b"3"], "properties": pa.array(properties, MAP)})
    assert [row["properties"].keys() - {"UNIQ_KEY"} for row in rows] == [{"city"}, set(), set()]


def headers(*rows):
    """Kafka's column."""
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.array([[{"key": key, "value": value} for key, value in row] for row in rows], kind)


def test_kafkas_headers_are_properties(send):
    rows = send(
        {
            "value": [b"1", b"2"],
            "headers": headers([("region", b"eu"), ("no", None), ("MSG_REGION", b"x")], []),
        }
    )
    assert [row["properties"].get("region") for row in rows] == ["eu", None]
    assert rows[0]["properties"].keys() == {"region", "UNIQ_KEY"}
    for row, complaint in [
        ([("a", b"1"), ("a", b"2")], "header 'a' is there twice"),
        ([("a", b"\xff")], "header 'a' .* is not UTF-8 text"),
    ]:
        with pytest.raises(InvalidMessage, match=complaint):
            send({"value": [b"1"], "headers": headers(row)})


def test_kafkas_partition_is_the_queue_by_its_place(send):
    rows = send({"value": [b"%d" % n for n in range(8)], "partition": [3, 3, 0, 1, 2, 3, 1, None]})
    assert [row["queueId"] for row in rows[:7]] == [3, 3, 0, 1, 2, 3, 1]
    for number in (4, -1):
        with pytest.raises(InvalidMessage, match=f"names partition {number}, but topic T has 4 queues"):
            send({"value": [b"1"], "partition": [number]})


def test_a_key_with_a_space_would_be_two(send):
    assert send({"body": [b"1"], "keys": ["a b"]})[0]["keys"] == "a b"  # as text they are as RocketMQ has them
    with pytest.raises(InvalidMessage, match="key 'a b' has a space"):
        send({"body": [b"2"], "keys": pa.array([["c", "a b"]], pa.list_(pa.string()))})


def test_of_a_row_that_is_refused_the_place_is_told(peer, connect):
    peer.store("T", 0, [])
    good = pa.RecordBatch.from_pydict({"body": [b"1"] * 5, "tags": ["a"] * 5, "keys": ["k"] * 5})
    bad = pa.RecordBatch.from_pydict({"body": [b"1"] * 2, "tags": ["a", "a\x01b"], "keys": ["k", "order-7"]})
    with pytest.raises(InvalidMessage, match=r"\(row 6 of its task, keys 'order-7'\)"):
        send_all(iter([good, bad]), connect(), peer.sink(topic="T"), WRITING)


def test_a_row_without_a_topic_is_refused(peer, connect):
    batch = pa.RecordBatch.from_pydict({"body": [b"1"], "topic": pa.array([None], pa.string())})
    with pytest.raises(InvalidMessage, match="a row has no topic"):
        send_all(iter([batch]), connect(), peer.sink(), WRITING)


def complaint(columns, peer, **given):
    with pytest.raises(ConfigError) as error:
        check_columns(columns, peer.sink(**given))
    return str(error.value)


def test_columns_that_cannot_be_sent_are_refused_before_anything_is(peer):
    body = ("body", "binary")
    assert "a column body" in complaint([("keys", "string")], peer, topic="T")
    assert 'option("topic", ...)' in complaint([body], peer)
    assert "give both or neither" in complaint([body, ("queueId", "int")], peer, topic="T")
    assert "column body is there twice" in complaint([body, ("value", "binary")], peer, topic="T")
    numbers = [("queueId", "int"), ("brokerName", "string"), ("partition", "int")]
    assert "queueId and partition say the same" in complaint([body, *numbers], peer, topic="T")
    texts = [("properties", "map<string,string>"), ("headers", COLUMNS_OF_SINK["headers"][0])]
    assert "properties and headers say the same" in complaint([body, *texts], peer, topic="T")
    assert "column tags is int; cast it to string" in complaint([body, ("tags", "int")], peer, topic="T")
    assert "did you mean shardingKey?" in complaint([body, ("shardKey", "string")], peer, topic="T")
    assert "did you mean deliverTimestamp?" in complaint([body, ("deliverAt", "timestamp")], peer, topic="T")
    assert "cast it to timestamp" in complaint([body, ("deliverTimestamp", "bigint")], peer, topic="T")
    assert "there are body, topic" in complaint([body, ("qqq", "string")], peer, topic="T")


@pytest.mark.parametrize("table", [COLUMNS, KAFKA_COLUMNS])
def test_the_sources_own_tables_can_be_sent(peer, table):
    check_columns(table.items(), peer.sink(topic="T"))


@pytest.mark.parametrize(("kind", "batch_id"), [(BatchWriter, ()), (StreamWriter, (7,))])
def test_writers_report_what_was_stored_whatever_is_missing(peer, connect, kind, batch_id):
    peer.store("T", 0, [])
    writer = kind(peer.sink(topic="T"))
    report = writer.write(iter([pa.RecordBatch.from_pydict({"body": [b"1", b"2"]})]))
    assert report == Stored(2)
    writer.commit([report, report], *batch_id)
    writer.abort([report, None], *batch_id)
    assert count_stored([report, None, report]) == 4


def test_a_failed_write_does_not_count_staged_messages_as_stored(peer, caplog):
    for guarantee in ("exactly_once", "idempotent"):
        log_failure("the write", peer.sink(topic="T", deliveryGuarantee=guarantee), [Stored(2), None])
    staged, sent = caplog.messages
    assert staged == "the write failed; its messages appear only if the broker has the commit"
    assert sent == "the write failed; 2 or more of its messages are stored"


def rows_of(*bodies, **columns):
    return pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())} | columns)


def test_idempotent_rows_have_the_same_ids_when_a_task_is_repeated(peer, connect):
    peer.store("T", 0, [])
    options = peer.sink(topic="T", deliveryGuarantee="idempotent")
    for writing in (WRITING, WRITING, Writing("query-1", batch=6, partition=2)):
        send_all(iter([rows_of(b"1"), rows_of(b"2")]), connect(), options, writing)
    ids = {(row["body"], row["properties"]["UNIQ_KEY"]) for row in stored(peer)}
    assert len(stored(peer)) == 6
    assert len(ids) == 4
    assert {len(key) for _, key in ids} == {32}


def test_a_row_may_bring_its_unique_id(send):
    rows = send({"body": [b"1", b"2"], "uniqueKey": ["mine", None]})
    assert rows[0]["properties"]["UNIQ_KEY"] == "mine"
    assert len(rows[1]["properties"]["UNIQ_KEY"]) == 32


def test_rejected_rows_are_skipped_or_kept_with_reason_and_place(peer, connect, caplog):
    peer.store("T", 0, [])
    peer.store("D", 0, [])
    batch = rows_of(b"1", b"2", None, b"4", tags=["a", "b\x01", "c", "d"])
    report = send_all(iter([batch]), connect(), peer.sink(topic="T", onError="skip"), WRITING)
    assert report == Stored(2, skipped=2)
    assert "row 1 of partition 2 of batch 5 of query-1" in caplog.text
    options = peer.sink(topic="T", onError="dlq", dlqTopic="D", deliveryGuarantee="idempotent")
    for _ in range(2):
        report = send_all(iter([batch]), connect(), options, WRITING)
        assert report == Stored(2, dead=2)
    assert [row["body"] for row in stored(peer)] == [b"1", b"1", b"1", b"4", b"4", b"4"]
    dead = stored(peer, "D")
    assert [row["body"] for row in dead] == [b"2", b"2", b"null", b"null"]
    assert dead[0]["properties"] == dead[1]["properties"]
    assert dead[0]["properties"]["REJECT_PLACE"] == "row 1 of partition 2 of batch 5 of query-1"
    assert "0x01" in dead[0]["properties"]["REJECT_REASON"]
    assert "a row has no body" in dead[2]["properties"]["REJECT_REASON"]


def test_what_is_rejected_changes_no_id(peer, connect):
    peer.store("T", 0, [])
    options = peer.sink(topic="T", onError="skip", deliveryGuarantee="idempotent")
    for second in (b"2", None):
        send_all(iter([rows_of(b"1", second, b"3")]), connect(), options, WRITING)
    assert len({(row["body"], row["properties"]["UNIQ_KEY"]) for row in stored(peer)}) == 3


def test_a_rate_holds_for_the_task(peer, connect):
    peer.store("T", 0, [])
    options = peer.sink(topic="T", rowsPerSecondPerTask="1000000")
    assert send_all(iter([rows_of(*[b"1"] * 100)]), connect(), options, WRITING) == Stored(100)


def test_what_was_rejected_is_told_when_all_is_done(caplog):
    log_result("batch 7", [Stored(5, skipped=1, dead=2), None, Stored(1)])
    assert "batch 7: 6 messages stored, 1 rows skipped, 2 in dlqTopic" in caplog.text
