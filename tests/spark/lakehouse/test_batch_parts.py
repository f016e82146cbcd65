"""sparrowmq.spark.lakehouse.batch_parts: a part of a batch becomes files, or says why it failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.failures import failure_from
from sparrowmq.spark.lakehouse.batch_parts import ArrowRows, BatchPart, run_parts
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.lake.address import Storage
from sparrowmq.spark.pipelines.lake.partitioning import BY_DAY, Layout
from sparrowmq.spark.pipelines.tables.batch_files import UploadTarget
from sparrowmq.spark.source.partition_ranges import Range
from sparrowmq.spark.worker import connect
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.lakehouse.lakes import send

LAYOUT = Layout(BY_DAY, keeps_columns=False)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster.namesrv


@pytest.fixture
def part(namesrv, tmp_path):
    """Makes parts of a topic with so many messages, which are sent at once."""

    def part(topic, bodies, mode="raw", kinds=None, end=None):
        send(namesrv, {topic: bodies})
        given = {"nameServer": namesrv, "retries": "0"}
        with connect(parse(SourceOptions, {**given, "topic": topic})) as network:
            queues = network.retrying(lambda: network.route(topic)).readable
            addresses = network.addresses_of({queue.broker_name for queue in queues})
        share = len(bodies) // len(queues)
        ranges = tuple(Range(queue, 0, end or share) for queue in queues)
        shape = ArrowRows(mode, kinds or {})
        return BatchPart(topic, given, ranges, addresses, shape, str(tmp_path / topic), LAYOUT)

    return part


def test_a_part_says_what_it_read_and_how_old_it_is(part):
    bodies = [b'{"id":%d}' % at for at in range(6)] + [b"-", b'{"id":1,"new":2}']
    [written] = run_parts([part("parts", bodies, "json", {"id": LongType()})])
    assert written.error == ""
    assert (written.read, written.damaged) == (8, 0) and written.size >= sum(map(len, bodies))
    assert sum(file.rows for file in written.rows) == 6 and sum(file.rows for file in written.errors) == 2
    assert sorted(written.body_fields) == ["id", "new"]  # of the message that fits no columns
    assert (written.oldest_ms or 0) > 1_700_000_000_000


def test_fields_beside_a_key_that_can_be_none_add_no_columns(part):
    bodies = [b'{"id":1.5,"x":1}', b'{"ID":1,"x":1}', b'{"id":2,"new":2}', b"{}"]
    keyed = part("keyed", bodies, "json", {"id": LongType()})
    [written] = run_parts([replace(keyed, shape=replace(keyed.shape, key="id"))])
    assert written.error == "" and sorted(written.body_fields) == ["id", "new"]
    assert sum(file.rows for file in written.errors) == 4


def test_a_part_that_fails_says_why_and_the_next_one_is_done(part, tmp_path):
    lost, good = part("gone", [b"a"] * 4, end=50), part("good", [b"a"] * 4)
    (tmp_path / "blocked").write_text("")
    blocked = BatchPart(
        **{name: getattr(good, name) for name in BatchPart.__slots__} | {"folder": str(tmp_path / "blocked")}
    )
    unknown = BatchPart(
        "absent", good.source_options, (Range(MessageQueue("absent", "broker-x", 0), 0, 1),), {}, good.shape,
        good.folder, LAYOUT,
    )  # fmt: skip
    found = list(run_parts([lost, blocked, unknown, good]))
    assert [bool(written.error) for written in found] == [True, True, True, False]
    kinds = [failure_from(written.error) for written in found[:3]]
    assert kinds[0].name == "RowsLost" and kinds[0].is_permanent
    assert kinds[1].name in ("NotADirectoryError", "FileExistsError") and not kinds[1].is_permanent
    assert not kinds[2].is_permanent
    assert (found[3].topic, found[3].read) == ("good", 4)


def test_a_part_whose_rejects_cannot_be_written_behind_an_address_leaves_no_rows_there(part, tmp_path):
    class Full(Storage):
        def upload(self, local, name):
            raise OSError("AWS Error ACCESS_DENIED during PutObject operation")

    found = part("uploads", [b'{"id":1}', b"-", b'{"id":2}', b"-"], "schema", {"id": LongType()})
    url = (tmp_path / "table").as_uri()
    targets = UploadTarget(Storage(url), "data", "w-7", LAYOUT), UploadTarget(Storage(url), "errors", "w-7", LAYOUT)
    [written] = run_parts([replace(found, targets=targets)])
    assert sum(file.rows for file in written.rows) == 2 and written.error == ""
    there = {file.name for file in tmp_path.rglob("*.parquet")}
    targets = targets[0], UploadTarget(Full(url), "errors", "w-8", LAYOUT)
    [written] = run_parts([replace(found, targets=targets)])
    assert "give these keys the rights" in written.error
    assert {file.name for file in (tmp_path / "table").rglob("*.parquet")} == there
