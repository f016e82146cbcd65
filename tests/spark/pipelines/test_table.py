"""sparrowmq.spark.pipelines.table: topics become tables, each message once."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import time
from functools import partial
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")
pytest.importorskip("duckdb")

import duckdb
import psutil

from sparrowmq.client import blocking_client as sync
from sparrowmq.client.client import Client
from sparrowmq.client.sending import encoder
from sparrowmq.errors import ConfigError, NetworkError, NoRoute
from sparrowmq.protocol.messages import compression
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.spark.pipelines import preview, redrive, sql, table
from sparrowmq.spark.pipelines.tables.table_settings import load_settings
from sparrowmq.testing.background import BackgroundCluster
from tests.hostile_bodies import send_damaged
from tests.spark.pipelines.killing import environment, forget_last_commit, kill_at_work
from tests.spark.pipelines.lake import tables
from tests.spark.pipelines.lake.tables import KINDS
from tests.spark.test_with_spark import Topic

pytestmark = pytest.mark.timeout(300)

BAD = [b"no json", b"", b"[1]"]
MALFORMED = 1000
# By what the tables are divided whose drivers are killed: each format has another partition.
DIVIDED = {"parquet": "bucket(4, id), hour", "delta": "day, truncate(50000, id)", "iceberg": "bucket(4, id)"}


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster.namesrv


@pytest.fixture
def topic(spark, namesrv):
    return Topic(spark, namesrv)


@pytest.fixture
def run(topic, tmp_path):
    """Runs the pipeline once; gives what it reports."""

    def run(kind, to="table", limit=200, **given):
        said: list[str] = []
        report = table(
            topic.name,
            tmp_path / to,
            name_server=topic.options["nameServer"],
            format=kind,
            once=True,
            spark=topic.spark,
            options={"maxOffsetsPerTrigger": str(limit)},
            say=said.append,
            **given,
        )
        assert len(said) == report.batches
        return report

    return run


def rows_of(kind, path):
    """The rows in the order of their places; those of `table.errors` too, whose state lies within the table's."""
    of_errors = path.name.endswith(".errors")
    state = path.with_name(path.name.removesuffix(".errors") + ".state")
    found = tables.rows_of(kind, path, state / "errors" if of_errors else state)
    return sorted(found, key=lambda row: (row["_mq"]["queueId"], row["_mq"]["queueOffset"]))


@pytest.mark.parametrize("kind", [KINDS[0], *(pytest.param(kind, marks=pytest.mark.nightly) for kind in KINDS[1:])])
@pytest.mark.slow
def test_a_table_has_each_message_once_and_each_malformed_one_among_its_errors(topic, run, tmp_path, kind):
    bodies = [b'{"id":%d,"name":"n%d"}' % (number, number) for number in range(400)] + BAD
    topic.send_bodies(bodies)
    report = run(kind, mode="json")
    assert (report.read, report.written, report.errors, report.batches) == (403, 400, 3, 3)
    assert sum(report.offsets[topic.name]["broker-0"].values()) == 403
    forget_last_commit(tmp_path / "table.state")
    again = run(kind, mode="json")
    assert (again.read, again.written, again.errors) == (3, 0, 0)
    topic.send_bodies([b'{"id":1000,"extra":1.5}', b'{"id":"text"}'])
    assert run(kind, mode="json", type_changes="any").written == 2
    rows = rows_of(kind, tmp_path / "table")
    assert {(row["id"], row["name"], row["extra"]) for row in rows} == {
        *((str(number), f"n{number}", None) for number in range(400)),
        ("1000", None, 1.5),
        ("text", None, None),
    }
    assert len(rows) == 402
    errors = rows_of(kind, tmp_path / "table.errors")
    assert sorted((row["reason"], row["body"]) for row in errors) == [
        ("the body is JSON, but no object", b"[1]"),
        ("the body is empty", b""),
        ("the body is not JSON", b"no json"),
    ]
    places = {(row["_mq"]["queueId"], row["_mq"]["queueOffset"]) for row in rows + errors}
    assert len(places) == 405


@pytest.mark.slow
def test_raw_tables_have_all_of_each_message(topic, run, tmp_path):
    topic.send(0, 300, TAGS="paid", KEYS="a b", region="eu")
    assert run("delta").written == 300
    rows = rows_of("delta", tmp_path / "table")
    assert sorted(int(row["body"]) for row in rows) == list(range(300))
    assert {(row["keys"], row["tags"], dict(row["properties"])["region"]) for row in rows} == {("a b", "paid", "eu")}
    assert not (tmp_path / "table.errors").exists()


@pytest.mark.slow
def test_a_table_is_gone_on_with_as_it_was_begun(topic, run, tmp_path):
    topic.send(0, 10)
    run("parquet")
    with pytest.raises(ConfigError, match="was begun with mode 'raw', not 'json'"):
        run("parquet", mode="json")
    with pytest.raises(ConfigError, match="was begun with format 'parquet', not 'delta'"):
        run("delta")
    assert run("parquet").written == 0


@pytest.mark.slow
def test_a_schema_is_extended_and_errors_are_tried_again(topic, run, tmp_path):
    topic.send_bodies([b'{"id":1,"more":"m"}', b'{"id":2.5}', b'{"id":"x"}'])
    assert run("delta", mode="schema", schema="id bigint").errors == 2
    with pytest.raises(ConfigError, match="the column id as bigint, which cannot become date"):
        run("delta", mode="schema", schema="id date")
    assert run("delta", mode="schema", schema="id double, more string").written == 0
    report = redrive(tmp_path / "table", say=lambda _: None)
    assert (report.written, report.errors) == (1, 1)
    topic.send_bodies([b'{"id":4,"more":"n"}'])
    assert run("delta", mode="schema", schema="id double, more string").written == 1
    rows = rows_of("delta", tmp_path / "table")
    assert sorted((row["id"], row["more"]) for row in rows if row["id"] != 2.5) == [(1.0, None), (4.0, "n")]
    assert len(rows) == 3
    (error,) = rows_of("delta", tmp_path / "table.errors")
    assert (error["reason"], error["body"]) == ("id is no double", b'{"id":"x"}')


def begin_of(path):
    settled = load_settings(path)
    assert settled is not None and settled.begin is not None
    return settled.begin


@pytest.mark.slow
def test_a_table_begins_once_though_spark_forgets_its_first_batches(topic, tmp_path):
    given = {"name_server": topic.options["nameServer"], "once": True, "spark": topic.spark}
    given |= {"options": {"startingOffsets": "latest", "maxOffsetsPerTrigger": "10"}, "say": lambda _: None}
    topic.send(0, 20)
    table(topic.name, tmp_path / "t", **given)
    begin = begin_of(tmp_path / "t")
    assert sum(begin[topic.name]["broker-0"].values()) == 20
    topic.send(20, 30)
    assert table(topic.name, tmp_path / "t", **given).written == 30
    for log in ("offsets", "commits"):  # as after a hundred batches
        (tmp_path / "t.state" / "checkpoint" / log / "0").unlink()
    topic.send(50, 5)
    assert table(topic.name, tmp_path / "t", **given).written == 5
    assert begin_of(tmp_path / "t") == begin


@pytest.mark.slow
def test_a_start_that_died_before_its_first_plan_has_settled_where_the_table_begins(topic, tmp_path):
    given = {"name_server": topic.options["nameServer"], "once": True, "spark": topic.spark}
    given |= {"options": {"startingOffsets": "latest"}, "say": lambda _: None}
    topic.send(0, 20)
    table(topic.name, tmp_path / "t", **given)
    shutil.rmtree(tmp_path / "t.state" / "checkpoint")
    topic.send(20, 5)
    assert table(topic.name, tmp_path / "t", **given).written == 5


@pytest.mark.slow
def test_a_first_start_that_fails_leaves_the_folder_to_another(topic, tmp_path):
    given = {"name_server": topic.options["nameServer"], "once": True, "spark": topic.spark}
    given["say"] = lambda _: None
    topic.send(0, 4)
    with pytest.raises(NoRoute):
        table("slip", tmp_path / "t", **given)
    away = {"name_server": "127.0.0.1:1", "options": {"fetchOffset.numRetries": "0"}}
    with pytest.raises(NetworkError):
        table("another", tmp_path / "t", **(given | away))
    by_size = {"maxBytesPerTrigger": "1000000"}
    assert table(topic.name, tmp_path / "t", mode="json", options=by_size, **given).errors == 4
    with pytest.raises(ConfigError, match="was begun with mode 'json', not 'raw'"):
        table(topic.name, tmp_path / "t", **given)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"format": "orc"}, "format 'orc' is not known; write parquet, delta, iceberg"),
        ({"mode": "orc"}, "mode 'orc' is not known; write raw, json, schema"),
        ({"mode": "schema"}, "goes with mode schema"),
        ({"mode": "raw", "schema": "a int"}, "and only with that"),
        ({"options": {"endingTimestamp": "1000"}}, "and not a stream; leave them out"),
    ],
)
def test_wrong_arguments_are_told_before_anything_runs(tmp_path, given, complaint):
    with pytest.raises(ConfigError, match=complaint):
        table("T", tmp_path / "t", name_server="127.0.0.1:1", **given)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_a_preview_says_what_would_become_and_writes_nothing(topic, tmp_path):
    topic.send_bodies([b'{"id":1}', *BAD])
    told = preview(topic.name, tmp_path / "t", name_server=topic.options["nameServer"], mode="json", spark=topic.spark)
    assert "begins a parquet table" in told
    assert "  id: bigint\n" in told
    assert "of 4 messages looked at, 3 would become errors; nothing was written" in told
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_bodies_in_each_compression_are_rows_to_all_readers(topic, run, tmp_path, monkeypatch):
    pytest.importorskip("lz4")
    pytest.importorskip("zstandard")
    kinds = (SysFlag.COMPRESSION_ZLIB, SysFlag.COMPRESSION_LZ4, SysFlag.COMPRESSION_ZSTD)
    bodies = [json.dumps({"id": at, "text": f"{at}" * 5000}).encode() for at in range(3 * len(kinds))]
    with sync.connect(topic.options["nameServer"]) as mq:
        for at, body in enumerate(bodies):
            kind = kinds[at % len(kinds)]
            monkeypatch.setattr(
                encoder, "compression", SimpleNamespace(compress=partial(compression.compress, kind=kind))
            )
            monkeypatch.setattr(encoder, "SysFlag", SimpleNamespace(COMPRESSED=SysFlag.COMPRESSED | kind))
            mq.send(topic.name, body)
    stored = topic.read(columns="body,sysFlag").collect()
    assert sorted(row.body for row in stored) == sorted(bodies)
    assert {row.sysFlag for row in stored} == {SysFlag.COMPRESSED | kind for kind in kinds}
    assert run("parquet", mode="json").written == len(bodies)
    wanted = [(json.loads(body)["id"], json.loads(body)["text"]) for body in bodies]
    for rows in tables.as_all_see_it(topic.spark, "parquet", tmp_path / "table", tmp_path).values():
        assert sorted((row["id"], row["text"]) for row in rows.to_pylist()) == wanted
    where = {"name_server": topic.options["nameServer"], "spark": topic.spark}
    answer = sql(f"select body from `{topic.name}`", **where)
    assert sorted(row.body.encode() for row in answer.each()) == sorted(bodies)


@pytest.mark.slow
def test_a_body_that_cannot_be_decompressed_is_an_error_and_stops_no_table(topic, run):
    async def send():
        async with Client(topic.options["nameServer"]) as mq:
            await send_damaged(mq, topic.name)

    topic.send_bodies([b'{"id":1}'])
    asyncio.run(send())
    topic.wait_for(2)
    report = run("parquet", mode="json")
    assert (report.written, report.errors, report.bad) == (1, 1, 1)


@pytest.mark.nightly
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", KINDS)
def test_kills_of_the_driver_lose_and_double_nothing(topic, tmp_path, kind):
    """Each driver finds more to read than it lives to write, so every kill hits one that is at work.

    Half way bodies get another field; some are malformed; and at the end the last commit is forgotten.
    SPARROWMQ_KILLS says how many kills, for longer runs.
    """
    kills = int(os.environ.get("SPARROWMQ_KILLS", "7"))
    more, state = 40_000, tmp_path / "table.state"
    command = [sys.executable, "-m", "sparrowmq", "pipeline", "table", topic.name, "--once", "--mode", "json"]
    command += ["-n", topic.options["nameServer"], "--to", str(tmp_path / "table"), "--format", kind]
    command += ["--partition", DIVIDED[kind], "-o", "maxOffsetsPerTrigger=5000"]
    chance = random.Random(kind)
    bodies = [_body(number, has_more=number >= kills // 2 * more) for number in range(kills * more)]
    for kill in range(kills):
        topic.send_bodies(bodies[kill * more : (kill + 1) * more])
        kill_at_work(command, state, tmp_path / "log", chance.uniform(0, 2))
    command[-1] = "maxOffsetsPerTrigger=100000"
    errors = 0
    for _ in range(2):
        ended = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=300, env=environment(tmp_path)
        )
        errors += json.loads(ended.stdout)["errors"]
        forget_last_commit(state)
    assert errors <= len(bodies) // MALFORMED  # a killed driver's batch was another run's
    sent = topic.read(columns="queueId,queueOffset,body").toArrow()
    places = zip(sent["queueId"].to_pylist(), sent["queueOffset"].to_pylist(), strict=True)
    asked = dict(zip(places, sent["body"].to_pylist(), strict=True))
    assert sorted(asked.values()) == sorted(bodies)
    wanted = {place: json.loads(body) for place, body in asked.items() if body.startswith(b"{")}
    for reader, found in tables.as_all_see_it(topic.spark, kind, tmp_path / "table", state).items():
        assert (reader, found.num_rows, _by_place(found) == wanted) == (reader, len(wanted), True)
    rejected = rows_of(kind, tmp_path / "table.errors")
    assert len(rejected) == len(asked) - len(wanted)
    assert {(row["_mq"]["queueId"], row["_mq"]["queueOffset"]): row["body"] for row in rejected} == {
        place: body for place, body in asked.items() if place not in wanted
    }


def _by_place(rows):
    """What the bodies were, by where the messages lay."""
    mq = rows["_mq"].combine_chunks()
    places = zip(mq.field("queueId").to_pylist(), mq.field("queueOffset").to_pylist(), strict=True)
    bodies = (
        {"id": number} if more is None else {"id": number, "more": more}
        for number, more in zip(rows["id"].to_pylist(), rows["more"].to_pylist(), strict=True)
    )
    return dict(zip(places, bodies, strict=True))


def _body(number, *, has_more):
    """Every `MALFORMED`th is no JSON."""
    if number % MALFORMED == 0:
        return b"no json %d" % number
    return b'{"id":%d,"more":1.5}' % number if has_more else b'{"id":%d}' % number


@pytest.mark.nightly
@pytest.mark.timeout(3600)  # of 20 M rows, on two cores that have much else to do
@pytest.mark.parametrize(("millions", "queues"), [(5, 4), (1, 200), (1, 5000)])
def test_millions_of_rows_go_through_in_memory_that_does_not_grow(spark, tmp_path, millions, queues):
    """SPARROWMQ_MILLIONS says how many, for longer runs."""
    millions = int(os.environ.get("SPARROWMQ_MILLIONS", millions))
    rows, batches, most = millions * 1_000_000, 10, 1.15
    sizes: list[int] = []

    def look(_line):
        family = psutil.Process().children(recursive=True)  # Spark's, and its workers; the broker is this process
        sizes.append(sum(each.memory_full_info().uss for each in family))

    with BackgroundCluster(tmp_path / "broker", commit_log_file_bytes=256 << 20) as cluster:
        topic = Topic(spark, cluster.namesrv)
        with sync.connect(cluster.namesrv) as mq:
            mq.admin.create_topic(topic.name, queues=queues)
        for first in range(0, rows, rows // batches):
            topic.send(first, rows // batches)
        begin = time.monotonic()
        report = table(
            topic.name,
            tmp_path / "t",
            name_server=cluster.namesrv,
            once=True,
            spark=spark,
            options={"maxOffsetsPerTrigger": str(rows // batches)},
            say=look,
        )
    assert (report.read, report.written) == (rows, rows)
    print(
        f"{rows:,} rows of {queues:,} queues: {rows / (time.monotonic() - begin):,.0f} rows/s; "
        f"MiB after each batch: {[size >> 20 for size in sizes]}"
    )
    assert max(sizes[5:]) < most * max(sizes[1:5])
    (found,) = duckdb.execute(f"select count(distinct body) from '{tmp_path}/t/*/*.parquet'").fetchall()
    assert found == (rows,)
