"""sparrowmq.spark.lakehouse.lake_progress: a lake's table with a lost, an older or a doubled state."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.lakehouse import lake_table
from sparrowmq.spark.lakehouse.batch_parts import PartResult
from sparrowmq.spark.lakehouse.lake_progress import Progress, TableState, batch_record, compare_progress
from sparrowmq.spark.lakehouse.lake_settings import SectionSettings
from sparrowmq.spark.lakehouse.lake_table import LakeTable
from sparrowmq.spark.pipelines.lake.staged_files import PartitionFiles
from sparrowmq.spark.pipelines.tables.json_bodies import fields_in
from sparrowmq.spark.pipelines.tables.progress import parse_record
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings
from sparrowmq.spark.pipelines.tables.table_writer import ERRORS, ROWS
from sparrowmq.spark.source.partition_ranges import Bounds, Offsets
from tests.spark.lakehouse.lakes import declared
from tests.spark.lakehouse.test_arrow_rows import messages
from tests.spark.pipelines.lake.tables import KINDS, rows_of, take_back
from tests.spark.pipelines.tables.mishaps import Killed, Mishaps

QUEUE = MessageQueue("orders", "a", 0)
SETTLED = TableSettings("orders", "delta", "json", None, fields={"number": "bigint"})


def body(number):
    return b"bad %d" % number if number % 4 == 0 else json.dumps({"number": number}).encode()


def written(part, queues):
    """What a worker would write for a part."""
    shape = part.shape
    folder, done = Path(part.folder), PartResult(part.topic, read=part.rows)
    rows = PartitionFiles(folder / "rows", shape.schema, part.layout)
    errors = PartitionFiles(folder / "errors", shape.error_schema, part.layout)
    with rows, errors:
        for each in part.ranges:
            bodies = [body(number) for number in queues[each.queue.queue_id][each.start : each.end]]
            split = shape.split(messages(shape, bodies))
            for file, some in ((rows, split.rows), (errors, split.errors)):
                if some.num_rows:
                    file.write(some)
            done.body_fields |= fields_in(bodies, shape.depth)
    done.rows, done.errors = rows.files, errors.files
    return done


class LakeRun:
    """One start of a lake, for one table. Raises: ConfigError, as the lake."""

    def __init__(self, root, kind, topic):
        settings = SectionSettings(to=f"{root.parent}/{{topic}}", format=kind, mode="json")
        self.table, self.queues = LakeTable("orders", settings, {}, declared), topic.queues
        self.to_json = self.table.begin()

    def look(self):
        held = {MessageQueue("orders", "b", queue): Bounds(0, len(some)) for queue, some in self.queues.items()}
        starts = dict.fromkeys(held, 0)
        self.table.update_offsets(held, lambda _: Offsets(starts), lambda bounds: bounds.start, lambda _: {})

    def batch(self, most, death="never"):
        """Do a batch. Raises: Killed, at the step `death` of it."""
        self.look()
        if not self.table.is_due():
            return
        done = [written(part, self.queues) for part in self.table.plan(most, 2, lambda _: {})]
        if not self.table.is_begun:  # another program has taken it back
            return
        if again := self.table.parts_to_repeat(done):
            done = [written(part, self.queues) for part in again]
        if death == "planned":
            raise Killed
        with pytest.MonkeyPatch.context() as patch:
            if death == ROWS:
                patch.setattr(self.table._open_lakes()[1], "commit", killed)
            if death == ERRORS:
                patch.setattr(lake_table, "save_progress", killed)
            self.table.add(done)


def killed(*_):
    raise Killed


class LakeMishaps(Mishaps):
    parts = ("", "", "lake.json", "table.json", "lake.done", "catalog.db", "errors")

    def run(self, *, is_whole=False):
        run = None
        try:
            run = LakeRun(self.root, self.kind, self.topic)
            self.resumed += bool(run.to_json)
            steps = ("planned", ROWS, ERRORS, *["never"] * 4)
            for _ in range(self.chance.randrange(1, 4)):
                run.batch(self.chance.randrange(1, 20), "never" if is_whole else self.chance.choice(steps))
            while is_whole and not run.table.is_complete:
                run.batch(100)
        except Killed:
            pass
        finally:
            if run is not None:
                run.table.close()

    def has(self, table):
        path = self.folders["table" if table == ROWS else "errors"]
        state = self.folders["state"] / ("" if table == ROWS else "errors")
        rows = rows_of(self.kind, path, state)
        if table == ROWS:
            return Counter(row["number"] for row in rows)
        return Counter(int(row["body"].split()[1]) for row in rows)


@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seed"), [("delta", 0), ("iceberg", 0), ("delta", 1), ("iceberg", 1)])
def test_after_each_mishap_each_message_is_there_once_or_the_start_is_refused(tmp_path, kind, seed):
    mishaps = LakeMishaps(tmp_path, kind, seed)
    mishaps.play(8)
    assert mishaps.resumed > mishaps.refused


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_after_many_mishaps_each_message_is_there_once_or_the_start_is_refused(tmp_path, kind):
    resumed = refused = 0
    for seed in range(100, 104):
        mishaps = LakeMishaps(tmp_path / str(seed), kind, seed)
        mishaps.play(10)
        resumed, refused = resumed + mishaps.resumed, refused + mishaps.refused
    assert resumed and refused


def planned(batch, start, end, incarnation=1, **known):
    part = {("orders", "a"): incarnation}
    return Progress(batch, Offsets({QUEUE: start}, part), Offsets({QUEUE: end}, part), **known)


def held(progress, other=-1, *, is_half=False):
    return TableState(progress.batch, parse_record(batch_record(progress, SETTLED, other=other, is_half=is_half)))


NONE = TableState(-1, None)


@pytest.fixture
def decide(tmp_path):
    root, state = tmp_path / "orders", tmp_path / "orders.state"

    def decide(progress, rows, errors=NONE):
        return compare_progress(root, state, progress, rows, errors)

    return decide


def test_a_state_that_is_the_one_of_its_tables_stays(decide):
    done = planned(3, 5, 9, rows=3, errors=2)
    for progress in (done, replace(done, is_done=False), planned(4, 9, 12, rows=3, errors=2)):
        found = decide(progress, held(done, 2), held(planned(2, 1, 5), 2))
        assert (found.progress, found.difference) == (progress, "")


def test_a_topic_that_was_made_again_is_no_other_copy(decide):
    progress = planned(4, 0, 2, incarnation=2)
    assert decide(progress, held(planned(3, 5, 9))).difference == ""
    assert decide(planned(4, 0, 2), held(planned(3, 5, 9))).difference.startswith("its state is another copy")


def test_a_batch_of_which_only_the_rows_are_there_is_done_again(decide):
    batch = planned(7, 5, 9)
    found = decide(Progress(), held(batch, 6, is_half=True), held(planned(6, 1, 5), 6))
    assert found.difference == "its state was lost" and found.fields == {"number": "bigint"}
    assert found.progress == replace(batch, is_done=False, rows=7, errors=6)
    whole = decide(Progress(), held(batch, 6, is_half=True), held(batch, 7))
    assert whole.progress == planned(7, 9, 9, rows=7, errors=7)


def test_batches_get_no_number_again_that_a_table_had_before_it_was_restored(decide):
    found = decide(planned(9, 20, 22, rows=8, errors=-1), held(planned(5, 1, 5)))
    assert found.difference == "its state is newer than the table"
    assert found.progress == planned(9, 5, 5, rows=5, errors=-1)


def test_tables_of_different_times_are_refused(decide):
    with pytest.raises(ConfigError, match="restore both from the same time"):
        decide(planned(9, 20, 22), held(planned(9, 20, 22), 8), held(planned(12, 25, 30), 11))


def test_a_table_that_is_gone_is_refused(decide, tmp_path):
    with pytest.raises(ConfigError, match=r"is empty, but .* restore the table"):
        decide(planned(9, 20, 22, rows=8), NONE)
    lost = planned(9, 20, 22, rows=9, errors=3)
    with pytest.raises(ConfigError, match=r"orders\.errors is gone; restore it, or make an empty folder"):
        decide(lost, held(planned(9, 20, 22), 3))
    (tmp_path / "orders.errors").mkdir()
    assert decide(lost, held(planned(9, 20, 22), 3)).difference == ""


def test_a_table_of_an_earlier_release_goes_on_with_its_own_state_only(decide):
    assert decide(planned(9, 20, 22), TableState(9, None)).difference == ""
    for progress in (planned(8, 18, 20), Progress()):
        with pytest.raises(ConfigError, match="restore the newest copy of the state"):
            decide(progress, TableState(9, None))


@pytest.fixture(params=["closed", "open"])
def rival(request, tmp_path):
    """Runs of a table with two copies of its state, as two mounts have it: no lock keeps them apart."""

    def rival(kind):
        topic = LakeMishaps(tmp_path, kind, 1).topic
        topic.send()
        first = LakeRun(tmp_path / "orders", kind, topic)
        first.batch(100)
        if request.param == "closed":
            first.table.release_files()
        state = tmp_path / "orders.state"
        shutil.copytree(state, tmp_path / "copy")
        state.rename(tmp_path / "aside")
        (tmp_path / "copy").rename(state)
        (tmp_path / "orders/.sparrowmq/lock").unlink()
        return first, LakeRun(tmp_path / "orders", kind, topic), topic

    return rival


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_runs_with_copies_of_one_state_one_ends(rival, tmp_path, kind):
    first, second, topic = rival(kind)
    topic.send()
    second.batch(100)
    second.table.close()
    topic.send()
    with pytest.raises(Exception, match=r"another run has written|Concurrent transaction failed"):
        first.batch(100)
    first.table.close()
    last = LakeRun(tmp_path / "orders", kind, topic)
    last.batch(100)
    last.table.close()
    rows = rows_of(kind, tmp_path / "orders", tmp_path / "orders.state")
    assert Counter(row["number"] for row in rows) == topic.wanted(ROWS)


@pytest.mark.parametrize("is_at_work", [True, False], ids=["while it runs", "between two runs"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_messages_of_a_table_that_was_taken_back_are_read_again(tmp_path, kind, is_at_work):
    topic, root, state = LakeMishaps(tmp_path, kind, 1).topic, tmp_path / "orders", tmp_path / "orders.state"
    numbers = topic.queues[0]
    run = LakeRun(root, kind, topic)
    for _ in range(3):
        numbers += [1 + 2 * len(numbers), 3 + 2 * len(numbers)]
        run.batch(100)
    take_back(kind, root, state)
    if is_at_work:
        numbers.append(99)
        run.batch(100)
        assert not run.table.is_begun
        run.to_json = run.table.begin()
    else:
        run.table.close()
        run = LakeRun(root, kind, topic)
    assert run.to_json == "its state is newer than the table; it goes on behind what the table has"
    for _ in range(4):
        run.batch(1)
    run.table.close()
    last = LakeRun(root, kind, topic)
    last.table.close()
    assert last.to_json == ""
    assert Counter(row["number"] for row in rows_of(kind, root, state)) == Counter(numbers)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("which", [ROWS, ERRORS])
def test_a_table_that_was_taken_back_without_its_errors_or_they_without_it_is_refused(tmp_path, kind, which):
    topic, root, state = LakeMishaps(tmp_path, kind, 1).topic, tmp_path / "orders", tmp_path / "orders.state"
    run = LakeRun(root, kind, topic)
    for begin in (0, 4, 8):
        topic.queues[0] += range(begin, begin + 4)  # one of four becomes an error
        run.batch(100)
    place, own = (root, state) if which == ROWS else (tmp_path / "orders.errors", state / "errors")
    take_back(kind, place, own)
    topic.queues[0].append(13)
    run.batch(100)
    assert not run.table.is_begun
    with pytest.raises(ConfigError, match=r"are of different times.*; restore both from the same time"):
        run.table.begin()
