"""sparrowmq.spark.pipelines.tables.begun_table: the first start of a table decides for the later ones."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.tables.begun_table import Settled, begun, settle, state_of

# As earlier releases wrote it.
KEPT: dict[str, Any] = {
    "topic": "orders",
    "format": "parquet",
    "mode": "json",
    "schema": None,
    "fields": {"id": "bigint"},
    "writer": "0123456789abcdef",
    "begin": {"orders": {"broker-a": {"0": 7}}},
}


def test_a_folder_without_a_state_has_no_table(tmp_path):
    assert begun(tmp_path / "orders") is None


def test_a_table_that_an_earlier_release_began_is_read(tmp_path):
    state = state_of(tmp_path / "orders")
    state.mkdir()
    (state / "table.json").write_text(json.dumps(KEPT))
    settled = begun(tmp_path / "orders")
    assert settled == Settled(**KEPT)
    assert "body" in settled.shape().columns
    assert settled.begins() == {MessageQueue("orders", "broker-a", 0): 7}
    assert Settled("orders", "parquet", "whole", None).begins() == {}


def test_the_second_start_gets_the_settings_of_the_first(tmp_path):
    first = settle(tmp_path / "orders", Settled("orders", "parquet", "raw", None))
    second = settle(tmp_path / "orders", Settled("orders", "parquet", "raw", None))
    assert second == first


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (("payments", "parquet", "raw", None), "topic 'orders', not 'payments'"),
        (("orders", "delta", "raw", None), "format 'parquet', not 'delta'"),
        (("orders", "parquet", "json", None), "mode 'raw', not 'json'"),
    ],
)
def test_other_settings_are_refused(tmp_path, other, complaint):
    settle(tmp_path / "orders", Settled("orders", "parquet", "raw", None))
    with pytest.raises(ConfigError, match=complaint):
        settle(tmp_path / "orders", Settled(*other))
