"""sparrowmq.spark.pipelines.lake.iceberg_metadata: the cost of a commit does not grow with the table."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake import compaction, iceberg_metadata
from sparrowmq.spark.pipelines.lake.iceberg import Iceberg
from sparrowmq.spark.pipelines.lake.iceberg_metadata import SETTINGS, IcebergPartitions
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY
from sparrowmq.spark.pipelines.lake.spark_reader import read_table
from tests.spark.pipelines.lake.tables import Table, catalog_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MORE = [
    120,
    pytest.param(100_000, marks=[pytest.mark.nightly, pytest.mark.timeout(6 * 3600)]),
]


@pytest.fixture(autouse=True)
def upkeep_is_soon(monkeypatch, request):
    """Merge 20 small files, not 100, and remove others as often: a fifth of the commits shows the same."""
    if request.node.get_closest_marker("nightly"):
        return
    monkeypatch.setattr(iceberg_metadata, "_COMMITS_PER_UPKEEP", 20)
    for module in (iceberg_metadata, compaction):
        monkeypatch.setattr(module, "MERGE_AT_TINY_FILES", 20)


def grown(table: Table, commits: int, begin: int = 0) -> list[float]:
    """Add batches of one row; returns the seconds of CPU that each commit took."""
    lake, took = table.open(), []
    for batch in range(begin, begin + commits):
        staged = table.staged(batch, batch)
        before = time.process_time()
        lake.commit(batch, staged)
        took.append(time.process_time() - before)
    return took


def loaded(table: Table) -> Any:
    catalog = catalog_in(table.place.state)
    return catalog.load_table(("sparrowmq", "table"))


def metadata_bytes(table: Table) -> int:
    needed = iceberg_metadata._referenced_metadata(loaded(table))
    return sum(Path(path.removeprefix("file://")).stat().st_size for path in needed)


@pytest.mark.slow
@pytest.mark.parametrize("commits", _MORE)
def test_a_late_commit_costs_what_an_early_one_did(tmp_path, commits):
    table = Table(tmp_path, "iceberg")
    took = grown(table, commits)
    assert sum(took[-60:]) / 60 < 4 * median(took[10:50])
    assert metadata_bytes(table) < 1 << 20
    found = loaded(table)
    assert len(found.snapshots()) == 10
    assert len(found.current_snapshot().manifests(found.io)) < 60
    assert len(table.open().paths()) < 2 * compaction.MERGE_AT_TINY_FILES
    assert len(list((table.place.folder / "metadata").iterdir())) < 2 * iceberg_metadata._MAX_UNUSED_FILES
    assert table.numbers() == list(range(commits))
    assert table.open().last_batch() == commits - 1


@pytest.mark.slow
def test_files_stay_for_readers_that_began_before_and_go_later(tmp_path, monkeypatch):
    table = Table(tmp_path, "iceberg")
    grown(table, 5)
    early = loaded(table)
    grown(table, 30, 5)
    assert early.metadata_location != loaded(table).metadata_location
    assert early.scan().to_arrow()["number"].to_pylist() == [4, 3, 2, 1, 0]
    there = files(table)
    monkeypatch.setattr(iceberg_metadata, "UNUSED_DELAY_S", 0.0)
    grown(table, 45, 35)
    assert not there & files(table)
    assert len(files(table)) < 100
    assert table.numbers() == list(range(80))


def files(table: Table) -> set[str]:
    """All data and all manifests that are there."""
    return {str(path) for path in table.place.folder.rglob("*") if path.suffix in (".parquet", ".avro")}


def test_a_file_that_the_table_has_again_after_a_roll_back_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(iceberg_metadata, "UNUSED_DELAY_S", 0.0)
    table = Table(tmp_path, "iceberg")
    grown(table, 2)
    there = [f"file://{path}" for path in table.open().paths()]
    upkeep = iceberg_metadata.Upkeep(table.place.state, IcebergPartitions(BY_DAY))
    for _ in range(2):
        upkeep.remove_unused(loaded(table), there)
    assert table.numbers() == [0, 1]


@pytest.mark.slow
def test_no_more_than_a_thousand_unused_files_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(iceberg_metadata, "_MAX_UNUSED_FILES", 20)
    table = Table(tmp_path, "iceberg")
    grown(table, 62)
    assert len(files(table)) < 20 + 2 * 20 + 20
    assert table.numbers() == list(range(62))


def test_a_table_of_an_earlier_release_gets_the_settings_and_loses_its_snapshots(tmp_path):
    table = Table(tmp_path, "iceberg")
    lake = table.open()
    assert isinstance(lake, Iceberg)
    lake.commit(0, table.staged(0, 0))
    found = loaded(table)
    with found.transaction() as change:
        change.remove_properties(*SETTINGS)
        change.set_properties({"history.expire.min-snapshots-to-keep": "3"})
    grown(table, 6, 1)
    found = loaded(table)
    assert {name: found.properties[name] for name in SETTINGS} == SETTINGS | {
        "history.expire.min-snapshots-to-keep": "3"  # the owner's own choice stays
    }
    assert len(found.snapshots()) == 3
    assert table.numbers() == list(range(7))


@pytest.mark.slow
def test_a_tag_keeps_its_snapshot(tmp_path):
    table = Table(tmp_path, "iceberg")
    grown(table, 2)
    found = loaded(table)
    tagged = found.current_snapshot().snapshot_id
    found.manage_snapshots().create_tag(tagged, "kept").commit()
    grown(table, 30, 2)
    found = loaded(table)
    assert len(found.snapshots()) == 11
    assert found.scan(snapshot_id=tagged).to_arrow().num_rows == 2


@pytest.mark.slow
def test_large_files_are_not_merged(tmp_path, monkeypatch):
    for module in (iceberg_metadata, compaction):
        monkeypatch.setattr(module, "TINY_BYTES", 10)
    table = Table(tmp_path, "iceberg")
    grown(table, 30)
    assert len(table.open().paths()) == 30


class DeletesWriter(ManifestWriterV2):
    """A manifest of delete files, which pyiceberg reads and does not write."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class DeletesAppend(_FastAppendFiles):
    def new_manifest_writer(self, spec: Any) -> DeletesWriter:
        return DeletesWriter(spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression)


def take_out_first_row(table: Table) -> None:
    """Delete the first row of the first file as merge-on-read engines do, by a file with its position."""
    iceberg = loaded(table)
    first = min((task.file for task in iceberg.scan().plan_files()), key=lambda file: file.file_path)
    path = table.place.folder / "data" / "gone-deletes.parquet"
    ids = [2147483546, 2147483545]
    fields = [
        pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})
        for name, kind, number in zip(("file_path", "pos"), (pa.string(), pa.int64()), ids, strict=True)
    ]
    pq.write_table(pa.table([[first.file_path], [0]], schema=pa.schema(fields)), path)
    gone = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=f"file://{path}", file_format=FileFormat.PARQUET,
        partition=first.partition, record_count=1, file_size_in_bytes=path.stat().st_size,
    )  # fmt: skip
    gone.spec_id = first.spec_id
    with iceberg.transaction() as change:
        append = DeletesAppend(operation=Operation.DELETE, transaction=change, io=iceberg.io)
        append.append_data_file(gone)
        append.commit()


@pytest.mark.slow
def test_rows_that_another_engine_took_out_stay_out_when_files_are_merged(tmp_path):
    table = Table(tmp_path, "iceberg")
    grown(table, 3)
    take_out_first_row(table)
    assert len(table.numbers()) == 2
    gone = {0, 1, 2} - set(table.numbers())
    grown(table, 22, begin=3)
    assert set(table.numbers()) == set(range(25)) - gone
    table.open().compact(date.max)
    assert sorted(table.numbers()) == sorted(set(range(25)) - gone)


def test_files_with_rows_that_another_engine_took_out_are_not_read_nor_replaced(tmp_path):
    table, spark = Table(tmp_path, "iceberg"), cast("SparkSession", None)
    grown(table, 3)
    take_out_first_row(table)
    lake, why = table.open(), r"took rows out of .*table by delete files.*; let it write these again \(CALL"
    removed = lake.paths()[:1]
    with pytest.raises(ConfigError, match=why):
        lake.rewrite(table.staged(3, 7))
    with pytest.raises(ConfigError, match=why):
        lake.commit(3, replace(table.staged(3, 7), removed=removed))
    with pytest.raises(ConfigError, match=why):
        read_table(spark, table.place.folder)
