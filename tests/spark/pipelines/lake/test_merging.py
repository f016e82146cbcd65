"""sparrowmq.spark.pipelines.lake.compaction: small files become larger ones."""

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from sparrowmq.spark.pipelines.lake.compaction import group_small_files, merge_files


def test_rows_of_all_files_are_there_in_order_and_absent_columns_are_null(tmp_path):
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "1")
    pq.write_table(pa.table({"a": [3], "b": ["x"]}), tmp_path / "2")
    merge_files([tmp_path / "1", tmp_path / "2"], tmp_path / "new" / "3")
    assert pq.read_table(tmp_path / "new" / "3").to_pylist() == [
        {"a": 1, "b": None},
        {"a": 2, "b": None},
        {"a": 3, "b": "x"},
    ]


def test_only_small_files_are_put_together_and_not_too_many(tmp_path):
    files = []
    for name, size in (("a", 5), ("b", 5), ("c", 6), ("d", 4), ("e", 5), ("f", 5)):
        (tmp_path / name).write_bytes(bytes(size))
        files.append(tmp_path / name)
    assert [[file.name for file in group] for group in group_small_files(files, 21)] == [["a", "b", "d", "e"]]
    assert [[file.name for file in group] for group in group_small_files(files, 20)] == []
    assert [len(group) for group in group_small_files(files)] == [6]
