"""sparrowmq.spark.pipelines.running.folders: one process at a time, and nothing of somebody else is overwritten."""

import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark import pipelines
from sparrowmq.spark.pipelines import trace
from sparrowmq.spark.pipelines.running.folders import (
    check_absent,
    check_same,
    local_path,
    lock_folder,
    move_file,
    new_folder,
    scheme_of,
)
from sparrowmq.spark.pipelines.sql import Answer


def test_a_folder_is_held_by_one_and_free_again_behind_it(tmp_path):
    with lock_folder(tmp_path / "new"), pytest.raises(ConfigError, match="another run is at work"):
        lock_folder(tmp_path / "new").__enter__()
    with lock_folder(tmp_path / "new"):
        pass


def test_what_is_there_is_left_alone(tmp_path):
    check_absent(tmp_path / "new")
    with pytest.raises(ConfigError, match="is there already; name another folder"):
        check_absent(tmp_path)


def test_a_folder_that_cannot_be_made_is_told_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file/new"):
        check_absent(tmp_path / "file" / "new")

    def refused(**_given):
        raise PermissionError(errno.EACCES, "Permission denied", "a name by chance")

    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    with pytest.raises(PermissionError, match=r"Permission denied: '.*/above/new'"):
        check_absent(tmp_path / "above" / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_gets_its_name_when_all_is_in_it(tmp_path, monkeypatch):
    with pytest.raises(OSError, match="full"), new_folder(tmp_path / "new") as folder:
        folder.mkdir()
        (folder / "half").touch()
        raise OSError("the disk is full")
    assert not (tmp_path / "new").exists()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    with new_folder(tmp_path / "new") as folder:
        folder.mkdir()
        (folder / "whole").touch()
    assert synced == [(tmp_path / "new" / "whole").stat().st_ino]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["whole"]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_two_runs_do_not_write_into_one_folder(tmp_path):
    """Spark would put the files of both into the folder, and so each row twice, or miss files of the first run."""
    with new_folder(tmp_path / "new") as folder:
        folder.mkdir()
        (folder / "whole").touch()
        with pytest.raises(ConfigError, match=r"another run is at work in .*\.new\.begun"):
            new_folder(tmp_path / "new").__enter__()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["whole"]
    with pytest.raises(ConfigError, match="is there already"):
        new_folder(tmp_path / "new").__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_answers_and_reports_do_not_go_into_a_folder_that_is_there(tmp_path):
    answer: Answer = Answer.__new__(Answer)  # nothing of it is asked before
    with pytest.raises(ConfigError, match="is there already"):
        answer.save(tmp_path)
    with pytest.raises(ConfigError, match="is there already"):
        trace(name_server="127.0.0.1:1", to=tmp_path)


@pytest.mark.parametrize("is_full", [False, True])
def test_a_file_gets_to_another_disk_whole_or_stays(tmp_path, monkeypatch, is_full):
    source, target = tmp_path / "staged" / "0.parquet", tmp_path / "table" / "day" / "1.parquet"
    source.parent.mkdir()
    source.write_bytes(b"rows")
    replace, copy = os.replace, shutil.copyfile

    def on_two_disks(one, other):
        if Path(one).parent != Path(other).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(one, other)

    def copied(one, other):
        assert other.name.startswith("."), "readers leave such names out"
        copy(one, other)
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")

    synced: list[int] = []
    monkeypatch.setattr(os, "replace", on_two_disks)
    monkeypatch.setattr(shutil, "copyfile", copied)
    monkeypatch.setattr(os, "fsync", synced.append)
    if is_full:
        with pytest.raises(OSError, match="No space left"):
            move_file(source, target)
    else:
        move_file(source, target)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"staged/0.parquet" if is_full else "table/day/1.parquet"}
    assert len(synced) == (not is_full)


def test_a_file_that_may_not_be_moved_is_not_copied(tmp_path, monkeypatch):
    (tmp_path / "0.parquet").touch()

    def refused(_one, _other):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", refused)
    monkeypatch.setattr(shutil, "copyfile", lambda _one, _other: pytest.fail("the file is copied"))
    with pytest.raises(PermissionError):
        move_file(tmp_path / "0.parquet", tmp_path / "1.parquet")


def test_settings_other_than_those_of_the_first_start_are_refused():
    check_same("it", {"topic": "a", "by": "id"}, {"topic": "a"})
    with pytest.raises(ConfigError, match="it was begun with topic 'a', not 'b'; name another folder"):
        check_same("it", {"topic": "a"}, {"topic": "b"})


@pytest.mark.parametrize("given", ["s3://bucket/orders", Path("s3://bucket/orders"), "hdfs:///lake", "file:///lake"])
def test_the_address_of_another_place_is_no_folder(given):
    with pytest.raises(ConfigError, match=r"an address with the scheme (s3|hdfs|file), and this must be a folder"):
        local_path(given)


def test_an_address_has_a_scheme():
    assert [scheme_of(each) for each in ("s3://b/o", Path("HDFS:///lake"), "/lake", "a:b/c", "C:/lake")] == [
        "s3",
        "hdfs",
        None,
        None,
        None,
    ]


@pytest.mark.parametrize("given", ["", " "], ids=repr)
def test_a_blank_path_is_not_the_folder_of_the_process(given):
    with pytest.raises(ConfigError, match="the path of a folder is blank; write it, as /lake/orders"):
        local_path(given)


def test_a_path_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert local_path("orders") == tmp_path / "orders"
    assert local_path(tmp_path / "a:b" / "c") == tmp_path / "a:b" / "c"


def test_no_pipeline_makes_a_folder_of_an_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    where, server = "s3://bucket/orders", "127.0.0.1:1"
    calls = [
        lambda: pipelines.table("orders", where, name_server=server, mode="json"),
        lambda: pipelines.archive("orders", where, name_server=server),
        lambda: pipelines.publish(where, "orders", name_server=server),
        lambda: pipelines.compact(where),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match="Spark's checkpoint must be in one; name it"):
            call()
    with pytest.raises(ConfigError, match="an address with the scheme s3"):
        pipelines.mirror("orders", to="127.0.0.1:2", state=where, name_server=server)
    assert not any(tmp_path.iterdir())
