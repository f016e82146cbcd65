"""What Spark's tests share: a peer to fail at will, and one session for all tests that need Spark itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from sparrowmq.client.cluster.blocking_network import BlockingNetwork, RetryPolicy
from sparrowmq.errors import ConfigError
from sparrowmq.spark.java import spark_environment
from sparrowmq.spark.worker import _networks
from tests.spark.peer import Peer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "700m",
    "spark.log.level": "ERROR",
}


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as peer:
        yield peer


@pytest.fixture
def connect(peer: Peer) -> Iterator[Callable[..., BlockingNetwork]]:
    """Makes networks of the peer, with retries that do not wait, and leaves them after the test."""
    with ExitStack() as stack:

        def connect(retries: str = "10") -> BlockingNetwork:
            patience = RetryPolicy(int(retries))
            return stack.enter_context(BlockingNetwork([peer.address], retry_policy=patience, sleep=lambda _: None))

        yield connect
        for kept in _networks.values():
            kept.forget()


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session; it takes some five seconds to start, and the first query five more."""
    pytest.importorskip("pyspark")
    try:
        os.environ.update(spark_environment())
    except ConfigError as error:
        pytest.skip(str(error))
    from sparrowmq.spark.register import session

    folder = tmp_path_factory.mktemp("spark")
    places = {"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder)}
    spark = session("local[2,3]", SETTINGS | places)  # the 3 lets a task fail twice, as on a cluster
    yield spark
    spark.stop()
