"""sparrowmq.spark.pipelines.running.folders: one process at a time, and nothing of somebody else is overwritten."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark import pipelines
from sparrowmq.spark.pipelines import trace
from sparrowmq.spark.pipelines.running.folders import (
    demand_absent,
    demand_same,
    local_path,
    locked,
    new_folder,
    scheme_of,
)
from sparrowmq.spark.pipelines.sql import Answer


def test_a_folder_is_held_by_one_and_free_again_behind_it(tmp_path):
    with locked(tmp_path / "new"), pytest.raises(ConfigError, match="another run is at work"):
        locked(tmp_path / "new").__enter__()
    with locked(tmp_path / "new"):
        pass


def test_what_is_there_is_left_alone(tmp_path):
    demand_absent(tmp_path / "new")
    with pytest.raises(ConfigError, match="is there already; name another folder"):
        demand_absent(tmp_path)


@pytest.mark.guards("folders.new_folder: drop rmtree")
def test_a_folder_gets_its_name_when_all_is_in_it(tmp_path):
    with pytest.raises(OSError, match="full"), new_folder(tmp_path / "new") as folder:
        folder.mkdir()
        (folder / "half").touch()
        raise OSError("the disk is full")
    assert not (tmp_path / "new").exists()
    with new_folder(tmp_path / "new") as folder:
        folder.mkdir()
        (folder / "whole").touch()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["whole"]
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_answers_and_reports_do_not_go_into_a_folder_that_is_there(tmp_path):
    answer: Answer = Answer.__new__(Answer)  # nothing of it is asked before
    with pytest.raises(ConfigError, match="is there already"):
        answer.save(tmp_path)
    with pytest.raises(ConfigError, match="is there already"):
        trace(name_server="127.0.0.1:1", to=tmp_path)


def test_settings_other_than_those_of_the_first_start_are_refused():
    demand_same("it", {"topic": "a", "by": "id"}, {"topic": "a"})
    with pytest.raises(ConfigError, match="it was begun with topic 'a', not 'b'; name another folder"):
        demand_same("it", {"topic": "a"}, {"topic": "b"})


@pytest.mark.parametrize(
    "given", ["s3://bucket/orders", Path("s3://bucket/orders"), "hdfs:///lake", "file:///lake"]
)
def test_the_address_of_another_place_is_no_folder(given):
    with pytest.raises(
        ConfigError, match=r"an address with the scheme (s3|hdfs|file), and this must be a folder"
    ):
        local_path(given)


def test_an_address_has_a_scheme():
    assert [scheme_of(each) for each in ("s3://b/o", Path("HDFS:///lake"), "/lake", "a:b/c", "C:/lake")] == [
        "s3",
        "hdfs",
        None,
        None,
        None,
    ]


@pytest.mark.guards("folders.local_path: false not str(folder).strip()")
@pytest.mark.parametrize("given", ["", " "], ids=repr)
def test_a_blank_path_is_not_the_folder_of_the_process(given):
    with pytest.raises(ConfigError, match="the path of a folder is blank; write it, as /lake/orders"):
        local_path(given)


def test_a_path_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert local_path("orders") == tmp_path / "orders"
    assert local_path(tmp_path / "a:b" / "c") == tmp_path / "a:b" / "c"


@pytest.mark.guards("local_path: return Path(folder)")
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
