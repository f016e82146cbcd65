"""sparrowmq.spark.pipelines.tables.table_writer: a batch is in a table once."""

from datetime import date

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.staged_files import Staged, StagedFile
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.spark.pipelines.running.session import own_session
from sparrowmq.spark.pipelines.tables.json_bodies import MAX_DEPTH
from sparrowmq.spark.pipelines.tables.row_shapes import Objects
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings
from sparrowmq.spark.pipelines.tables.table_writer import TableWriter
from tests.spark.pipelines.lake.tables import DAY, KINDS, KINDS_AT_LENGTH, Table, as_all_see_it, rows_of

pytestmark = pytest.mark.timeout(300)


def writer(root, mode="raw", kind="parquet", fields=(), depth=0, type_changes="widen"):
    settled = TableSettings("orders", kind, mode, None, dict(fields), "w", depth=depth, type_changes=type_changes)
    return TableWriter(root, settled, Report())


def test_a_repeated_batch_adds_no_rows(topic, tmp_path):
    topic.send(0, 3)
    messages = topic.read()
    first = writer(tmp_path / "orders")
    assert first.last_batch == -1
    assert first.write(messages, 0) == "3 rows, 0 errors"
    again = writer(tmp_path / "orders")
    assert again.write(messages, 0) == "0 rows, 0 errors"
    assert (first.report.written, again.report.written, again.last_batch) == (3, 0, 0)


def test_a_table_of_an_earlier_release_needs_its_checkpoint(topic, tmp_path):
    """Its commits do not say which offsets they have."""
    topic.send(0, 1)
    writer(tmp_path / "orders").write(topic.read(), 0)
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(ConfigError, match="is gone, so it is not known which messages"):
        writer(tmp_path / "orders").resume(checkpoint, print)
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text("{}")
    assert writer(tmp_path / "orders").resume(checkpoint, print) is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_AT_LENGTH)
def test_names_that_clash_stop_no_table(topic, tmp_path, kind):
    topic.spark = own_session(topic.spark)  # its timestamps are those that Iceberg reads
    topic.send_bodies([b'{"order":1}', b'{"ORDER":2}', b'{"_day":3}', b'{"order":4}', b'{"":5}'])
    first = writer(tmp_path / "orders", "json", kind)
    assert first.write(topic.read(), 0) == "2 rows, 3 errors"
    assert first.settings.fields == {"order": "bigint"}
    topic.send_bodies([b'{"Order":6,"a b":1,"a.b`c,;{}()":2,"=\\n\\t":3}', b'{"a b":1,"a.b`c,;{}()":2,"=\\n\\t":3}'])
    assert writer(tmp_path / "orders", "json", kind, first.settings.fields).write(topic.read(), 1) == "3 rows, 4 errors"
    found = rows_of(kind, tmp_path / "orders", tmp_path / "orders.state")
    assert sorted(row["order"] for row in found if row["order"] is not None) == [1, 1, 4, 4]
    assert [row["a.b`c,;{}()"] for row in found if row["a b"] == 1] == [2]


@pytest.mark.slow
def test_a_table_that_a_clash_had_stopped_goes_on(topic, tmp_path):
    topic.send_bodies([b'{"order":1}'])
    first = writer(tmp_path / "orders", "json")
    first.write(topic.read(), 0)
    topic.send_bodies([b'{"ORDER":2}'])
    again = writer(tmp_path / "orders", "json", fields={"ORDER": "bigint", "order": "bigint", "_day": "bigint"})
    assert again.write(topic.read(), 1) == "1 row, 1 error"
    assert again.settings.fields == {"order": "bigint"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_AT_LENGTH)
def test_columns_get_wider_and_grow_from_batch_to_batch(topic, tmp_path, kind):
    topic.spark = own_session(topic.spark)
    steps = [
        (b'{"amount":5,"at":{"x":1},"lines":[{"n":1}],"id":9007199254740993}', {}),
        (b'{"amount":5.5,"at":{"x":2,"y":[true]},"lines":[{"n":1,"sku":"a"}]}', {"amount": "double"}),
        (b'{"id":0.5,"lines":[{"n":2.5}],"at":{"x":"far"}}', {"id": "string"}),
        (b'{"amount":"none","id":true,"new":{"a":{"b":1}}}', {"amount": "string"}),
    ]
    fields: dict[str, str] = {}
    for batch, (body, wanted) in enumerate(steps):
        topic.send_bodies([body])
        written = writer(tmp_path / "orders", "json", kind, fields, MAX_DEPTH, "any")
        assert written.write(topic.read().where(f"body = cast('{body.decode()}' as binary)"), batch) == (
            "1 row, 0 errors"
        )
        fields = written.settings.fields
        assert wanted.items() <= fields.items()
    assert fields == {
        "amount": "string",
        "at": "struct<x:string,y:array<boolean>>",
        "id": "string",
        "lines": "array<struct<n:double,sku:string>>",
        "new": "struct<a:struct<b:bigint>>",
    }
    readers = as_all_see_it(topic.spark, kind, tmp_path / "orders", tmp_path / "orders.state")
    for reader, rows in readers.items():
        found = sorted(rows.to_pylist(), key=lambda row: (row["amount"] or "", row["id"] or ""))
        assert [(row["amount"], row["id"]) for row in found] == [
            (None, "0.5"), ("5", "9007199254740993"), ("5.5", None), ("none", "true"),
        ], reader  # fmt: skip
        assert [row["at"] for row in found] == [
            {"x": "far", "y": None}, {"x": "1", "y": None}, {"x": "2", "y": [True]}, None,
        ], reader  # fmt: skip
        assert [row["lines"] for row in found][:3] == [
            [{"n": 2.5, "sku": None}], [{"n": 1.0, "sku": None}], [{"n": 1.0, "sku": "a"}],
        ], reader  # fmt: skip


def test_values_that_would_make_a_column_of_numbers_text_are_errors(topic, tmp_path):
    topic.send_bodies([b'{"id":1}'])
    writer(tmp_path / "orders", "json").write(topic.read(), 0)
    files = set((tmp_path / "orders").rglob("*.parquet"))
    topic.send_bodies([b'{"id":"poison"}', b'{"id":%s}' % (b"9" * 44)])
    again = writer(tmp_path / "orders", "json", fields={"id": "bigint"})
    assert again.write(topic.read(), 1) == "1 row, 2 errors"
    assert again.settings.fields == {"id": "bigint"} and files <= set((tmp_path / "orders").rglob("*.parquet"))
    reasons = [row["reason"] for row in rows_of("parquet", tmp_path / "orders.errors", tmp_path / "state")]
    assert reasons == ["id is no bigint"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS_AT_LENGTH)
def test_hostile_bodies_are_errors_and_the_table_goes_on(topic, tmp_path, kind):
    topic.spark = own_session(topic.spark)
    many = b"{%s}" % b",".join(b'"f%06d":1' % number for number in range(100_000))
    topic.send_bodies([b'{"a":{"b":1}}', b'{"a":{"b":2}}', b'{"a.b":3}', many, b'{"a":{"":4}}', b'{"\\ud800":5}'])
    written = writer(tmp_path / "orders", "json", kind, depth=MAX_DEPTH)
    assert written.write(topic.read(), 0) == "2 rows, 4 errors"
    assert written.settings.fields == {"a": "struct<b:bigint>"}
    topic.send_bodies([b'{"a":5}', b'{"a":{"b":6}}'])
    assert written.write(topic.read(), 1) == "3 rows, 5 errors"
    assert written.settings.fields == {"a": "struct<b:bigint>"}
    assert len(rows_of(kind, tmp_path / "orders", tmp_path / "orders.state")) == 5


def test_columns_that_could_not_be_kept_are_not_in_use(tmp_path, monkeypatch):
    settled = TableSettings("orders", "parquet", "json", None, {"a": "bigint"})
    writer = TableWriter(tmp_path / "orders", settled, Report())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sparrowmq.spark.pipelines.tables.table_writer.save_settings", full)
    with pytest.raises(OSError, match="No space"):
        writer._save_fields({"a": "bigint", "b": "string"})
    assert settled.fields == {"a": "bigint"}


@pytest.mark.slow
def test_a_batch_that_one_table_has_is_ended_with_the_columns_that_it_began_with(topic, tmp_path, monkeypatch):
    """Killed between the two tables, and then the columns became wider: the message must not vanish."""
    topic.send_bodies([b'{"id":1}', b'{"id":"text"}'])
    root = tmp_path / "orders"
    first = writer(root, "schema", fields={"id": "bigint"})
    with monkeypatch.context() as patch:
        patch.setattr(Objects, "error_rows", _die)
        with pytest.raises(_DeadError):
            first.write(topic.read(), 0)
    again = writer(root, "schema", fields={"id": "string"})
    assert again.write(topic.read(), 0) == "0 rows, 1 error"
    assert [row["reason"] for row in rows_of("parquet", tmp_path / "orders.errors", root)] == ["id is no bigint"]
    assert again.write(topic.read(), 1) == "2 rows, 0 errors"
    assert sorted(row["id"] for row in rows_of("parquet", root, root)) == ["1", "1", "text"]


class _DeadError(Exception):
    pass


def _die(*_args):
    raise _DeadError


def test_a_schema_whose_type_does_not_hold_the_values_is_refused(topic, tmp_path):
    topic.send_bodies([b'{"id":9007199254740993}'])
    writer(tmp_path / "orders", "schema", fields={"id": "bigint"}).write(topic.read(), 0)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text("{}")
    with pytest.raises(ConfigError, match="has integers in id that double does not hold exactly"):
        writer(tmp_path / "orders", "schema", fields={"id": "double"}).resume(checkpoint, print)
    writer(tmp_path / "orders", "schema", fields={"id": "string"}).resume(checkpoint, print)


def test_a_start_names_the_files_that_readers_miss(tmp_path):
    table, said = Table(tmp_path, "delta"), list[str]()
    table.add(0, 1)
    (file,) = table.open().paths()
    file.unlink()
    writer(table.place.folder, kind="delta").resume(tmp_path / "checkpoint", said.append)
    assert [f"readers of {table.place.folder} fail, as {file}, which" in line for line in said] == [True]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_that_an_older_copy_of_the_settings_lacks_are_those_of_the_table(tmp_path, kind):
    root = tmp_path / "orders"
    writer(root, "json", kind)._rows.commit(0, staged(tmp_path, kind, {"amount": 5.5, "at": {"x": "far"}}))
    again = writer(root, "json", kind, {"amount": "bigint"})
    assert again.settings.fields == {"amount": "double", "at": "struct<x:string>"}
    assert writer(root, "schema", kind, {"amount": "bigint"}).settings.fields == {"amount": "double"}
    assert writer(root, "raw", kind).settings.fields == {}


def staged(folder, kind, row):
    """The files of a batch with one row."""
    rows = pa.Table.from_pylist([{"_mq": {"queueId": 0}, "_day": date.fromisoformat(DAY), **row}])
    pq.write_table(rows if kind == "iceberg" else rows.drop_columns("_day"), folder / "rows.parquet")
    size = (folder / "rows.parquet").stat().st_size
    return Staged([StagedFile(folder / "rows.parquet", f"_day={DAY}/w-0.parquet", f"_day={DAY}", 1, size)], rows.schema)
