"""The options of Spark's Java in tests: from an archive, if there is one, which slow tests make once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import spark_classes

pytest.importorskip("pyspark")


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The archives that were made, in a folder of the test."""
    made = []
    monkeypatch.setattr(spark_classes, "FOLDER", tmp_path)
    monkeypatch.setattr(spark_classes, "make", lambda path: made.append(path.write_bytes(b"classes")))
    return made


def test_only_slow_tests_make_the_archive(made, tmp_path):
    path = spark_classes.archive()
    assert path.parent == tmp_path
    assert spark_classes.options(path, may_make=False) == spark_classes.QUICK and not made
    for _ in range(2):
        assert str(path) in spark_classes.options(path, may_make=True)
    assert len(made) == 1 and str(path) in spark_classes.options(path, may_make=False)


def test_a_java_that_makes_no_archive_is_asked_once(made):
    path = spark_classes.archive()
    path.touch()
    assert spark_classes.options(path, may_make=True) == spark_classes.QUICK and not made


def test_options_of_the_user_are_left_alone(monkeypatch):
    monkeypatch.setattr(spark_classes, "GIVEN", "-Xmx1g")
    monkeypatch.setenv(spark_classes.NAME, "-Xmx1g")
    spark_classes.use(may_make=False)
    assert os.environ[spark_classes.NAME] == "-Xmx1g"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_spark_loads_its_classes_from_the_archive(tmp_path):
    log, path = tmp_path / "classes", spark_classes.archive()
    assert path.is_file()  # before a slow test of Spark
    seen = f'{os.environ[spark_classes.NAME]} "-Xlog:class+load:file={log}"'
    subprocess.run(
        [sys.executable, "-c", spark_classes.PROGRAM],
        env=os.environ | {spark_classes.NAME: seen},
        cwd=Path(__file__).parents[1],
        check=True,
    )
    assert "org.apache.spark.SparkContext source: shared objects file (top)" in log.read_text()
