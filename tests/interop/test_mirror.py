"""The pipelines `mirror` and `publish` between our cluster and Apache's, in both directions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import NoRoute
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines import audit, mirror
from sparrowmq.spark.source.query_offsets import bounds_of
from sparrowmq.spark.worker import connect
from sparrowmq.testing.background import BackgroundCluster
from tests.interop.apache import ApacheBroker, ApacheNamesrv
from tests.spark.conftest import spark
from tests.spark.test_with_spark import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["spark"]

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(300)]

COUNT = 500
SHOWN_LIMIT_S = 30
SAME = ("msgId", "bornTimestamp", "tags", "keys", "body")


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[str]:
    with BackgroundCluster(tmp_path / "ours") as cluster:
        yield cluster.namesrv


@pytest.fixture
def apaches(tmp_path: Path) -> Iterator[str]:
    with (
        ApacheNamesrv("4.9.7") as namesrv,
        ApacheBroker("4.9.7", namesrv.address, tmp_path / "apaches") as broker,
    ):
        yield namesrv.address
        broker.kill()  # to stop in order takes it nine seconds


def wait_for(namesrv: str, topic: str, count: int) -> None:
    """Apache's broker shows what it has stored a little later."""
    deadline = time.monotonic() + SHOWN_LIMIT_S
    with connect(parse(SourceOptions, {"nameServer": namesrv, "topic": topic})) as network:
        while True:
            try:
                shown = sum(each.end for each in bounds_of(network, network.route(topic).readable).values())
            except NoRoute:
                shown = 0
            if shown >= count:
                return
            assert time.monotonic() < deadline, shown
            time.sleep(0.05)


def in_order(rows: DataFrame) -> list[list[object]]:
    found = sorted(rows.collect(), key=lambda row: (row.queueId, row.queueOffset))
    return [[row[name] for name in SAME] for row in found]


def test_messages_go_to_apaches_brokers_and_back_once_in_order_and_as_they_were(
    spark: SparkSession, ours: str, apaches: str, tmp_path: Path
) -> None:
    topic = Topic(spark, ours)
    topic.send(0, COUNT, TAGS="paid", KEYS="a b")
    given: dict[str, Any] = {"once": True, "spark": spark, "options": {"maxOffsetsPerTrigger": "200"}}
    there = mirror(topic.name, name_server=ours, to=apaches, state=tmp_path / "there", **given)
    assert there.written == COUNT
    wait_for(apaches, topic.name, COUNT)
    back = f"{topic.name}-back"
    way: dict[str, Any] = {
        "name_server": apaches,
        "to": ours,
        "to_topic": back,
        "state": tmp_path / "back",
        "chained": True,
    }
    assert mirror(topic.name, **way, **given).written == COUNT
    assert mirror(topic.name, **way, **given).written == 0
    originals = in_order(topic.read())
    assert in_order(topic.read(nameServer=apaches)) == originals
    assert in_order(topic.read(topic=back)) == originals
    assert audit(f"topic:{topic.name}", f"topic:{back}", name_server=ours, spark=spark).errors == 0
