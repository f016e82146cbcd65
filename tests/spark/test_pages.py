"""docs/use/spark.md names every option and every column."""

from dataclasses import fields
from pathlib import Path

import pytest

from sparrowmq.spark.options import SinkOptions, SourceOptions
from sparrowmq.spark.schema import COLUMNS, KAFKA_COLUMNS

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "spark.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name",
    sorted({entry.metadata["names"][0] for kind in (SourceOptions, SinkOptions) for entry in fields(kind)}),
)
def test_each_option_is_on_the_page(name):
    assert f"`{name}" in PAGE or f" {name}`" in PAGE


def test_every_column_is_on_the_page():
    assert [name for name in COLUMNS if f"`{name}`" not in PAGE] == []
    assert [name for name in KAFKA_COLUMNS if name not in PAGE] == []
