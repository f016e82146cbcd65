"""sparrowmq.spark.pipelines.running.session: settings that stay a pipeline's own, and errors in a line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark import SparkConf
from pyspark.errors import AnalysisException

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.running.session import (
    checkpoint_settings,
    first_line,
    own_session,
    shuffle_settings,
    without_error_log,
)

pytestmark = pytest.mark.timeout(240)


@pytest.mark.slow
def test_the_settings_of_a_pipeline_are_not_those_of_its_user(spark):
    spark.conf.set("spark.sql.caseSensitive", "false")
    assert own_session(spark).conf.get("spark.sql.caseSensitive") == "true"
    assert spark.conf.get("spark.sql.caseSensitive") == "false"


FILES = "spark.sql.streaming.checkpointFileManagerClass"


def test_the_checkpoint_of_a_pipeline_is_written_without_starting_programs(spark):
    assert str(own_session(spark).conf.get(FILES)).endswith(".FileSystemBasedCheckpointFileManager")
    assert spark.conf.get(FILES, "unset") == "unset"


@pytest.mark.parametrize(("is_set", "is_there"), [(True, True), (False, False)])
def test_a_class_for_checkpoints_that_the_user_has_set_stays_and_none_that_is_missing_is_set(is_set, is_there):
    conf = SparkConf(loadDefaults=False)
    if is_set:
        conf.set(FILES, "of.the.User")
    utils = SimpleNamespace(classIsLoadable=lambda _name: is_there)
    package = SimpleNamespace(spark=SimpleNamespace(util=SimpleNamespace(Utils=utils)))
    java = SimpleNamespace(org=SimpleNamespace(apache=package))
    session: Any = SimpleNamespace(_jvm=java, sparkContext=SimpleNamespace(getConf=lambda: conf))
    assert checkpoint_settings(session) == {}


def test_an_error_is_told_in_a_line_and_not_logged(spark, caplog, capfd):
    with without_error_log(), pytest.raises(AnalysisException) as caught:
        spark.sql("select nothing")
    assert "nothing" in first_line(caught.value)
    assert "\n" not in first_line(caught.value)
    assert "UNRESOLVED" not in capfd.readouterr().err


def test_a_session_of_spark_connect_is_refused():
    remote: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ConfigError, match="its own driver, not one of Spark Connect"):
        own_session(remote)


@pytest.mark.parametrize(("cores", "parts"), [(2, "16"), (50, "200")])
def test_batches_are_sorted_in_as_many_parts_as_there_is_room_for_unless_that_was_said(cores, parts):
    conf = SparkConf(loadDefaults=False)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf, defaultParallelism=cores))
    assert shuffle_settings(spark) == {"spark.sql.shuffle.partitions": parts}
    conf.set("spark.sql.shuffle.partitions", "7")
    assert shuffle_settings(spark) == {}
