"""sparrowmq.spark.sink.row_messages: by columns as by rows, and each where it belongs."""

import pytest

pytest.importorskip("pyspark")

from itertools import chain, count

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparrowmq.client.sending.queue_choice import by_key
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.sink.row_identity import Writing
from sparrowmq.spark.sink.writer import send_all
from tests.spark.columns.decoding import decode
from tests.spark.peer import BROKER

TEXTS = st.none() | st.text(st.sampled_from("aé \x01\x02"), max_size=3)
KINDS = {
    "body": (pa.binary(), st.binary(max_size=4)),
    "tags": (pa.string(), TEXTS),
    "keys": (pa.list_(pa.string()), st.none() | st.lists(TEXTS, max_size=2)),
    "properties": (
        pa.map_(pa.string(), pa.string()),
        st.none()
        | st.dictionaries(st.sampled_from(["a", "é", "TAGS", "KEYS", "UNIQ_KEY", ""]), TEXTS).map(
            lambda d: list(d.items())
        ),
    ),
    "shardingKey": (pa.string(), TEXTS),
    "partition": (pa.int32(), st.none() | st.integers(0, 3)),
    "flag": (pa.int32(), st.none() | st.integers(-1, 1)),
    "uniqueKey": (pa.string(), st.none() | st.text("AB", max_size=2)),
}
TOPICS = (f"T{number}" for number in count())


@st.composite
def tables(draw):
    names = ["body", *draw(st.sets(st.sampled_from(sorted(KINDS.keys() - {"body"}))))]
    rows = draw(st.integers(1, 5))
    return {
        name: pa.array(draw(st.lists(KINDS[name][1], min_size=rows, max_size=rows)), KINDS[name][0]) for name in names
    }


@pytest.fixture
def sent(peer, connect):
    """What is stored of a table sent to a new topic: of each queue the messages, of rows for any queue all together."""

    def sent(columns):
        topic = next(TOPICS)
        for queue_id in range(4):
            peer.store(topic, queue_id, [])
        options = {"topic": topic, "deliveryGuarantee": "idempotent", "onError": "skip", "sendBatchRows": "2"}
        batch = pa.RecordBatch.from_pydict(columns)
        report = send_all(iter([batch]), connect(), peer.sink(**options), Writing("query"))
        found: dict[int | None, list] = {}
        for queue_id, messages in peer.queues[topic].items():
            for row in decode(b"".join(messages), ["body", "flag", "properties"]).to_pylist():
                said = dict(row["properties"])
                is_loose = "__SHARDINGKEY" not in said and "partition" not in columns
                found.setdefault(None if is_loose else queue_id, []).append(
                    (row["body"], row["flag"], row["properties"])
                )
        found.get(None, []).sort(key=repr)
        return report, found

    return sent


@given(columns=tables())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_columns_become_the_messages_that_rows_become_one_by_one(sent, columns):
    closer = {name: pa.concat_arrays([values, pa.nulls(1, values.type)]) for name, values in columns.items()}
    by_columns, found = sent(columns)
    by_rows, expected = sent(closer)  # the last row has no body, so all are looked at
    assert (by_rows.count, by_rows.skipped) == (by_columns.count, by_columns.skipped + 1)
    if "partition" not in columns:
        assert found == expected
    else:  # rows without one go anywhere
        assert everything(found) == everything(expected)


def test_a_flag_that_no_message_holds_is_a_row_that_is_rejected(sent, caplog):
    flags = [0, 1 << 31, (1 << 31) - 1, -(1 << 31), -(1 << 31) - 1]
    columns = {"body": pa.array([b"1"] * len(flags)), "flag": pa.array(flags, pa.int64())}
    report, _ = sent(columns)
    assert (report.count, report.skipped) == (3, 2)
    assert "a row has the flag 2147483648" in caplog.text


def test_a_delay_level_below_zero_is_a_row_that_is_rejected(sent, caplog):
    levels = [0, -1, None, 3, 1 << 31]
    columns = {"body": pa.array([b"1"] * len(levels)), "delayLevel": pa.array(levels, pa.int64())}
    report, _ = sent(columns)
    assert (report.count, report.skipped) == (3, 2)
    assert "a row has the delayLevel -1; levels begin with 1, and 0 or null is no delay" in caplog.text


@pytest.mark.parametrize(
    "columns",
    [
        {"properties": pa.array([[("a", "1"), ("b", "")], [("b", None)], None], KINDS["properties"][0])},
        {
            "headers": pa.array(
                [[{"key": "b", "value": b""}], [{"key": "b", "value": None}], None],
                pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
            )
        },
    ],
    ids=" and ".join,
)
def test_empty_property_or_header_is_a_row_that_is_rejected(sent, caplog, columns):
    report, _ = sent({"body": pa.array([b"1", b"2", b"3"])} | columns)
    assert (report.count, report.skipped) == (2, 1)
    assert "property 'b' is empty, and consumers drop empty properties; make it null" in caplog.text


def everything(found):
    return sorted(chain.from_iterable(found.values()), key=repr)


def test_rows_of_several_topics_and_queues_go_to_each_in_their_order(peer, connect):
    for topic in ("T", "U"):
        for queue_id in range(4):
            peer.store(topic, queue_id, [])
    rows = 1000
    columns = {
        "body": [b"%d" % number for number in range(rows)],
        "topic": ["TU"[number % 2] for number in range(rows)],
        "shardingKey": [f"k{number % 7}" for number in range(rows)],
    }
    options = peer.sink(sendBatchRows="50")
    send_all(iter([pa.RecordBatch.from_pydict(columns)]), connect(), options, Writing("query"))
    for topic in ("T", "U"):
        queues = [MessageQueue(topic, BROKER, queue_id) for queue_id in range(4)]
        for queue in queues:
            wanted = [
                body
                for body, name, key in zip(*columns.values(), strict=True)
                if name == topic and by_key(key, queues) == queue
            ]
            stored = decode(b"".join(peer.queues[topic][queue.queue_id]), ["body"])["body"].to_pylist()
            assert stored == wanted


def test_large_tables_are_sent_in_slices_with_ids_of_their_own(peer, connect):
    peer.store("T", 0, [])
    bodies = pa.array([b"%d" % number for number in range(20_000)])
    send_all(
        iter([pa.RecordBatch.from_pydict({"body": bodies})]),
        connect(),
        peer.sink(topic="T"),
        Writing("query"),
    )
    rows = decode(b"".join(peer.queues["T"][0]), ["body", "msgId"])
    assert rows["body"].equals(bodies)
    assert len(set(rows["msgId"].to_pylist())) == 20_000
