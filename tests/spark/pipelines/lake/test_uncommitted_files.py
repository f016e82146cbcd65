"""sparrowmq.spark.pipelines.lake.staged_files: files get to their places."""

from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.pipelines.lake.staged_files import Staged, StagedFile, move_into_place


def test_files_are_moved_and_those_of_an_earlier_attempt_go(tmp_path):
    table, made = tmp_path / "table", []
    for number in range(2):
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(b"new")
        made.append(StagedFile(path, f"_day=2026-01-31/w-7-{number}.parquet", "_day=2026-01-31", 5, 3))
    for left in (
        "_day=2026-01-31/w-7-1.parquet",
        "_day=2026-01-31/w-7-2.parquet",
        "_day=2026-01-30/w-6-0.parquet",
    ):
        (table / left).parent.mkdir(parents=True, exist_ok=True)
        (table / left).write_bytes(b"old")
    staged = Staged(made, pa.schema([]))
    move_into_place(staged, table, "w-7", has_leftovers=True)
    assert staged.rows == 10
    assert content(table) == {
        "_day=2026-01-30/w-6-0.parquet": b"old",
        "_day=2026-01-31/w-7-0.parquet": b"new",
        "_day=2026-01-31/w-7-1.parquet": b"new",
    }
    assert not list(tmp_path.glob("*.parquet"))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}
