"""sparrowmq.spark.pipelines.lake.staged_files: a file for each day, in row groups of a limited size."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrowmq.spark.pipelines.lake import staged_files
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Layout
from sparrowmq.spark.pipelines.lake.staged_files import PartitionFiles

BY_FOLDERS = Layout(BY_DAY, False)
SCHEMA = pa.schema([("_day", pa.date32()), ("n", pa.int64())])


def rows(*pairs):
    return pa.RecordBatch.from_pylist([{"_day": date(2026, 1, day), "n": n} for day, n in pairs], schema=SCHEMA)


@pytest.mark.parametrize("keeps", [True, False])
def test_each_row_gets_into_the_file_of_its_day(tmp_path, keeps):
    with PartitionFiles(tmp_path / "new", SCHEMA, Layout(BY_DAY, keeps)) as files:
        files.write(rows((1, 1), (2, 2), (1, 3)))
        files.write(rows((2, 4)))
    found = {file.partition: pq.read_table(file.path).to_pydict() for file in files.files}
    assert {day: table["n"] for day, table in found.items()} == {
        "_day=2026-01-01": [1, 3],
        "_day=2026-01-02": [2, 4],
    }
    assert all(("_day" in table) == keeps for table in found.values())
    assert [(file.partition, file.rows) for file in files.files] == [
        ("_day=2026-01-01", 2),
        ("_day=2026-01-02", 2),
    ]


def test_many_small_batches_become_few_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(staged_files, "GROUP_ROWS", 10)
    with PartitionFiles(tmp_path, SCHEMA, BY_FOLDERS) as files:
        for at in range(25):
            files.write(rows((1, at)))
    [file] = files.files
    found = pq.ParquetFile(file.path)
    assert [found.metadata.row_group(at).num_rows for at in range(found.num_row_groups)] == [10, 10, 5]
    assert found.read().column("n").to_pylist() == list(range(25))


def test_large_rows_are_written_before_there_are_many(tmp_path, monkeypatch):
    monkeypatch.setattr(staged_files, "BUFFER_BYTES", 100)
    with PartitionFiles(tmp_path, SCHEMA, BY_FOLDERS) as files:
        for at in range(30):
            files.write(rows((1, at)))
    assert pq.ParquetFile(files.files[0].path).num_row_groups > 1


def test_after_an_error_no_file_counts(tmp_path):
    files = PartitionFiles(tmp_path, SCHEMA, BY_FOLDERS)
    with pytest.raises(ZeroDivisionError), files:
        files.write(rows((1, 1)))
        raise ZeroDivisionError
    assert files.files == []


def test_nothing_written_leaves_no_folder(tmp_path: Path):
    with PartitionFiles(tmp_path / "new", SCHEMA, BY_FOLDERS) as files:
        files.write(rows())
    assert files.files == [] and not (tmp_path / "new").exists()
