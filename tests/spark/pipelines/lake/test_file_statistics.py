"""sparrowmq.spark.pipelines.lake.delta: readers may skip a file by its statistics, and lose no row."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from deltalake import DeltaTable, QueryBuilder

from sparrowmq.spark.pipelines.lake.delta import delta_statistics, statistics_columns
from tests.spark.pipelines.lake.tables import Table


def statistics(tmp_path, columns: dict[str, Any], rows_in_group: int = 2) -> dict[str, Any]:
    path = tmp_path / "file.parquet"
    rows = pa.table(columns)
    pq.write_table(rows, path, row_group_size=rows_in_group)
    said = delta_statistics(pq.read_metadata(path), statistics_columns(rows.schema))
    found: dict[str, Any] = json.loads(said, parse_float=Decimal)
    return found


def test_bounds_and_nulls_of_each_column(tmp_path):
    zone = pa.timestamp("us", "UTC")
    found = statistics(
        tmp_path,
        {
            "whole": [5, None, -3, 9],
            "share": [0.5, 1.5, None, None],
            "name": ["b", "a", None, "c"],
            "price": [Decimal("12345678901234567890.12"), Decimal("1.10"), None, None],
            "day": [date(2026, 1, 31), date(2026, 1, 1), None, None],
            "at": pa.array([datetime(2026, 1, 31, 1, 2, 3, 4567, UTC)] * 4, zone),
            "local": [datetime(2026, 1, 31, 1, 2, 3, 4567)] * 4,
            "none": pa.array([None] * 4, pa.int64()),
        },
    )
    assert found == {
        "numRecords": 4,
        "minValues": {
            "whole": -3,
            "share": Decimal("0.5"),
            "name": "a",
            "price": Decimal("1.10"),
            "day": "2026-01-01",
            "at": "2026-01-31T01:02:03.004Z",
            "local": "2026-01-31T01:02:03.004",
        },
        "maxValues": {
            "whole": 9,
            "share": Decimal("1.5"),
            "name": "c",
            "price": Decimal("12345678901234567890.12"),
            "day": "2026-01-31",
            "at": "2026-01-31T01:02:03.005Z",
            "local": "2026-01-31T01:02:03.005",
        },
        "nullCount": {
            "whole": 1,
            "share": 2,
            "name": 1,
            "price": 2,
            "day": 2,
            "at": 0,
            "local": 0,
            "none": 4,
        },
    }


def test_a_long_text_is_cut_to_bounds_that_hold(tmp_path):
    found = statistics(tmp_path, {"text": ["a" * 40, "é" * 40]})
    assert found["minValues"]["text"] == "a" * 32
    assert "é" * 40 < found["maxValues"]["text"] == "é" * 32 + "\U0010ffff"
    assert statistics(tmp_path, {"text": ["\U0010ffff" * 40]}) == {"numRecords": 1}


@pytest.mark.parametrize("value", [float("inf"), float("nan"), datetime.max, datetime.max.replace(tzinfo=UTC)], ids=str)
def test_a_file_with_a_value_that_has_no_bound_in_json_has_no_statistics_at_all(tmp_path, value):
    assert statistics(tmp_path, {"number": [1], "share": [value]}) == {"numRecords": 1}


def test_only_values_with_an_order_have_statistics(tmp_path):
    found = statistics(tmp_path, {"bytes": [b"a"], "yes": [True], "list": [[1, 2]], "a b": [1]})
    assert (found["minValues"], found["maxValues"], found["nullCount"]) == (
        {"yes": True},
        {"yes": True},
        {"yes": 0},
    )


def test_fields_of_structs_are_nested_and_a_point_in_a_name_is_no_field(tmp_path):
    found = statistics(
        tmp_path,
        {"list": [[{"x": 1, "y": 2}]], "_mq": [{"topic": "t", "at": {"queue": 4}}], "_mq.topic": [7]},
    )
    assert found["minValues"] == {"_mq": {"topic": "t", "at": {"queue": 4}}}


def test_only_the_first_columns_have_statistics(tmp_path):
    assert len(statistics(tmp_path, {f"c{number}": [number] for number in range(100)})["minValues"]) == 32


@pytest.mark.slow
def test_no_filter_loses_a_row(tmp_path):
    """Files of random rows; each filter finds in the table what it finds in the rows."""
    chance = random.Random(7)
    table, texts = (
        Table(tmp_path, "delta"),
        ["", "a" * 31, "a" * 32, "a" * 33, "é" * 40, "\U0010ffff" * 33, "b"],
    )
    begin = datetime(2026, 1, 31, tzinfo=UTC)
    for batch in range(20):
        at = begin + timedelta(microseconds=chance.randrange(10_000))
        table.add(
            batch,
            chance.randrange(100),
            text=chance.choice(texts),
            at=at,
            part={"text": chance.choice(texts)},
            share=chance.choice([0.5, float("inf"), None]),
            yes=chance.choice([True, False, None]),
        )
    table.add(20, 200, late=1)
    table.add(21, 201, at=begin, yes=True, late=None)
    rows, delta = table.rows(), DeltaTable(str(table.place.path))
    found, query = delta.to_pyarrow_dataset(), QueryBuilder().register("found", delta)
    for column in ("number", "text", "at", "share", "yes", "late"):
        assert found.to_table(filter=pc.field(column).is_null()).num_rows == sum(row[column] is None for row in rows)
        for value in {row[column] for row in rows} - {None}:
            wanted = sum(row[column] == value for row in rows)
            assert found.to_table(filter=pc.field(column) == value).num_rows == wanted
            more = sum(row[column] is not None and row[column] >= value for row in rows)
            assert found.to_table(filter=pc.field(column) >= value).num_rows == more
            if column in ("number", "text"):
                said = f"select number from found where {column} = '{value}'"
                assert pa.table(query.execute(said).read_all()).num_rows == wanted
    actions = pa.table(DeltaTable(str(table.place.path)).get_add_actions(flatten=True)).to_pylist()
    assert {each["min.number"] for each in actions} > {200, 201}
