"""sparrowmq.spark.pipelines.lake.lake: files that are gone, and names that a disk has changed."""

import os

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from sparrowmq.spark.pipelines.lake.lake import missing_files_warning
from tests.spark.pipelines.lake.tables import Table


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_files_that_are_gone_or_cut_are_named_where_a_log_names_them(tmp_path, kind):
    table = Table(tmp_path, kind)
    assert missing_files_warning(table.place.path, table.open()) == ""
    table.add(0, 1, 2, files=2)
    assert missing_files_warning(table.place.path, table.open()) == ""
    one, other = table.open().paths()
    other.unlink()
    said = missing_files_warning(table.place.path, table.open())
    has_log = kind != "parquet"
    assert (f"as {other}, which its log names, is gone; restore it from a backup" in said) == has_log
    os.truncate(one, 7)
    said = missing_files_warning(table.place.path, table.open())
    assert (f"as {one} and 1 more, which its log names, has 7 bytes, and not those" in said) == has_log
    one.unlink()
    assert (
        f"as {one} and 1 more, which its log names" in missing_files_warning(table.place.path, table.open())
    ) == has_log


def test_a_name_of_which_a_byte_has_changed_in_the_log_is_noticed(tmp_path):
    table = Table(tmp_path, "delta")
    table.add(0, 1)
    commit = max((table.place.folder / "_delta_log").glob("*.json"))
    commit.write_text(commit.read_text().replace("writer-0", "writfr-0"))
    said = missing_files_warning(table.place.path, table.open())
    assert "writfr-000000000-00000.parquet, which its log names, is gone" in said
