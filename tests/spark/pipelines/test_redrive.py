"""sparrowmq.spark.pipelines.table: the errors of a table tried again."""

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines import redrive
from sparrowmq.spark.pipelines.running.folders import lock_folder
from sparrowmq.spark.pipelines.tables.table_settings import state_folder
from tests.spark.pipelines.tables.test_retries import BODIES, make, seen


def test_a_redrive_says_what_it_would_do_and_does_it(tmp_path):
    root = make(tmp_path, "parquet")
    said: list[str] = []
    report = redrive(root, dry_run=True, say=said.append)
    assert (report.read, report.written, report.errors) == (6, 0, 0)
    assert said[0] == "3 errors would become rows, 3 would stay"
    assert sorted(said[1:])[1] == "  1: the body is not JSON"
    assert len(seen(root, "parquet")[1]) == len(BODIES)
    report = redrive(root, say=said.append)
    assert (report.read, report.written, report.errors) == (6, 3, 3)
    assert "3 errors became rows, 3 stay" in said
    assert len(seen(root, "parquet")[1]) == 3


def test_only_the_most_frequent_reasons_are_said(tmp_path):
    bodies = [b'{"AMOUNT%d":1,"a%d":{"":1}}' % (number, number) for number in range(20)]
    said: list[str] = []
    redrive(make(tmp_path, "parquet", bodies=bodies), dry_run=True, say=said.append)
    assert said[0] == "0 errors would become rows, 20 would stay"
    assert said[-1] == "  and 10 other reasons"


def test_what_cannot_be_redriven_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is no table; the pipeline `table` makes them"):
        redrive(tmp_path / "none")
    root = make(tmp_path, "parquet")
    for folder in (state_folder(root), root / ".sparrowmq"):
        with lock_folder(folder), pytest.raises(ConfigError, match="another run is at work"):
            redrive(root)
