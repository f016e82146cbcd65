"""sparrowmq.spark.lakehouse.lake_progress: a batch's plan is kept before the batch, and found by the next start."""

from __future__ import annotations

import json

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.lakehouse.lake_progress import (
    Progress,
    checkpoint_progress,
    load_progress,
    move_checkpoint_aside,
    save_progress,
)
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings
from sparrowmq.spark.source.partition_ranges import Offsets, to_json

ONE, TWO = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)


def test_a_planned_batch_is_found_again_until_it_is_done(tmp_path):
    assert load_progress(tmp_path) is None
    begun = Progress(-1, Offsets(), Offsets({ONE: 5}), True)
    save_progress(tmp_path, begun)
    assert load_progress(tmp_path) == begun
    planned = begun.next(Offsets({ONE: 5, TWO: 0}), Offsets({ONE: 9, TWO: 3}, {("orders", "broker-a"): 7}))
    save_progress(tmp_path, planned)
    assert load_progress(tmp_path) == planned
    again = load_progress(tmp_path)
    assert again is not None and again.end.incarnations == {("orders", "broker-a"): 7}
    assert (planned.batch, planned.is_done, planned.start) == (0, False, {ONE: 5, TWO: 0})
    done = planned.done(rows=0, errors=-1)
    save_progress(tmp_path, done)
    assert load_progress(tmp_path) == done
    after = done.next(planned.offsets, Offsets({ONE: 10, TWO: 3}))
    save_progress(tmp_path, after)
    assert load_progress(tmp_path) == after and (after.batch, after.rows, after.errors) == (1, 0, -1)


def test_the_note_of_an_earlier_release_says_only_which_batch_is_done(tmp_path):
    planned = Progress(3, Offsets({ONE: 5}), Offsets({ONE: 9}), False)
    save_progress(tmp_path, planned)
    (tmp_path / "lake.done").write_text("3")
    assert load_progress(tmp_path) == planned.done(-1, -1)


@pytest.mark.parametrize("damage", [lambda text: "", lambda text: text[:9], lambda text: text.replace("5", "6")])
def test_a_damaged_file_is_named(tmp_path, damage):
    save_progress(tmp_path, Progress(-1, Offsets(), Offsets({ONE: 5}), True))
    file = tmp_path / "lake.json"
    file.write_text(damage(file.read_text()))
    with pytest.raises(ConfigError, match=r"lake\.json is damaged; restore it"):
        load_progress(tmp_path)


def checkpoint(state, batches, done):
    """What Spark leaves: the offsets of its batches, and which of them are done."""
    for folder in ("offsets", "commits"):
        (state / "checkpoint" / folder).mkdir(parents=True)
    for number, offsets in enumerate(batches):
        text = f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(to_json(offsets))}'
        (state / "checkpoint" / "offsets" / str(number)).write_text(text)
    for number in done:
        (state / "checkpoint" / "commits" / str(number)).write_text("v1\n{}")


def settled(**begin):
    return TableSettings("orders", "parquet", "raw", None, begin=begin or None)


def test_the_progress_of_the_pipeline_is_taken_over(tmp_path):
    checkpoint(tmp_path, [{ONE: 5}, {ONE: 9, TWO: 2}], done=[0, 1])
    assert checkpoint_progress(tmp_path, settled()) == Progress(
        1, Offsets({ONE: 5, TWO: 0}), Offsets({ONE: 9, TWO: 2}), True
    )
    move_checkpoint_aside(tmp_path)
    assert checkpoint_progress(tmp_path, settled()) is None and (tmp_path / "checkpoint.taken-over").is_dir()


def test_a_batch_that_spark_planned_and_did_not_do_is_taken_over_as_that(tmp_path):
    checkpoint(tmp_path, [{ONE: 5}], done=[])
    begin = {"orders": {"broker-a": {"0": 2}}}
    assert checkpoint_progress(tmp_path, settled(**begin)) == Progress(0, Offsets({ONE: 2}), Offsets({ONE: 5}), False)


def test_a_checkpoint_of_another_program_is_refused(tmp_path):
    checkpoint(tmp_path, [{ONE: 5}], done=[])
    (tmp_path / "checkpoint" / "offsets" / "0").write_text("v1\n{}\n-\n")
    with pytest.raises(ConfigError, match="is no progress of the pipeline"):
        checkpoint_progress(tmp_path, settled())


def test_a_table_without_a_checkpoint_has_nothing_to_take_over(tmp_path):
    assert checkpoint_progress(tmp_path, settled()) is None
    move_checkpoint_aside(tmp_path)
