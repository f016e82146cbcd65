"""sparrowmq.spark.writer: rows become messages."""

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from sparrowmq.client.sending.queue_choice import by_key
from sparrowmq.errors import ConfigError, InvalidMessage
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.columns.records import decode
from sparrowmq.spark.schema import COLUMNS, KAFKA_COLUMNS
from sparrowmq.spark.writer import BatchWriter, Stored, StreamWriter, check, count_stored, send_all
from tests.spark.peer import BROKER

MAP = pa.map_(pa.string(), pa.string())


@pytest.fixture
def send(peer, connect):
    for queue_id in range(4):
        peer.store("T", queue_id, [])

    def send(columns, **given):
        batch = pa.RecordBatch.from_pydict(columns)
        report = send_all([batch], connect(), peer.sink(**({"topic": "T"} | given)))
        assert report == Stored(batch.num_rows)
        return stored(peer)

    return send


def stored(peer, topic="T"):
    body = b"".join(message for messages in peer.queues[topic].values() for message in messages)
    rows = decode(body, ["queueId", "body", "keys", "tags", "properties"]).to_pylist()
    return sorted(
        ({**row, "properties": dict(row["properties"])} for row in rows), key=lambda row: row["body"]
    )


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
    send_all([pa.RecordBatch.from_pydict(rows)], connect(), peer.sink())
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
    with pytest.raises(
        InvalidMessage, match=r"names T@broker-a\[9\], which does not exist.*drop the columns"
    ):
        send({"body": [b"1"], "queueId": [9], "brokerName": [BROKER]})


def test_a_delayed_row_goes_alone(send, peer):
    rows = send({"body": [b"1", b"2", b"3"], "delayLevel": [3, 0, None], "flag": [5, None, None]})
    assert [row["properties"].get("DELAY") for row in rows] == ["3", None, None]
    assert (peer.count(310), peer.count(320)) == (1, 1)


def test_a_copied_row_leaves_out_what_rocketmq_itself_wrote(send):
    properties = [[("UNIQ_KEY", "old"), ("CLUSTER", "c"), ("KEYS", "old"), ("region", "eu")]]
    row = send(
        {"body": [b"1"], "keys": ["new"], "properties": pa.array(properties, MAP), "queueOffset": [77]}
    )[0]
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


def test_a_row_without_a_topic_is_refused(peer, connect):
    batch = pa.RecordBatch.from_pydict({"body": [b"1"], "topic": pa.array([None], pa.string())})
    with pytest.raises(InvalidMessage, match="a row has no topic"):
        send_all([batch], connect(), peer.sink())


def complaint(columns, peer, **given):
    with pytest.raises(ConfigError) as error:
        check(columns, peer.sink(**given))
    return str(error.value)


def test_columns_that_cannot_be_sent_are_refused_before_anything_is(peer):
    body = ("body", "binary")
    assert "a column body" in complaint([("keys", "string")], peer, topic="T")
    assert 'option("topic", ...)' in complaint([body], peer)
    assert "give both or neither" in complaint([body, ("queueId", "int")], peer, topic="T")
    assert "column body is there twice" in complaint([body, ("value", "binary")], peer, topic="T")
    assert "column tags is int; cast it to string" in complaint([body, ("tags", "int")], peer, topic="T")
    assert "did you mean shardingKey?" in complaint([body, ("shardKey", "string")], peer, topic="T")
    assert "there are body, topic" in complaint([body, ("qqq", "string")], peer, topic="T")


@pytest.mark.parametrize("table", [COLUMNS, KAFKA_COLUMNS])
def test_the_sources_own_tables_can_be_sent(peer, table):
    check(table.items(), peer.sink(topic="T"))


@pytest.mark.parametrize(("kind", "batch_id"), [(BatchWriter, ()), (StreamWriter, (7,))])
def test_writers_report_what_was_stored_whatever_is_missing(peer, connect, kind, batch_id):
    peer.store("T", 0, [])
    writer = kind(peer.sink(topic="T"))
    report = writer.write(iter([pa.RecordBatch.from_pydict({"body": [b"1", b"2"]})]))
    assert report == Stored(2)
    writer.commit([report, report], *batch_id)
    writer.abort([report, None], *batch_id)
    assert count_stored([report, None, report]) == 4
