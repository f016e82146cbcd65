"""sparrowmq.spark.lakehouse.lake_table: one table's batches, failures and figures, without a broker."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.lakehouse.batch_parts import PartResult
from sparrowmq.spark.lakehouse.lake_settings import SectionSettings
from sparrowmq.spark.lakehouse.lake_status import state_of_table
from sparrowmq.spark.lakehouse.lake_table import PERMANENT_PAUSE_S, LakeTable
from sparrowmq.spark.pipelines.lake.parquet import RemoteParquetFolder
from sparrowmq.spark.pipelines.lake.staged_files import PartitionFiles
from sparrowmq.spark.pipelines.running.folders import lock_folder
from sparrowmq.spark.pipelines.tables import error_retry
from sparrowmq.spark.pipelines.tables.batch_files import UploadTarget
from sparrowmq.spark.pipelines.tables.json_bodies import fields_in
from sparrowmq.spark.pipelines.tables.table_settings import load_settings
from sparrowmq.spark.source.partition_ranges import Bounds, Offsets, RowsLost
from tests.spark.lakehouse.lakes import declared, rows_of
from tests.spark.lakehouse.test_arrow_rows import messages

QUEUE = MessageQueue("orders", "a", 0)


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def make(tmp_path, clock):
    """Makes the table of the topic, begun."""
    made = []

    def make(given=None, **settings):
        found = SectionSettings(**{"to": f"{tmp_path}/{{topic}}", **settings})
        table = LakeTable("orders", found, given or {}, declared, clock)
        table.begin()
        made.append(table)
        return table

    yield make
    for table in made:
        table.close()


def look(table, end, start=0):
    held, starts = {QUEUE: Bounds(start, end)}, Offsets({QUEUE: start})
    table.update_offsets(held, lambda _: starts, lambda held: held.start, lambda queues: {"b": 900 + len(queues)})


def work(parts, bodies=None):
    """What workers would write for parts; a body for each offset."""
    found = []
    for part in parts:
        shape, folder = part.shape, Path(part.folder)
        files = PartitionFiles(folder / "rows", shape.schema, part.layout)
        errors = PartitionFiles(folder / "errors", shape.error_schema, part.layout)
        with files, errors:
            for each in part.ranges:
                for at in range(each.start, each.end):
                    split = shape.split(messages(shape, [bodies(at) if bodies else b"%d" % at]))
                    files.write(split.rows)
                    if split.errors.num_rows:
                        errors.write(split.errors)
        rows, bad = files.files, errors.files
        if part.targets is not None:
            rows, bad = map(UploadTarget.upload_files, part.targets, (rows, bad))
        found.append(PartResult(part.topic, rows, bad, part.rows, size=part.rows * 10, oldest_ms=1))
    return found


def addresses(_names):
    return {}


def test_a_batch_is_planned_added_and_counted(make):
    table = make()
    assert not table.is_due() and not table.is_complete
    look(table, 10, start=4)
    assert table.is_due() and (table.lag, table.waiting_messages) == (6, 6)
    written = work(table.plan(4, 2, addresses))
    assert not table.is_complete
    table.add(written)
    assert (table.offsets, table.lag, table.figures.rows, table.figures.batches) == ({QUEUE: 8}, 2, 4, 1)
    table.add(work(table.plan(100, 2, addresses)))
    assert table.is_complete and not table.is_due()
    assert sorted(int(row["body"]) for row in rows_of(table.root)) == list(range(4, 10))
    assert not list((table.state / "staged").iterdir())


def test_a_table_goes_on_where_it_was(make):
    table = make()
    look(table, 5)
    table.add(work(table.plan(100, 2, addresses)))
    table.close()
    again = make()
    assert again.offsets == {QUEUE: 5}
    assert (again.table_settings.first_offsets(), again.table_settings.newest_ms) == ({QUEUE: 0}, {"b": 901})
    look(again, 7)
    again.add(work(again.plan(100, 2, addresses)))
    assert sorted(int(row["body"]) for row in rows_of(table.root)) == list(range(7))


def test_a_batch_that_failed_is_the_next_one_with_the_same_messages(make, clock):
    table = make()
    look(table, 5)
    parts = table.plan(3, 2, addresses)
    table.fail(OSError("no space left on device"))
    assert not table.is_due() and table.has_failed and not table.is_permanent
    clock.now_s += 1.1
    look(table, 9)
    assert table.is_due() and table.waiting_messages == 3
    again = table.plan(100, 2, addresses)
    assert [part.ranges for part in again] == [part.ranges for part in parts]
    table.add(work(again))
    assert not table.has_failed and table.figures.failures == 1


def test_pauses_grow_to_a_minute_and_are_longer_where_somebody_must_act(make, clock):
    table = make()
    look(table, 5)
    pauses = []
    for _ in range(8):
        table.fail(OSError("away"))
        begin = clock.now_s
        while not table.may_try():
            clock.now_s += 0.5
        pauses.append(clock.now_s - begin)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    table.fail(RowsLost("offsets 1 to 3 are gone"))
    assert table.is_permanent
    clock.now_s += 61
    assert not table.may_try()
    clock.now_s += PERMANENT_PAUSE_S
    assert table.may_try()


def test_every_is_the_least_time_between_two_batches(make, clock):
    table = make(every_s=60)
    look(table, 5)
    table.add(work(table.plan(100, 2, addresses)))
    clock.now_s += 30
    look(table, 6)
    assert table.lag == 1 and not table.is_due()
    clock.now_s += 31
    assert table.is_due()


def test_a_topic_that_was_made_again_has_lost_rows(make):
    table = make()
    look(table, 5)
    table.add(work(table.plan(100, 2, addresses)))
    with pytest.raises(RowsLost, match="was deleted and made again"):
        look(table, 2)


def test_the_messages_of_a_broker_that_is_away_stay_in_the_lag(make):
    table = make()
    look(table, 5)
    table.update_offsets({}, dict, len, dict)
    assert table.lag == 5 and not table.is_due() and state_of_table(table) == "behind"


def test_where_a_lost_topic_is_no_failure_the_new_one_is_read_from_its_first_row(make):
    table = make({"failOnDataLoss": "false"})
    look(table, 5)
    table.add(work(table.plan(100, 2, addresses)))
    look(table, 2)
    assert table.lag == 2
    table.add(work(table.plan(100, 2, addresses)))
    assert table.is_complete and len(rows_of(table.root)) == 7 and table.figures.recreated == 1
    look(table, 3)
    table.add(work(table.plan(100, 2, addresses)))
    assert table.figures.recreated == 1
    table.close()
    again = make({"failOnDataLoss": "false"})
    look(again, 3)
    assert again.is_complete


def test_where_a_lost_row_is_no_failure_it_goes_on_and_counts(make):
    table = make({"failOnDataLoss": "false"})
    look(table, 5)
    parts = table.plan(100, 2, addresses)
    table.add([PartResult("orders", read=3)])
    assert parts and table.figures.lost == 2


def test_fields_become_columns_that_are_kept_before_a_row_has_them(make):
    table = make(mode="json")
    look(table, 1)
    [part] = table.plan(100, 1, addresses)
    assert part.shape.kinds == {}
    found = fields_in([b'{"id":7,"name":"x"}'])
    [again] = table.parts_to_repeat([PartResult("orders", body_fields=found)])
    assert sorted(again.shape.kinds) == ["id", "name"] and again.ranges == part.ranges
    kept = load_settings(table.root)
    assert kept is not None and sorted(kept.fields) == ["id", "name"]
    assert table.parts_to_repeat([PartResult("orders", body_fields=found)]) == []
    table.add(work([again], lambda at: b'{"id":7,"name":"x"}'))
    assert [(row["id"], row["name"]) for row in rows_of(table.root)] == [(7, "x")]


def test_a_start_names_the_files_that_readers_miss(make):
    table = make(format="delta")
    look(table, 5)
    table.add(work(table.plan(100, 2, addresses)))
    (file,) = table.root.rglob("*.parquet")
    file.unlink()
    table.close()
    said = table.begin()
    assert said.startswith(f"readers of {table.root} fail, as {file}, which its log names, is gone")
    assert table.missing_files == said


def test_another_run_at_the_table_is_refused(make, tmp_path):
    with lock_folder(tmp_path / "orders.state"), pytest.raises(ConfigError, match="another run is at work"):
        make()


def test_another_run_that_reaches_the_table_by_a_link_is_refused(make, tmp_path):
    table = make()
    look(table, 5)
    table.add(work(table.plan(100, 2, addresses)))
    (tmp_path / "other").mkdir()
    (tmp_path / "other/orders").symlink_to(table.root)
    with pytest.raises(ConfigError, match="another run is at work"):
        make(to=f"{tmp_path}/other/{{topic}}")
    table.close()
    assert make(to=f"{tmp_path}/other/{{topic}}").offsets == {QUEUE: 5}


def test_files_are_merged_and_old_days_taken_out(make):
    table = make(keep_days=30)
    for end in range(1, 5):
        look(table, end)
        table.add(work(table.plan(100, 2, addresses)))
    assert table.merge(date(2026, 2, 1)) == (4, 1, 0)
    assert table.figures.files == 1 and len(rows_of(table.root)) == 4
    assert table.merge(date(2026, 3, 5)) == (1, 0, 1)
    assert rows_of(table.root) == []


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_batch_that_one_table_has_is_ended_with_the_columns_that_it_began_with(make, has_rows):
    """Killed between the two tables, or after both, and then the schema gets wider."""

    def bodies(at):
        return b'{"id":"text"}' if at == 0 or not has_rows else b'{"id":%d}' % at

    table = make(mode="schema", schema="id bigint")
    look(table, 3)
    written = work(table.plan(100, 1, addresses), bodies)
    errors = table._open_lakes()[1]
    if has_rows:
        errors.commit = _die
    else:
        commit = errors.commit
        errors.commit = lambda *given: (commit(*given), _die())
    with pytest.raises(_DeadError):
        table.add(written)
    table.close()
    again = make(mode="schema", schema="id string,more string")
    again.add(work(again.plan(100, 1, addresses), bodies))
    assert (again.figures.rows, again.figures.errors) == ((0, 1) if has_rows else (0, 0))
    assert len(rows_of(again.root)) + len(rows_of(again.root.with_name("orders.errors"))) == 3
    look(again, 4)
    again.add(work(again.plan(100, 1, addresses), bodies))
    assert sorted(row["id"] for row in rows_of(again.root)) == (["1", "2", "3"] if has_rows else ["text"])


def test_rejects_that_were_committed_behind_an_address_and_not_moved_are_moved_by_the_next_attempt(
    make, tmp_path, monkeypatch, clock
):
    def bodies(at):
        return b"no json" if at == 1 else b'{"id":%d}' % at

    def move(self, source, name):
        if ".errors" in source:
            raise OSError("the store is away")
        _move(self, source, name)

    table = make(
        to=f"file://{tmp_path}/{{topic}}",
        state=f"{tmp_path}/state/{{topic}}",
        mode="schema",
        schema="id bigint",
    )
    look(table, 3)
    _move = RemoteParquetFolder._move_staged
    with monkeypatch.context() as patch:
        patch.setattr(RemoteParquetFolder, "_move_staged", move)
        with pytest.raises(OSError, match="the store is away"):
            table.add(work(table.plan(100, 1, addresses), bodies))
        table.fail("the store is away")
    table.add(work(table.plan(100, 1, addresses), bodies))
    assert table.is_complete
    look(table, 4)
    table.add(work(table.plan(100, 1, addresses), bodies))
    assert sorted(row["id"] for row in rows_of(tmp_path / "orders")) == [0, 2, 3]
    assert [row["body"] for row in rows_of(tmp_path / "orders.errors")] == [b"no json"]


class _DeadError(Exception):
    pass


def _die(*_args):
    raise _DeadError


def test_a_retry_of_errors_that_was_killed_is_finished_first(make, monkeypatch):
    table = make(mode="schema", schema="id bigint")
    look(table, 2)
    table.add(work(table.plan(100, 1, addresses), lambda at: b'{"id":%d.5}' % at if at else b'{"id":0}'))
    table.close()
    settled = load_settings(table.root)
    assert settled is not None
    settled.fields = {"id": "double"}
    with monkeypatch.context() as patch:
        patch.setattr(error_retry, "rewrite_files", _die)
        with pytest.raises(_DeadError):
            error_retry.Retry(table.root, settled).run()
    errors = table.root.with_name("orders.errors")
    assert len(rows_of(table.root)) == 2 and len(rows_of(errors)) == 1
    make(mode="schema", schema="id double")
    assert sorted(row["id"] for row in rows_of(table.root)) == [0, 1.5]
    assert not rows_of(errors)


def test_columns_that_an_older_copy_of_the_settings_lacks_are_those_of_the_table(make):
    table = make(mode="schema", schema="id bigint")
    look(table, 1)
    table.add(work(table.plan(100, 1, addresses), lambda at: b'{"id":%d}' % at))
    older = (table.state / "table.json").read_text()
    table.close()
    wider = make(mode="schema", schema="id string")
    look(wider, 2)
    wider.add(work(wider.plan(100, 1, addresses), lambda at: b'{"id":"text"}'))
    wider.close()
    (wider.state / "table.json").write_text(older)
    again = make(mode="schema", schema="id bigint")
    look(again, 3)
    again.add(work(again.plan(100, 1, addresses), lambda at: b'{"id":%d}' % at))
    assert sorted(row["id"] for row in rows_of(again.root)) == ["0", "2", "text"]
