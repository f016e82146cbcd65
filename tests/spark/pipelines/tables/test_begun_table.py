"""sparrowmq.spark.pipelines.tables.table_settings: the first start of a table decides for the later ones."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.tables import table_settings
from sparrowmq.spark.pipelines.tables.progress import Record
from sparrowmq.spark.pipelines.tables.table_settings import (
    TableSettings,
    create_or_load_settings,
    extend_fields,
    load_checked_settings,
    load_settings,
    read_rows,
    save_settings,
    state_folder,
)

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
    assert load_settings(tmp_path / "orders") is None


def test_a_table_that_an_earlier_release_began_is_read(tmp_path):
    state = state_folder(tmp_path / "orders")
    state.mkdir()
    (state / "table.json").write_text(json.dumps(KEPT))
    settled = load_settings(tmp_path / "orders")
    assert settled == TableSettings(**KEPT)
    assert "body" in settled.shape().columns
    assert settled.first_offsets() == {MessageQueue("orders", "broker-a", 0): 7}
    assert TableSettings("orders", "parquet", "whole", None).first_offsets() == {}


def test_settings_with_a_changed_digit_are_noticed(tmp_path):
    """With another begin, `backfill` would leave messages out, or add them twice."""
    root = tmp_path / "orders"
    save_settings(state_folder(root), TableSettings(**KEPT))
    file = state_folder(root) / "table.json"
    file.write_text(file.read_text().replace('"0": 7', '"0": 9'))
    with pytest.raises(BadStore, match=r"table.json, the settings of the table, is damaged; restore it"):
        load_settings(root)


def test_a_batch_that_a_killed_run_has_left_half_done_is_not_read(tmp_path, monkeypatch):
    """`publish` would count the rows whose files are not in their places yet as sent, and never send them."""
    root = tmp_path / "orders"
    save_settings(state_folder(root), TableSettings("orders", "parquet", "raw", None))
    commits = root / ".sparrowmq"
    commits.mkdir(parents=True)
    moves = {str(tmp_path / "staged"): str(root / "_day=2026-01-31" / "w-000000000-00000.parquet")}
    (commits / "000000000.json").write_text(json.dumps({"moves": moves, "record": ""}))
    monkeypatch.setattr(table_settings, "_COMMIT_WAIT_S", 0.2)
    with pytest.raises(ConfigError, match=r"if it was killed, start the pipeline that fills the table again"):
        read_rows(None, root)  # type: ignore[arg-type]  # Spark is not asked


def test_of_two_first_starts_at_the_same_time_one_is_refused(tmp_path):
    """The commits have the writer, so a later start with the settings of the other one would not know them."""
    one, other = (TableSettings("orders", "delta", "raw", None) for _ in range(2))
    save_settings(tmp_path, one)
    with pytest.raises(ConfigError, match=r"another run has begun the table .* at the same time; start this one"):
        save_settings(tmp_path, other)
    save_settings(tmp_path, one)


@pytest.mark.parametrize("left", [0, 30])
def test_damaged_settings_are_those_of_the_table_or_are_told(tmp_path, left):
    root = tmp_path / "orders"
    save_settings(state_folder(root), TableSettings(**KEPT))
    file = state_folder(root) / "table.json"
    file.write_text(file.read_text()[:left])
    with pytest.raises(BadStore, match=r"table.json, the settings of the table, is damaged; restore it"):
        load_settings(root)
    commits = root / ".sparrowmq"
    commits.mkdir(parents=True)
    record = Record(0, None, None, False, -1, TableSettings(**KEPT).to_json()).text()
    (commits / "000000000.json").write_text(json.dumps({"moves": {}, "record": record}))
    assert load_settings(root) == TableSettings(**KEPT)


def test_a_table_is_not_begun_again_with_another_state(tmp_path):
    rows = tmp_path / "or ders" / "_day=2026-01-31"
    rows.mkdir(parents=True)
    (rows / "0.parquet").touch()
    for root in (rows.parent, Address(rows.parent.as_uri(), tmp_path / "other")):
        with pytest.raises(ConfigError, match=r"has rows, but .* is gone"):
            create_or_load_settings(root, TableSettings("orders", "parquet", "raw", None))


def test_the_second_start_gets_the_settings_of_the_first(tmp_path):
    first = create_or_load_settings(tmp_path / "orders", TableSettings("orders", "parquet", "raw", None))
    second = create_or_load_settings(tmp_path / "orders", TableSettings("orders", "parquet", "raw", None))
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
    create_or_load_settings(tmp_path / "orders", TableSettings("orders", "parquet", "raw", None))
    with pytest.raises(ConfigError, match=complaint):
        create_or_load_settings(tmp_path / "orders", TableSettings(*other))


def with_schema(schema, fields):
    return TableSettings("orders", "parquet", "schema", schema, fields)


def test_a_later_start_may_extend_the_schema(tmp_path):
    first = create_or_load_settings(tmp_path / "orders", with_schema("id int", {"id": "int"}))
    wider = with_schema("id bigint, more struct<a: int>", {"id": "bigint", "more": "struct<a:int>"})
    found = load_checked_settings(tmp_path / "orders", wider)
    assert found is not None
    assert (found.schema, found.fields, found.writer) == (wider.schema, wider.fields, first.writer)
    assert load_settings(tmp_path / "orders") == first  # until the caller keeps it


@pytest.mark.parametrize(
    ("known", "asked", "complaint"),
    [
        ({"id": "int", "a": "string"}, {"id": "int"}, "the schema lacks it; add `a string` to the schema"),
        ({"id": "string"}, {"id": "bigint"}, "the column id as string, which cannot become bigint"),
        ({"id": "bigint"}, {"id": "boolean"}, "which cannot become boolean"),
        ({"id": "boolean"}, {"id": "string"}, "which cannot become string"),
        ({"at": "struct<a:int,b:int>"}, {"at": "struct<a:int>"}, "which cannot become struct<a:int>"),
        ({"of": "array<double>"}, {"of": "array<float>"}, "which cannot become array<float>"),
    ],
)
def test_a_schema_that_would_lose_values_is_refused(known, asked, complaint):
    with pytest.raises(ConfigError, match=complaint):
        extend_fields("the table at T", known, asked)


def test_columns_become_wider_and_more():
    known = {"a": "int", "b": "struct<x:float>", "c": "decimal(5,2)"}
    asked = {"c": "decimal(9,2)", "b": "struct<x:double,y:map<string,int>>", "a": "string", "d": "date"}
    assert extend_fields("the table at T", known, asked) == asked
