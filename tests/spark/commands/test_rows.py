"""sparrowmq.spark.commands.pipeline_commands: rows as people and programs read them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row

from sparrowmq.spark.commands.pipeline_commands import FORMS, as_table

ROWS = [
    Row(tag="paid", n=1, body=b"\xc3\xa9", at=datetime(2026, 1, 31, tzinfo=UTC), more={"a": [1, None]}),
    Row(tag=None, n=22, body=b"x" * 100, at=None, more=None),
]


def test_a_table_has_columns_that_are_as_wide_as_needed(capsys):
    FORMS["table"](["tag", "n", "body", "at", "more"], iter(ROWS))
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["tag", "n", "body", "at", "more"]
    assert first.split() == ["paid", "1", "é", "2026-01-31T00:00:00+00:00", '{"a":', "[1,", "null]}"]
    assert second.startswith("-     22  xxx") and "xxx...  -" in second


def test_json_has_an_object_a_line(capsys):
    FORMS["json"](["tag"], iter(ROWS))
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "tag": "paid",
        "n": 1,
        "body": "é",
        "at": "2026-01-31T00:00:00+00:00",
        "more": {"a": [1, None]},
    }
    assert second["tag"] is None


def test_csv_has_nothing_for_null(capsys):
    FORMS["csv"](["tag", "n"], iter([Row(tag=None, n=1), Row(tag='a"b', n=2)]))
    assert capsys.readouterr().out == 'tag,n\n,1\n"a""b",2\n'


def test_cells_that_are_all_there_and_none(capsys):
    as_table(["a"], iter([]))
    assert capsys.readouterr().out == "a\n"
