"""Topics and the lakes' own jars in one Spark: Delta's 4.4.0 on Spark 4.2, Iceberg's 1.12.0 on Spark 4.1.

The jar's own sink takes a topic, our sink takes the jar's table, and the jar reads and rewrites what the pipeline
`table` writes without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from sparrowmq.client import blocking_client as sync
from sparrowmq.client.blocking_client import SyncClient
from sparrowmq.protocol.messages.message import Message
from sparrowmq.testing.background import BackgroundCluster
from tests.interop.lakes import DELTA, ICEBERG, SPARKS, TABLE, LakePuppet
from tests.interop.test_spark_source import ids_and_bodies
from tests.spark.pipelines.killing import forget_last_commit
from tests.spark.pipelines.lake import tables

pytestmark = [pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]

LOT = 100  # messages of one batch, and so of one queue
Row = list[object]


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster.namesrv


@pytest.fixture(scope="module", params=[DELTA, ICEBERG])
def lake(request, namesrv: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakePuppet]:
    with LakePuppet(request.param, namesrv, tmp_path_factory.mktemp("lake")) as puppet:
        assert puppet.do("version") == [[SPARKS[request.param]]]
        yield puppet


@pytest.fixture
def mq(namesrv: str) -> Iterator[SyncClient]:
    with sync.connect(namesrv) as mq:
        yield mq


def send(mq: SyncClient, topic: str, lots: Sequence[int]) -> list[Row]:
    """Messages with numbers; where they lie, as a table has it."""
    sent = [mq.send_many([Message(topic, b"%d" % (lot * LOT + at)) for at in range(LOT)]) for lot in lots]
    return [
        [result.queue.queue_id, result.offset, str(lot * LOT + at)]
        for lot, results in zip(lots, sent, strict=True)
        for at, result in enumerate(results)
    ]


def test_the_jars_own_sink_has_each_message_once_though_a_driver_died_and_its_table_goes_to_a_topic(
    lake: LakePuppet, namesrv: str, mq: SyncClient
) -> None:
    topic, back = f"to-{lake.kind}", f"from-{lake.kind}"
    for name in (topic, back):
        mq.admin.create_topic(name, queues=4)
    rows = send(mq, topic, range(10))
    lake.do("copy", topic=topic)
    assert lake.do("read") == sorted(rows)
    rows += send(mq, topic, range(10, 20))
    lake.do("copy", topic=topic)
    forget_last_commit(lake.folder)  # as if the driver had died before Spark knew
    rows += send(mq, topic, range(20, 25))
    for _ in range(2):  # on 4.1 the first ends with the repeated batch
        lake.do("copy", topic=topic)
    assert lake.do("read") == sorted(rows)
    lake.do("publish", topic=back)
    assert sorted(body for _, body in ids_and_bodies(namesrv, back, len(rows))) == sorted(str(row[2]) for row in rows)


def test_the_jar_reads_the_pipelines_table_and_after_it_put_its_files_together_both_go_on(
    lake: LakePuppet, mq: SyncClient
) -> None:
    topic, path = f"table-of-{lake.kind}", lake.folder / "ours" / TABLE
    mq.admin.create_topic(topic, queues=4)
    rows = send(mq, topic, range(12))
    assert lake.do("table", topic=topic) == [[len(rows)]]
    assert lake.do("read_table") == sorted(rows)
    lake.do("tidy")
    assert lake.do("read_table") == sorted(rows)
    forget_last_commit(path.with_name(f"{TABLE}.state"))
    more = send(mq, topic, range(12, 15))
    assert lake.do("table", topic=topic) == [[len(more)]]
    rows += more
    assert lake.do("read_table") == sorted(rows)
    seen = tables.rows_of(lake.kind, path, path.with_name(f"{TABLE}.state"))
    places = [[row["_mq"]["queueId"], row["_mq"]["queueOffset"], row["body"].decode()] for row in seen]
    assert sorted(places) == sorted(rows)
