"""sparrowmq.spark.pipelines.copying.seen_keys: keys that are kept, put together, and forgotten."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.pipelines.copying.seen_keys import Repeats

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


@pytest.mark.slow
def test_keys_are_put_together_and_forgotten_when_their_time_is_over(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("sparrowmq.spark.pipelines.copying.seen_keys._MERGED_AT", 2)
    rows = spark.createDataFrame([(f"id-{number}",) for number in range(3)], "msgId string").selectExpr(
        "*", "1 as storeTimestamp", "'b' as brokerName", "0 as queueId", "0L as queueOffset"
    )
    repeats = Repeats(tmp_path / "seen", "msgId", 3600)
    for batch in range(4):
        kept = repeats.without(rows, batch).count()
        assert kept == (3 if batch == 0 else 0)
        assert repeats.keep(batch) == 3
    assert {path.name for path in (tmp_path / "seen").iterdir()} == {
        "keys-000000002-merged",
        "keys-000000003",
    }
    assert Repeats(tmp_path / "seen", "msgId", -1).without(rows, 9).count() == 3


def test_a_batch_that_is_repeated_lets_the_same_pass(spark, tmp_path):
    rows = spark.sql("select 'a' msgId, 1 storeTimestamp, 'b' brokerName, 0 queueId, 0L queueOffset")
    repeats = Repeats(tmp_path, "msgId", 60)
    for _attempt in range(2):
        assert repeats.without(rows, 0).count() == 1
        repeats.keep(0)
    assert repeats.without(rows, 1).count() == 0


def test_null_is_no_repeat_of_null(spark, tmp_path):
    rows = spark.sql(
        "select null msgId, 1 storeTimestamp, 'b' brokerName, 0 queueId, id queueOffset from range(3)"
    )
    repeats = Repeats(tmp_path, "msgId", 60)
    for batch in range(2):
        assert repeats.without(rows, batch).count() == 3
        repeats.keep(batch)
