"""sparrowmq.spark.pipelines.tables.table_writer: a batch is in a table once."""

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.running.own_session import own_session
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.tables.begun_table import Settled
from sparrowmq.spark.pipelines.tables.table_writer import TableWriter
from tests.spark.pipelines.lake.tables import KINDS, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def writer(root, mode="raw", kind="parquet", fields=()):
    return TableWriter(root, Settled("orders", kind, mode, None, dict(fields), writer="w"), Report())


def test_a_repeated_batch_adds_no_rows(topic, tmp_path):
    topic.send(0, 3)
    messages = topic.read()
    first = writer(tmp_path / "orders")
    assert first.last_batch == -1
    assert first.write(messages, 0) == "3 rows, 0 errors"
    again = writer(tmp_path / "orders")
    assert again.write(messages, 0) == "0 rows, 0 errors"
    assert (first.report.written, again.report.written, again.last_batch) == (3, 0, 0)


def test_a_table_with_rows_needs_its_checkpoint(topic, tmp_path):
    topic.send(0, 1)
    writer(tmp_path / "orders").write(topic.read(), 0)
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(ConfigError, match="is gone, so it is not known which messages"):
        writer(tmp_path / "orders").check(checkpoint)
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text("{}")
    writer(tmp_path / "orders").check(checkpoint)


@pytest.mark.guards("json_kinds.columns: name.lower() not in taken -> name not in taken")
@pytest.mark.parametrize("kind", KINDS)
def test_names_that_clash_stop_no_table(topic, tmp_path, kind):
    topic.spark = own_session(topic.spark)  # its timestamps are those that Iceberg reads
    topic.send_bodies([b'{"order":1}', b'{"ORDER":2}', b'{"_day":3}', b'{"order":4}', b'{"":5}'])
    first = writer(tmp_path / "orders", "json", kind)
    assert first.write(topic.read(), 0) == "2 rows, 3 errors"
    assert first.settled.fields == {"order": "bigint"}
    topic.send_bodies(
        [b'{"Order":6,"a b":1,"a.b`c,;{}()":2,"=\\n\\t":3}', b'{"a b":1,"a.b`c,;{}()":2,"=\\n\\t":3}']
    )
    assert (
        writer(tmp_path / "orders", "json", kind, first.settled.fields).write(topic.read(), 1)
        == "3 rows, 4 errors"
    )
    found = rows_of(kind, tmp_path / "orders", tmp_path / "orders.state")
    assert sorted(row["order"] for row in found if row["order"] is not None) == [1, 1, 4, 4]
    assert [row["a.b`c,;{}()"] for row in found if row["a b"] == 1] == [2]


def test_a_table_that_a_clash_had_stopped_goes_on(topic, tmp_path):
    topic.send_bodies([b'{"order":1}'])
    first = writer(tmp_path / "orders", "json")
    first.write(topic.read(), 0)
    topic.send_bodies([b'{"ORDER":2}'])
    again = writer(
        tmp_path / "orders", "json", fields={"ORDER": "bigint", "order": "bigint", "_day": "bigint"}
    )
    assert again.write(topic.read(), 1) == "1 rows, 1 errors"
    assert again.settled.fields == {"order": "bigint"}
