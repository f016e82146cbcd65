"""sparrowmq.spark.pipelines.lake.iceberg: what Iceberg's own readers see."""

import errno
import shutil
from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

from dataclasses import replace

from pyiceberg.catalog.sql import SqlCatalog

from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.spark.pipelines.lake import iceberg
from sparrowmq.spark.pipelines.lake.lake import open_lake
from tests.spark.pipelines.lake.tables import DAY, WRITER, Table, catalog_in


def test_each_snapshot_says_which_batch_it_is(tmp_path):
    table = Table(tmp_path, "iceberg")
    table.add(0, 1)
    table.add(4, 2)
    catalog = catalog_in(table.place.state)
    found = catalog.load_table(("sparrowmq", "table"))
    told = [
        (each.summary["sparrowmq.writer"], each.summary["sparrowmq.batch"])
        for each in found.snapshots()
        if each.summary
    ]
    assert told == [(WRITER, "0"), (WRITER, "4")]
    assert [field.name for field in found.spec().fields] == ["_day"]
    assert found.scan(f"_day = '{DAY}'").to_arrow().num_rows == 2
    assert found.scan("_day = '2026-02-01'").to_arrow().num_rows == 0


def test_files_have_the_bounds_of_their_columns(tmp_path):
    table = Table(tmp_path, "iceberg")
    table.add(0, 3, 1, 2)
    catalog = catalog_in(table.place.state)
    (file,) = catalog.load_table(("sparrowmq", "table")).inspect.files().to_pylist()
    found = file["readable_metrics"]["number"]
    assert (found["lower_bound"], found["upper_bound"], found["null_value_count"]) == (1, 3, 0)


def test_a_table_whose_catalog_was_lost_or_is_older_goes_on_from_its_newest_metadata(tmp_path):
    table = Table(tmp_path, "iceberg")
    table.add(0, 1)
    older = tmp_path / "older"
    shutil.copytree(table.place.state, older)
    table.add(1, 2)
    shutil.rmtree(table.place.state)
    table.add(2, 3)
    assert (table.open().last_batch(), table.numbers()) == (2, [1, 2, 3])
    shutil.rmtree(table.place.state)
    shutil.copytree(older, table.place.state)
    assert (table.open().last_batch(), table.numbers()) == (2, [1, 2, 3])


def test_a_table_with_a_state_elsewhere_whose_catalog_was_lost_is_not_begun_again(tmp_path):
    from tests.spark.pipelines.lake.s3 import table_at

    root = (tmp_path / "orders").as_uri()
    table = table_at(root, tmp_path / "state", "iceberg")
    table.add(0, 1)
    catalog = tmp_path / "state" / "catalog.db"
    aside = catalog.rename(tmp_path / "aside")
    with pytest.raises(ConfigError, match=r"has a table, but its catalog .*catalog.db is gone; restore it"):
        table.add(1, 2)
    aside.rename(catalog)
    table.add(1, 2)
    assert table.numbers() == [1, 2]


def test_a_killed_run_that_made_only_the_metadata_of_a_table_is_no_table(tmp_path):
    from tests.spark.pipelines.lake.s3 import table_at

    table = table_at((tmp_path / "orders").as_uri(), tmp_path / "state", "iceberg")
    first = tmp_path / "orders" / "metadata" / "00000-5c1f.metadata.json"
    first.parent.mkdir(parents=True)
    first.write_text("{}")
    table.add(0, 1)
    assert table.numbers() == [1]


@pytest.mark.parametrize("half", [0, 40])
def test_metadata_that_a_killed_run_has_half_written_is_passed_over(tmp_path, half):
    table = Table(tmp_path, "iceberg")
    table.add(0, 1)
    folder = table.place.folder / "metadata"
    (whole,) = folder.glob("00001-*.metadata.json")
    (folder / "00009-5c1f.metadata.json").write_bytes(whole.read_bytes()[:half])
    table.add(1, 2)
    assert (table.open().last_batch(), table.numbers()) == (1, [1, 2])


def test_metadata_that_a_power_cut_has_emptied_takes_the_table_back_to_the_ones_before(tmp_path):
    table = Table(tmp_path, "iceberg")
    table.add(0, 1)
    table.add(1, 2)
    newest = max((table.place.folder / "metadata").glob("*.metadata.json"))
    newest.write_bytes(b"")
    assert (table.open().last_batch(), table.numbers()) == (0, [1])
    table.add(1, 2)
    assert (table.open().last_batch(), table.numbers()) == (1, [1, 2])


def test_metadata_that_cannot_be_read_for_now_takes_the_table_nowhere(tmp_path, monkeypatch):
    table = Table(tmp_path, "iceberg")
    table.add(0, 1)
    table.add(1, 2)
    newest = max((table.place.folder / "metadata").glob("*.metadata.json"))

    def fail(*_):
        newest.write_bytes(b"")  # as if no try could read it
        raise OSError(errno.EMFILE, "Too many open files")

    whole = newest.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "load_table", fail)
        with pytest.raises(OSError, match="Too many open files"):
            table.open()
    newest.write_bytes(whole)
    assert (table.open().last_batch(), table.numbers()) == (1, [1, 2])


@pytest.mark.parametrize("files", ["*.metadata.json", "snap-*.avro", "*-m0.avro"])
def test_a_table_without_a_catalog_is_not_taken_back_by_a_file_that_cannot_be_read_for_now(tmp_path, files):
    table = Table(tmp_path, "iceberg")
    table.add(0, 1)
    table.add(1, 2)
    shutil.rmtree(table.place.state)
    newest = max(table.place.folder.glob(f"metadata/{files}"), key=lambda path: path.stat().st_mtime_ns)
    aside = newest.rename(tmp_path / "aside")
    newest.symlink_to(newest)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        table.open()
    aside.rename(newest)
    assert (table.open().last_batch(), table.numbers()) == (1, [1, 2])


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_new_table_is_begun_again_if_a_power_cut_has_emptied_its_first_metadata(tmp_path, monkeypatch, is_synced):
    table, synced = Table(tmp_path, "iceberg"), set[Path]()
    monkeypatch.setattr(iceberg, "sync", synced.add)
    with monkeypatch.context() as cut:
        step = "move_into_place" if is_synced else "sync"  # behind the first metadata, and before it is on the disk
        cut.setattr(iceberg, step, None)
        with pytest.raises(TypeError):
            table.add(0, 1)
    left = list(table.place.folder.glob("metadata/*.json"))
    assert len(left) > 1 or not is_synced
    for path in set(left) - synced:
        path.write_bytes(b"")
    table.add(0, 1)
    assert (table.open().last_batch(), table.numbers()) == (0, [1])


@pytest.mark.parametrize("files", ["snap-*.avro", "*-m0.avro"])
@pytest.mark.parametrize("is_zeroed", [False, True])
def test_manifests_that_a_power_cut_has_emptied_take_the_table_back_to_the_version_before(
    tmp_path, files, is_zeroed, caplog
):
    table = Table(tmp_path, "iceberg")
    for batch in range(3):
        table.add(batch, batch)
    newest = max(table.place.folder.glob(f"metadata/{files}"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(bytes(newest.stat().st_size if is_zeroed else 0))
    assert table.open().last_batch() == 1
    assert table.numbers() == [0, 1]
    assert f"{newest} is damaged or gone, so {table.place.folder} goes on from its version 3; " in caplog.text
    table.add(2, 2)
    assert (table.open().last_batch(), table.numbers()) == (2, [0, 1, 2])


def test_a_table_without_a_readable_version_is_not_begun_again(tmp_path):
    table = Table(tmp_path, "iceberg")
    for batch in range(12):  # the first versions are gone
        table.add(batch, batch)
    gone = min(table.place.folder.glob("metadata/*-m0.avro"), key=lambda path: path.stat().st_mtime_ns)
    gone.unlink()
    with pytest.raises(BadStore, match=f"{gone.name} is damaged or gone, and .* restore the file, or the table"):
        table.open()


@pytest.mark.parametrize("work", ["add", "read"])
def test_a_manifest_in_which_a_bit_has_flipped_is_named(tmp_path, work):
    table = Table(tmp_path, "iceberg")
    table.add(0, 1)
    lake = table.open()
    (manifest,) = table.place.folder.glob("metadata/*-m0.avro")
    manifest.write_bytes(manifest.read_bytes().replace(b'"field-id"', b'"bield-id"'))
    with pytest.raises(BadStore, match=f"{manifest.name} is damaged, and .*; restore it, or the table, from a backup"):
        lake.paths() if work == "read" else table.add(1, 2)


def test_metadata_that_has_lost_its_snapshots_is_damaged(tmp_path):
    table = Table(tmp_path, "iceberg")
    table.add(0, 1)
    table.add(1, 2)
    newest = max((table.place.folder / "metadata").glob("*.metadata.json"))
    newest.write_bytes(newest.read_bytes().replace(b'"current-snapshot-id"', b'"current-snapshot-ie"', 1))
    assert (table.open().last_batch(), table.numbers()) == (0, [1])


def test_the_files_of_a_commit_are_brought_to_the_disk(tmp_path, monkeypatch):
    table, synced = Table(tmp_path, "iceberg"), []
    monkeypatch.setattr(iceberg, "sync", lambda path: synced.append(path.relative_to(table.place.folder)))
    table.add(0, 1)
    table.add(1, 2)
    *files, metadata, folder = synced[-4:]
    assert files[0].name.endswith("-m0.avro") and len(files) == 2
    newest = max(table.place.folder.glob("metadata/*.metadata.json")).name
    assert (files[1].name[:5], metadata.name, folder.name) == ("snap-", newest, "metadata")


def test_the_files_of_merges_and_expiry_are_brought_to_the_disk(tmp_path, monkeypatch):
    table, synced = Table(tmp_path, "iceberg"), set()
    monkeypatch.setattr(iceberg, "sync", lambda path: synced.add(path.name))
    table.add(0, 1)
    table.add(1, 2)
    lake, before = table.open(), files_of(table)
    lake.compact(date.max)
    assert {path.name for path in files_of(table) - before} <= synced
    before = files_of(table)
    lake.expire(date.max)
    assert {path.name for path in files_of(table) - before} <= synced


def files_of(table):
    """The files of metadata."""
    return set(table.place.folder.glob("metadata/*.*"))


def remove(catalog):
    catalog.unlink()


def damage(catalog):
    catalog.write_bytes(b"no database" * 500)


@pytest.mark.parametrize(
    ("happens", "is_open"), [(remove, True), (damage, False)], ids=["removed meanwhile", "damaged"]
)
def test_a_catalog_that_cannot_be_used_is_named_with_the_remedy(tmp_path, happens, is_open):
    table = Table(tmp_path, "iceberg")
    table.add(0, 1)
    catalog = table.place.state / "catalog.db"
    lake = table.open()
    if not is_open:
        happens(catalog)
    with pytest.raises(BadStore, match=r"catalog.db, the catalog of .*/table, is .*; remove it if it is there, and"):
        if is_open:
            staged = table.staged(1, 2)
            happens(catalog)
            lake.commit(1, staged)
        table.open()
    catalog.unlink(missing_ok=True)
    if table.open().last_batch() == 0:
        table.add(1, 2)
    assert (table.open().last_batch(), table.numbers()) == (1, [1, 2])


def test_two_runs_with_copies_of_one_catalog_do_not_both_write(tmp_path):
    table = Table(tmp_path, "iceberg")
    table.add(0, 1)
    shutil.copytree(table.place.state, tmp_path / "copy")
    first, second = table.open(), open_lake("iceberg", replace(table.place, state=tmp_path / "copy"))
    first.commit(1, table.staged(1, 2))
    with pytest.raises(ConfigError, match="another run has written"):
        second.commit(1, table.staged(1, 2))
    assert table.numbers() == [1, 2]


def test_a_table_that_was_rolled_back_says_where_it_is_now(tmp_path):
    table = Table(tmp_path, "iceberg")
    for batch in range(3):
        table.open().commit(batch, replace(table.staged(batch, batch), record=f"record {batch}"))
    catalog = catalog_in(table.place.state)
    found = catalog.load_table(("sparrowmq", "table"))
    found.manage_snapshots().rollback_to_snapshot(found.snapshots()[1].snapshot_id).commit()
    assert table.open().record() == "record 1"
    assert table.open().last_batch() == 2  # a number is not given twice
