"""What the tests of pipelines share: a cluster for each file, and topics on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from sparrowmq.testing.background import BackgroundCluster
from tests.spark.pipelines.lake.s3 import S3, running
from tests.spark.test_with_spark import Topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the brokers' stores."""
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def namesrv(folder: Path) -> Iterator[str]:
    with BackgroundCluster(folder) as cluster:
        yield cluster.namesrv


@pytest.fixture
def topic(spark: SparkSession, namesrv: str) -> Topic:
    return Topic(spark, namesrv)


@pytest.fixture(scope="package")
def s3_server() -> Iterator[S3]:
    """An S3 with a bucket `bucket`."""
    with running() as server:
        server.make("bucket")
        yield server


@pytest.fixture
def s3(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """The S3 that this process has in its environment."""
    for name, value in s3_server.variables.items():
        monkeypatch.setenv(name, value)
    return s3_server
