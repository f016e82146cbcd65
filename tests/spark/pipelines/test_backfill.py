"""sparrowmq.spark.pipelines.backfill: what a topic had before its table, from stored logs."""

from __future__ import annotations

import json
import shutil

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines import backfill, table
from tests.spark.pipelines.lake import tables

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.fixture
def where(topic):
    return {"name_server": topic.options["nameServer"], "spark": topic.spark, "say": lambda _: None}


@pytest.mark.parametrize("kind", ["parquet", "delta", pytest.param("iceberg", marks=pytest.mark.slow)])
def test_a_backup_fills_a_table_up_to_where_it_began(topic, where, folder, tmp_path, kind):
    topic.send(0, 300)
    shutil.copytree(folder / "broker-0", tmp_path / "backup")
    before = {queue: end // 2 for queue, end in topic.ends().items()}
    late = {"startingOffsets": json.dumps({topic.name: {"broker-0": before}})}
    begun = table(topic.name, tmp_path / "t", format=kind, once=True, options=late, **where)
    assert begun.written == 300 - sum(before.values())
    topic.send(300, 20)
    given = {"spark": topic.spark, "say": lambda _: None}
    assert backfill(tmp_path / "t", tmp_path / "backup", **given).written == sum(before.values())
    assert backfill(tmp_path / "t", tmp_path / "backup", **given).written == 0
    assert table(topic.name, tmp_path / "t", format=kind, once=True, options=late, **where).written == 20
    rows = tables.rows_of(kind, tmp_path / "t", tmp_path / "t.state")
    assert sorted(int(row["body"]) for row in rows) == list(range(320))


def test_what_does_not_fit_is_told(topic, where, folder, tmp_path):
    topic.send(0, 10)
    with pytest.raises(ConfigError, match="was not begun by the pipeline `table`"):
        backfill(tmp_path / "t", folder / "broker-0", spark=topic.spark)
    table(topic.name, tmp_path / "t", once=True, **where)
    with pytest.raises(ConfigError, match="has no queues at broker other; there are broker-0"):
        backfill(tmp_path / "t", folder / "broker-0", broker="other", spark=topic.spark)
