"""sparrowmq.spark.pipelines.tables.batch_files: a task's rows become files behind an address."""

import uuid
from datetime import date, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake import staged_files
from sparrowmq.spark.pipelines.lake.address import Address, Storage
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Layout
from sparrowmq.spark.pipelines.tables.batch_files import RemoteTaskFiles, UploadTarget

FIRST = date(2026, 1, 31)


def rows(*days, count=3):
    numbers = [number for _ in days for number in range(count)]
    named = [FIRST + timedelta(day) for day in days for _ in range(count)]
    return pa.table({"number": numbers, "_day": pa.array(named, pa.date32())})


@pytest.fixture
def storage(s3, tmp_path):
    return Address(f"s3://bucket/{uuid.uuid4().hex}/orders", tmp_path).storage


def written(task, *tables):
    batches = [batch for table in tables for batch in table.to_batches()]
    return [row for found in task(batches) for row in found.to_pylist()]


def content(storage, name):
    return pq.read_table(storage.path(name), filesystem=storage.files, partitioning=None)


@pytest.mark.parametrize("keeps", [False, True])
def test_each_day_has_a_file(storage, keeps):
    found = written(
        RemoteTaskFiles(UploadTarget(storage, "data", "w-7", Layout(BY_DAY, keeps)), rows(0).schema),
        rows(0, 1),
        rows(1),
    )
    assert [(row["partition"], row["rows"]) for row in found] == [
        ("_day=2026-01-31", 3),
        ("_day=2026-02-01", 6),
    ]
    for row in found:
        assert row["name"].startswith(f"{row['partition']}/w-7-")
        file = content(storage, f"data/{row['name']}")
        assert file.num_rows == row["rows"]
        assert file.schema.names == (["number", "_day"] if keeps else ["number"])
    sizes = {storage.relative(each.path): each.size for each in storage.list()}
    assert sizes == {f"data/{row['name']}": row["size"] for row in found}


def test_rows_of_many_batches_are_in_large_groups(storage):
    found = written(
        RemoteTaskFiles(UploadTarget(storage, "", "w-7", Layout(BY_DAY, False)), rows(0).schema), *[rows(0)] * 50
    )
    with pq.ParquetFile(storage.path(found[0]["name"]), filesystem=storage.files) as file:
        assert (file.metadata.num_rows, file.metadata.num_row_groups) == (150, 1)


def test_more_days_than_files_may_be_open_at_a_time(storage, monkeypatch):
    monkeypatch.setattr(staged_files, "MAX_OPEN_FILES", 2)
    monkeypatch.setattr(staged_files, "BUFFER_BYTES", 1)
    found = written(
        RemoteTaskFiles(UploadTarget(storage, "", "w-7", Layout(BY_DAY, False)), rows(0).schema),
        rows(0, 1, 2),
        rows(0, 1, 2),
    )
    assert sum(row["rows"] for row in found) == 18
    assert len(storage.list()) == len({row["name"] for row in found}) == len(found)


def test_two_attempts_use_no_name_twice(storage):
    task = RemoteTaskFiles(UploadTarget(storage, "", "w-7", Layout(BY_DAY, False)), rows(0).schema)
    assert written(task, rows(0)) != written(task, rows(0))
    assert len(storage.list()) == 2


def test_a_task_that_fails_removes_what_it_has_written(storage, monkeypatch):
    class Full(Storage):
        def upload(self, local, name):
            if "2026-02-01" in name:
                raise OSError("AWS Error ACCESS_DENIED during PutObject operation")
            super().upload(local, name)

    task = RemoteTaskFiles(
        UploadTarget(Full(storage.url, storage.settings), "", "w-7", Layout(BY_DAY, False)), rows(0).schema
    )
    with pytest.raises(ConfigError, match="give these keys the rights"):
        written(task, rows(0, 1))
    assert storage.list() == []


def test_no_rows_make_no_file(storage):
    assert written(RemoteTaskFiles(UploadTarget(storage, "", "w-7", Layout(BY_DAY, False)), rows(0).schema)) == []
    assert storage.list() == []
