"""sparrowmq.spark.pipelines.lake.iceberg_metadata: the order of commits when the clock is set back."""

from __future__ import annotations

import datetime as calendar
import json
import time
from datetime import date
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyiceberg")

from pyiceberg.table import update as updates

from sparrowmq.spark.pipelines.lake.address import Catalog
from sparrowmq.spark.pipelines.lake.iceberg import newest_metadata
from sparrowmq.spark.pipelines.lake.iceberg_metadata import SETTINGS
from tests.spark.pipelines.lake.s3 import table_at
from tests.spark.pipelines.lake.tables import Table

HOUR_MS = 3_600_000
_JAVA_ALLOWS_MS = 60_000


@pytest.fixture
def clock(monkeypatch):
    """Sets the clock of pyiceberg by so many ms."""
    real = time.time

    def set_clock(by_ms):
        class Clock(calendar.datetime):
            @classmethod
            def now(cls, tz=None):
                return calendar.datetime.fromtimestamp(real() + by_ms / 1000, tz)

        monkeypatch.setattr(time, "time", lambda: real() + by_ms / 1000)
        monkeypatch.setattr(updates, "datetime", Clock)

    return set_clock


def demand_readable_by_java(folder):
    """As the constructor of TableMetadata of Iceberg 1.12 looks at the times."""
    path = newest_metadata(folder)
    assert path is not None
    with open(path.removeprefix("file://")) as file:
        said = json.load(file)
    for log in ("snapshot-log", "metadata-log"):
        times = [each["timestamp-ms"] for each in said[log]] + [said["last-updated-ms"]]
        assert all(after - before >= -_JAVA_ALLOWS_MS for before, after in pairwise(times)), log
    return said


def test_java_reads_a_table_that_goes_on_after_the_clock_was_set_back(tmp_path, clock, monkeypatch):
    monkeypatch.setitem(SETTINGS, "history.expire.min-snapshots-to-keep", "3")
    table = Table(tmp_path, "iceberg")
    lake, more = table.open(), dict[str, Any](name="a")
    lake.commit(0, table.staged(0, 0))
    clock(-HOUR_MS)
    for batch in range(1, 5):
        lake.commit(batch, table.staged(batch, batch, **more if batch > 3 else {}))
    said = demand_readable_by_java(table.place.folder)
    assert len(said["snapshots"]) == 3  # no more stay than with a clock that goes on
    clock(-2 * HOUR_MS)
    lake.retire(time.time() + HOUR_MS)
    demand_readable_by_java(table.place.folder)
    lake.compact(date(2026, 2, 1))
    demand_readable_by_java(table.place.folder)
    assert table.numbers() == list(range(5))


def test_commits_to_a_configured_catalog_are_in_order(tmp_path, clock):
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/shared.db"}
    table = table_at((tmp_path / "t").as_uri(), tmp_path / "state", "iceberg", Catalog("c", "a.t", options))
    table.add(0, 1)
    clock(-HOUR_MS)
    table.add(1, 2)
    table.add(2, 3, name="b")
    assert len(demand_readable_by_java(tmp_path / "t")["snapshots"]) == 3
