"""sparrowmq.spark.register: a session that knows the source."""

import os
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import sparrowmq
from sparrowmq.spark.register import found_by_workers, register, session

pytestmark = pytest.mark.spark


def test_a_session_has_the_settings_it_was_given(spark):
    assert (
        session(settings={"spark.sql.adaptive.enabled": "false"}).conf.get("spark.sql.adaptive.enabled")
        == "false"
    )
    assert spark.range(3).count() == 3


def test_a_registered_source_is_found(spark, peer):
    register(spark)
    peer.store("T", 0, [b"x"] * 3)
    options = {"nameServer": peer.address, "topic": "T", "columns": "body"}
    assert spark.read.format("rocketmq").options(**options).load().count() == 3


def test_every_session_finds_it_in_every_thread(spark, peer):
    peer.store("T", 0, [b"x"] * 3)

    def count(session):
        options = {"nameServer": peer.address, "topic": "T", "columns": "body"}
        return session.read.format("rocketmq").options(**options).load().count()

    with ThreadPoolExecutor(1) as other:
        assert other.submit(count, spark).result() == other.submit(count, spark.newSession()).result() == 3


def test_workers_find_a_package_that_is_not_installed(monkeypatch):
    folder = str(Path(sparrowmq.__file__).parents[1])
    assert found_by_workers({}) == {"PYTHONPATH": folder}
    assert found_by_workers({"PYTHONPATH": "/other"}) == {"PYTHONPATH": os.pathsep.join([folder, "/other"])}
    assert found_by_workers({"PYTHONPATH": folder}) == {}
    monkeypatch.setattr(sysconfig, "get_path", lambda _: folder)
    assert found_by_workers({}) == {}
