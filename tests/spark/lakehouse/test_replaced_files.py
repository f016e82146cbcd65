"""sparrowmq.spark.pipelines.lake.unused_files: a table with a key needs room for the batches of a few minutes only."""

from __future__ import annotations

import shutil
import time
from datetime import date

import msgspec
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from deltalake import DeltaTable

from sparrowmq.spark.pipelines.lake.unused_files import ReplacedFiles
from tests.spark.lakehouse.test_keyed_batch import KINDS, Orders, Run
from tests.spark.pipelines.lake import tables

pytestmark = pytest.mark.timeout(600)

STAY_S = 600


class Clock:
    """Iceberg writes the times of its snapshots itself, so this one begins now."""

    def __init__(self):
        self.now_s = time.time()

    def __call__(self):
        return self.now_s


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def clock():
    return Clock()


def filled(folder, kind, clock):
    """A table of which each batch replaces all rows."""
    orders = Orders()
    run = Run(folder, kind, orders, clock=clock, replaced_stay_s=STAY_S)
    replace_all(run, 0)
    return run


def replace_all(run, value):
    for key in range(4):
        run.orders.put(key, value)
    run.batch()


def data_files(run):
    return {path for path in run.table.root.rglob("*.parquet") if "_delta_log" not in path.parts}


@pytest.mark.slow
def test_replaced_files_go_when_readers_had_time_to_end(tmp_path, kind, clock):
    run = filled(tmp_path, kind, clock)
    most = 0
    for value in range(30):
        clock.now_s += 60
        replace_all(run, value)
        most = max(most, len(data_files(run)))
    assert most <= STAY_S / 60 + 3  # and without that, 31
    run.check(kind)
    run.table.close()


@pytest.mark.slow
def test_a_reader_that_began_before_has_its_files_for_as_long_as_promised(tmp_path, kind, clock):
    run = filled(tmp_path, kind, clock)
    early = data_files(run)
    clock.now_s += 60
    replace_all(run, 1)
    for _ in range(9):
        clock.now_s += 60
        replace_all(run, 2)
        assert early <= data_files(run)
    clock.now_s += 61
    replace_all(run, 3)
    assert not early & data_files(run)
    run.check(kind)
    run.table.close()


def test_a_clock_that_jumps_forward_takes_no_time_from_readers(tmp_path, clock):
    steady = Clock()
    run = Run(tmp_path, "delta", Orders(), clock=clock, monotonic=steady, replaced_stay_s=STAY_S)
    replace_all(run, 0)
    early = data_files(run)
    replace_all(run, 1)
    clock.now_s += 2 * STAY_S
    replace_all(run, 2)
    assert early <= data_files(run)
    steady.now_s += STAY_S + 1
    replace_all(run, 3)
    assert not early & data_files(run)
    run.table.close()


def test_a_table_without_new_messages_is_cleared_too_also_after_a_restart(tmp_path, kind, clock):
    run = filled(tmp_path, kind, clock)
    replace_all(run, 1)
    assert len(data_files(run)) == 2 and not run.table.has_replaced
    run.table.close()
    run = Run(tmp_path, kind, run.orders, clock=clock, replaced_stay_s=STAY_S)
    clock.now_s += STAY_S + 1
    assert run.table.has_replaced
    run.table.remove_replaced()
    assert len(data_files(run)) == 1 and not run.table.has_replaced
    run.check(kind)
    run.table.close()


@pytest.mark.slow
def test_files_that_were_merged_go_likewise_and_a_merge_bears_files_that_are_gone(tmp_path, kind, clock):
    run = filled(tmp_path, kind, clock)
    for key in range(10, 20):
        run.orders.put(key, 1)
        run.batch()
    merged = set(run.table._open_lakes()[0].paths())
    before, after, _ = run.table.merge(date(2026, 2, 3))
    assert after < before and merged & data_files(run)
    clock.now_s += STAY_S + 1
    replace_all(run, 2)
    assert not merged & data_files(run)
    run.table.merge(date(2026, 2, 3))
    run.check(kind)
    run.table.close()


def test_snapshots_with_a_tag_keep_their_files_and_no_other_snapshot_lacks_files(tmp_path, clock):
    run = filled(tmp_path, "iceberg", clock)
    catalog = tables.catalog_in(run.table.state)
    table = catalog.load_table(("sparrowmq", "orders"))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_tag(snapshot.snapshot_id, "first").commit()
    run.table.release_files()
    for value in (1, 2, 3):
        replace_all(run, value)
    clock.now_s = time.time() + STAY_S + 1  # a slow machine needs seconds for the batches
    run.table.remove_replaced()
    table = catalog.load_table(("sparrowmq", "orders"))
    assert len(data_files(run)) == 2
    for each in table.snapshots():
        assert table.scan(snapshot_id=each.snapshot_id).to_arrow().num_rows == 4
    assert len(table.snapshots()) == 2
    run.check("iceberg")
    run.table.close()


def restored(run, kind):
    """Take the table back to what its first batch made of it, as its owner may."""
    if kind == "delta":
        DeltaTable(str(run.table.root)).restore(first_version(run))
        return
    catalog = tables.catalog_in(run.table.state)
    table = catalog.load_table(("sparrowmq", "orders"))
    oldest = min(table.snapshots(), key=lambda each: each.sequence_number or 0)
    table.manage_snapshots().rollback_to_snapshot(oldest.snapshot_id).commit()


def first_version(run):
    delta = DeltaTable(str(run.table.root))
    return next(
        version
        for version in range(delta.version() + 1)
        if DeltaTable(str(run.table.root), version=version).file_uris()
    )


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_restored_table_keeps_the_files_that_it_has_again(tmp_path, kind, clock, is_restarted):
    run = filled(tmp_path, kind, clock)
    early = data_files(run)
    clock.now_s += 60
    replace_all(run, 1)
    restored(run, kind)
    if is_restarted:
        run.table.close()
        run = Run(tmp_path, kind, run.orders, clock=clock, replaced_stay_s=STAY_S)
    clock.now_s += STAY_S + 1
    run.table.remove_replaced()
    assert early <= data_files(run) and not run.table.has_replaced
    rows = run.seen(kind, run.table.root, run.table.state)
    assert {row["id"]: row["value"] for row in rows} == dict.fromkeys(range(4), 0)
    run.table.close()


def test_a_copy_of_a_table_removes_no_file_of_the_first_table(tmp_path, clock):
    run = filled(tmp_path / "lake", "delta", clock)
    replace_all(run, 1)
    run.table.close()
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    restored(run, "delta")
    had = data_files(run)
    copy = Run(tmp_path / "copy", "delta", run.orders, clock=clock, replaced_stay_s=STAY_S)
    clock.now_s += STAY_S + 1
    assert copy.table.has_replaced
    copy.table.remove_replaced()
    assert data_files(run) == had
    assert len(data_files(copy)) == 1 and not copy.table.has_replaced
    copy.check("delta")
    copy.table.close()


def test_a_restored_table_keeps_its_files_also_if_it_is_reached_by_another_path(tmp_path, clock):
    (tmp_path / "link").symlink_to(tmp_path)
    run = filled(tmp_path, "delta", clock)
    replace_all(run, 1)
    restored(run, "delta")
    had = data_files(run)
    run.table.close()
    run = Run(tmp_path / "link", "delta", run.orders, clock=clock, replaced_stay_s=STAY_S)
    clock.now_s += STAY_S + 1
    run.table.remove_replaced()
    assert len(had) == 2 and {path.resolve() for path in data_files(run)} >= {
        path for path in had if "-000000000-" in path.name
    }
    run.table.close()


def test_a_file_outside_of_the_table_is_never_removed(tmp_path, clock):
    (tmp_path / "other").touch()
    notes = {str(tmp_path / "other"): 0.0}
    (tmp_path / "replaced.json").write_bytes(msgspec.json.encode(notes))
    replaced = ReplacedFiles(tmp_path / "t", tmp_path, 600, clock, clock)
    replaced.remove(tables.Table(tmp_path / "t", "parquet").open())
    assert (tmp_path / "other").exists() and not replaced.has_due


def test_a_file_that_is_replaced_a_second_time_stays_as_long_as_the_first_time(tmp_path, clock):
    replaced, lake = (
        ReplacedFiles(tmp_path, tmp_path, 600, clock, clock),
        tables.Table(tmp_path / "t", "parquet").open(),
    )
    for name in ("again", "once"):
        (tmp_path / name).touch()
    replaced.note([tmp_path / "again", tmp_path / "once"])
    clock.now_s += 300
    replaced.note([tmp_path / "again"])
    clock.now_s += 301
    replaced.remove(lake)
    assert (tmp_path / "again").exists() and not (tmp_path / "once").exists()


def test_a_file_that_cannot_be_removed_holds_nothing_up(tmp_path, clock):
    folder = tmp_path / "full"
    folder.mkdir()
    replaced = ReplacedFiles(tmp_path, tmp_path / "state", 0, clock, clock)
    replaced.note([folder])  # a folder is not removed as a file
    lake = tables.Table(tmp_path / "t", "parquet").open()
    replaced.remove(lake)
    assert replaced.has_due
