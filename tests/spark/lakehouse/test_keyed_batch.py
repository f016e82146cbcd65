"""sparrowmq.spark.lakehouse.keyed_batch: a table has the last message of each key, after kills and repeats, too."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.lakehouse import lake_table
from sparrowmq.spark.lakehouse.batch_parts import PartResult
from sparrowmq.spark.lakehouse.keyed_batch import last_row_by_key
from sparrowmq.spark.lakehouse.lake_settings import SectionSettings, settings_of
from sparrowmq.spark.lakehouse.lake_table import LakeTable
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.staged_files import PartitionFiles
from sparrowmq.spark.pipelines.table import backfill
from sparrowmq.spark.pipelines.tables.batch_files import UploadTarget
from sparrowmq.spark.pipelines.tables.error_retry import Retry
from sparrowmq.spark.pipelines.tables.json_bodies import fields_in, merge_body_fields
from sparrowmq.spark.pipelines.tables.table_settings import load_settings
from sparrowmq.spark.source.partition_ranges import Bounds, Offsets
from tests.spark.lakehouse.lakes import declared
from tests.spark.pipelines.lake.s3 import RemoteTable
from tests.spark.pipelines.lake.tables import rows_of

pytestmark = pytest.mark.timeout(600)

QUEUES = [MessageQueue("orders", "a", number) for number in range(2)]
BEGIN = datetime(2026, 1, 31, 23, 59, tzinfo=UTC)
KINDS = ("delta", "iceberg")


class KilledError(Exception):
    pass


def killed(*_given, **_more):
    raise KilledError


class Orders:
    """A topic of two queues; a key is always in the same one. A message is (KEYS, property, body)."""

    def __init__(self, seed=0):
        self.chance = Random(seed)
        self.queues: dict[MessageQueue, list[tuple[str, str, bytes]]] = {queue: [] for queue in QUEUES}
        self.rows: dict[int, int | None] = {}  # what a table has after all messages
        self.bad = 0

    def put(self, key, value=None, *, deletes="", is_bad=False):
        text, prop, body = str(key), "", b""
        if is_bad:
            body = b'{"id":null}'
            self.bad += 1
        elif deletes == "property":
            prop, body = "d", json.dumps({"id": key}).encode()
        elif deletes == "field":
            body = json.dumps({"id": key, "op": "d"}).encode()
        elif not deletes:
            body = json.dumps({"id": key, "value": value}).encode()
        self.queues[QUEUES[key % 2]].append((text, prop, body))
        if deletes:
            self.rows.pop(key, None)
        elif not is_bad:
            self.rows[key] = value

    def put_as_it_is(self, body, is_bad=True):
        self.queues[QUEUES[0]].append(("", "", body))
        self.bad += is_bad

    def send(self, count, keys=20):
        for _ in range(count):
            key, draw = self.chance.randrange(keys), self.chance.random()
            if draw < 0.7:
                self.put(key, self.chance.randrange(10**6))
            elif draw < 0.95:
                self.put(key, deletes=self.chance.choice(["body", "property", "field"]))
            else:
                self.put(key, is_bad=True)


class Run:
    """One start of a lake, for the table."""

    def __init__(self, folder, kind, orders, clock=time.time, monotonic=None, **more):
        given = {"format": kind, "mode": "json", "key": "id", "deletes": "op=d", **more}
        settings = SectionSettings(to=f"{folder}/{{topic}}", **given)
        self.orders = orders
        self.table = LakeTable("orders", settings, {}, declared, monotonic or clock, clock)
        self.table.begin()

    def batch(self, most=10**6, death="never"):
        held = {queue: Bounds(0, len(some)) for queue, some in self.orders.queues.items()}
        starts = dict.fromkeys(held, 0)
        self.table.update_offsets(held, lambda _: Offsets(starts), lambda bounds: bounds.start, lambda _: {})
        if not self.table.is_due():
            return
        done = [self.written(part) for part in self.table.plan(most, 2, lambda _: {})]
        while again := self.table.parts_to_repeat(done):
            done = [self.written(part) for part in again]
        if death == "planned":
            raise KilledError
        with pytest.MonkeyPatch.context() as patch:
            rows, errors = self.table._open_lakes()
            if death == "before the rows":
                patch.setattr(rows, "commit", killed)
            if death == "after the rows":
                patch.setattr(errors, "commit", killed)
                patch.setattr(lake_table, "save_progress", killed)
            self.table.add(done)

    def written(self, part):
        """What a worker would write for a part."""
        shape = part.shape
        folder, done = Path(part.folder), PartResult(part.topic, read=part.rows)
        rows = PartitionFiles(folder / "rows", shape.staged_schema, part.layout)
        errors = PartitionFiles(folder / "errors", shape.error_schema, part.layout)
        with rows, errors:
            for each in part.ranges:
                for at in range(each.start, each.end):
                    split = shape.split(self.message(shape, each.queue, at))
                    for file, some in ((rows, split.rows), (errors, split.errors)):
                        if some.num_rows:
                            file.write(some)
                    bodies = split.errors.column("body").to_pylist()
                    done.body_fields = merge_body_fields([done.body_fields, fields_in(bodies, shape.depth, shape.key)])
        done.rows, done.errors = rows.files, errors.files
        if part.targets is not None:
            done.rows, done.errors = map(UploadTarget.upload_files, part.targets, (done.rows, done.errors))
        return done

    def message(self, shape, queue, at):
        keys, prop, body = self.orders.queues[queue][at]
        stored = BEGIN + timedelta(seconds=10 * at)
        row = {
            "topic": "orders", "brokerName": "a", "queueId": queue.queue_id, "queueOffset": at, "msgId": "m",
            "bornTimestamp": stored, "storeTimestamp": stored, "keys": keys,
            "properties": [("op", prop)] if prop else [], "body": body,
        }  # fmt: skip
        return pa.RecordBatch.from_pylist([row], schema=shape.source_schema)

    def check(self, kind):
        rows = self.seen(kind, self.table.root, self.table.state)
        found = {row["id"]: row.get("value") for row in rows}
        assert len(rows) == len(found) and found == self.orders.rows
        assert len(self.reasons(kind)) == self.orders.bad

    def reasons(self, kind):
        root, state = self.table.root.with_name("orders.errors"), self.table.state / "errors"
        return sorted(row["reason"] for row in (self.seen(kind, root, state) if self.orders.bad else []))

    def seen(self, kind, root, state):
        if isinstance(root, Address):
            return RemoteTable(kind, replace(root, state=state)).seen().to_pylist()
        return rows_of(kind, root, state)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def test_the_last_message_of_a_key_is_its_row_and_tombstones_take_rows_out(tmp_path, kind):
    orders = Orders()
    for key in range(6):
        orders.put(key, key)
        orders.put(key, key + 100)
    run = Run(tmp_path, kind, orders)
    run.batch()
    run.check(kind)
    orders.put(0, 7)
    orders.put(1, deletes="body")
    orders.put(2, deletes="property")
    orders.put(3, deletes="field")
    orders.put(1, is_bad=True)
    orders.put(99, deletes="body")  # of which there is no row
    run.batch()
    run.check(kind)
    for key in range(6):
        orders.put(key, deletes="body")
    run.batch()
    run.check(kind)
    orders.put(4, 5)
    run.batch()
    run.check(kind)
    run.table.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_kills_and_repeats_leave_the_last_row_of_each_key(tmp_path, kind, seed):
    play(tmp_path, kind, seed, 5)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [100, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(101, 105))])
def test_many_kills_and_repeats_leave_the_last_row_of_each_key(tmp_path, kind, seed):
    play(tmp_path, kind, seed, 20)


def play(folder, kind, seed, runs, **more):
    orders = Orders(seed)
    orders.send(30)
    deaths = ["planned", "before the rows", "after the rows", "never", "never"]
    for _ in range(runs):
        run = Run(folder, kind, orders, **more)
        with suppress(KilledError):
            for _ in range(3):
                orders.send(10)
                run.batch(orders.chance.randrange(1, 25), orders.chance.choice(deaths))
        run.table.close()
    run = Run(folder, kind, orders, **more)
    while not run.table.is_complete:
        run.batch()
    run.check(kind)
    run.table.close()


def test_files_without_the_keys_of_a_batch_stay(tmp_path):
    orders = Orders()
    for key in range(4):
        orders.put(key, key)
    run = Run(tmp_path, "delta", orders)
    run.batch()
    before = set(run.table._open_lakes()[0].paths())
    orders.put(10, 1)
    run.batch()
    assert before < set(run.table._open_lakes()[0].paths())
    orders.put(2, 1)
    run.batch()
    assert not before <= set(run.table._open_lakes()[0].paths())
    run.check("delta")
    run.table.close()


@pytest.mark.parametrize(
    "name",
    [
        "link",
        "f\u00fcr+alle",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("my lake", "ns%orders")),
    ],
)
def test_rows_are_replaced_in_folders_of_any_name_and_below_links(tmp_path, kind, name):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    orders = Orders()
    run = Run(tmp_path / name, kind, orders)
    for value in (1, 2, 2.5):  # the last one makes the column wider
        orders.put(1, value)
        orders.put(2, value)
        run.batch()
        run.check(kind)
    orders.put(2, deletes="body")
    run.batch()
    run.check(kind)
    run.table.close()


BAD_KEYS = [b'{"id":1.5}', b'{"id":2.0,"new":1}', b'{"id":1e999}', b'{"id":{"a":1}}', b'{"id":[1]}']
NOT_A_KEY = "the key id is neither a text nor a whole number"


@pytest.mark.parametrize("body", BAD_KEYS)
@pytest.mark.parametrize(
    "comes",
    [
        "first",
        pytest.param("beside others", marks=pytest.mark.slow),
        pytest.param("later", marks=pytest.mark.slow),
    ],
)
def test_a_message_whose_key_is_no_text_and_no_whole_number_is_a_reject(tmp_path, kind, body, comes):
    orders = Orders()
    run = Run(tmp_path, kind, orders)
    if comes == "later":
        orders.put(2, 1)
        run.batch()
    orders.put_as_it_is(body)
    if comes == "beside others":
        orders.put(2, 1)
    run.batch()
    orders.put(2, 3)
    orders.put(1, 4)
    run.batch()
    run.check(kind)
    assert run.reasons(kind) == [NOT_A_KEY] and run.table.table_settings.fields == {
        "id": "bigint",
        "value": "bigint",
    }
    run.table.close()


def test_a_body_that_has_the_key_in_another_case_says_so_and_takes_no_name_from_the_key(tmp_path, kind):
    orders = Orders()
    run = Run(tmp_path, kind, orders)
    for body in (b'{"ID":1}', b'{"Id":1,"id":1}'):
        orders.put_as_it_is(body)
    run.batch()
    orders.put(1, 2)
    run.batch()
    run.check(kind)
    says = "the body has {}, and the key is id; send it under this name"
    assert run.reasons(kind) == [says.format("ID"), says.format("Id")]
    run.table.close()


@pytest.mark.parametrize("declared", ["double", "struct<a:bigint>"])
def test_a_declared_key_of_another_type_says_what_to_do(tmp_path, kind, declared):
    with pytest.raises(ConfigError, match=f"the key id has the type {declared}; choose a column of int"):
        Run(tmp_path, kind, Orders(), mode="schema", schema=f"id {declared}")


def test_a_wider_schema_whose_key_is_none_is_refused_and_the_one_before_goes_on(tmp_path, kind):
    orders = Orders()
    run = Run(tmp_path, kind, orders, mode="schema", schema="id bigint,value bigint")
    orders.put(1, 2)
    run.batch()
    run.table.close()
    with pytest.raises(ConfigError, match="the key id has the type double; choose a column of int"):
        Run(tmp_path, kind, orders, mode="schema", schema="id double,value bigint")
    run = Run(tmp_path, kind, orders, mode="schema", schema="id bigint,value bigint")
    orders.put(1, 3)
    run.batch()
    run.check(kind)
    run.table.close()


def test_a_field_of_bodies_may_have_any_name(tmp_path, kind):
    orders = Orders()
    run = Run(tmp_path, kind, orders)
    for value in (1, 2):
        orders.put_as_it_is(b'{"id":1,"_deleted":true,"deleted":%d}' % value, is_bad=False)
        run.batch()
    root = run.table.state.with_name("orders")
    [row] = rows_of(kind, root, run.table.state)
    assert (row["_deleted"], row["deleted"]) == (True, 2)
    assert set(row) == {"_mq", "_day", "id", "_deleted", "deleted"}
    run.table.close()


def test_of_two_queues_the_later_name_counts_and_within_one_the_later_offset():
    place = pa.struct([("brokerName", pa.string()), ("queueId", pa.int32()), ("queueOffset", pa.int64())])
    places = [("a", 1, 5), ("b", 0, 1), ("a", 1, 9), ("a", 0, 7)]
    rows = pa.table({
        "_mq": pa.array([dict(zip(place.names, each, strict=True)) for each in places], place),
        "id": ["x", "y", "x", "y"], "value": [1, 2, 3, 4],
    })  # fmt: skip
    found = last_row_by_key(rows, "id").select(["id", "value"]).to_pylist()
    assert sorted(found, key=str) == [{"id": "x", "value": 3}, {"id": "y", "value": 2}]


def test_other_settings_and_other_writers_are_refused(tmp_path):
    orders = Orders()
    orders.put(1, 1)
    run = Run(tmp_path, "delta", orders)
    run.batch()
    run.table.close()
    root = tmp_path / "orders"
    settings = SectionSettings(to=f"{tmp_path}/{{topic}}", format="delta", mode="json")
    with pytest.raises(ConfigError, match="was begun with key 'id', not None"):
        LakeTable("orders", settings, {}, declared).begin()
    settled = load_settings(root)
    assert settled is not None
    with pytest.raises(ConfigError, match="has one row for each id, and a retry would overwrite newer rows"):
        Retry(root, settled)
    with pytest.raises(ConfigError, match="has one row for each id, and a backfill"):
        backfill(root, tmp_path)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"key": "id"}, "write another mode than raw"),
        ({"key": "id", "mode": "json"}, 'format = "delta" or "iceberg"'),
        ({"deletes": "op=d"}, 'deletes goes with a key; write the column, as key = "id"'),
        ({"key": "_Day", "mode": "json", "format": "delta"}, "_Day is a column that each table has itself"),
        (
            {"key": "id", "mode": "schema", "schema": "Id bigint, n string", "format": "delta"},
            r"no column of the schema; did you mean Id\?",
        ),
        (
            {"key": "id", "mode": "schema", "schema": "a struct<id:int>, n string", "format": "delta"},
            "no column of the schema; it has a, n",
        ),
    ],
)
def test_settings_that_do_not_fit_say_what_to_do(section, says):
    given = {"name_server": "127.0.0.1:9876", "tables": {"a": {"to": "/lake/{topic}", **section}}}
    with pytest.raises(ConfigError, match=says):
        settings_of(given, "lake.toml")


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("id", None),
        ("ID", r"did you mean id\?"),
        ("no", "it has id, place"),
        ("price", "the key price has the type double; choose a column of integers or texts"),
    ],
)
def test_the_key_is_a_column_of_the_file_of_a_schema(tmp_path, key, says):
    pytest.importorskip("fastavro")
    fields = [
        {"name": "id", "type": "long"},
        {"name": "place", "type": "string"},
        {"name": "price", "type": "double"},
    ]
    (tmp_path / "s.avsc").write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    section = {"mode": "avro", "schema_file": str(tmp_path / "s.avsc"), "format": "delta", "key": key}
    given = {"name_server": "127.0.0.1:9876", "tables": {"a": {"to": "/lake/{topic}", **section}}}
    with pytest.raises(ConfigError, match=says) if says else nullcontext():
        settings_of(given, "lake.toml")
