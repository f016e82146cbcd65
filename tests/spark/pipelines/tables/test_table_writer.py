"""sparrowmq.spark.pipelines.tables.table_writer: a batch is in a table once."""

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.tables.begun_table import Settled
from sparrowmq.spark.pipelines.tables.table_writer import TableWriter

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def writer(root):
    return TableWriter(root, Settled("orders", "parquet", "raw", None, writer="w"), Report())


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
