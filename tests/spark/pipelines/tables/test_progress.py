"""sparrowmq.spark.pipelines.tables.progress: commits and checkpoint say where a table is."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.pipelines.tables.progress import (
    Checkpoint,
    LastBatches,
    Record,
    parse_record,
    parse_stream_record,
    resume_offsets,
    state_difference,
    table_offsets_in,
)
from sparrowmq.spark.source.partition_ranges import from_json


def place(*offsets, life=None):
    queues = {str(queue): offset for queue, offset in enumerate(offsets)}
    known = {} if life is None else {"incarnations": {"t": {"b": life}}}
    return {"v": 1, "topics": {"t": {"b": queues}}} | known


def record(batch, start, end, *, is_half=False, other=-1):
    return Record(batch, place(*start), place(*end), is_half, other, {})


def planned(folder, *ends, first=0, begin=None):
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    for batch, end in enumerate(ends):
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(place(*end))}")
    return Checkpoint(folder, first, begin)


def test_a_record_survives_the_commit_and_one_of_a_stored_log_has_no_place():
    said = record(7, (1, 2), (3, 4), is_half=True, other=6)
    assert parse_record(said.text()) == parse_stream_record(said.text()) == said
    stored = Record(7, None, None, False, -1, {})
    assert parse_record(stored.text()) == stored
    assert parse_stream_record(stored.text()) is None
    assert parse_record("") is parse_record(None) is parse_stream_record(None) is parse_record("{") is None


def test_a_record_with_a_changed_digit_says_nothing():
    """With another offset, a start that needs the record would lose messages, or add them twice."""
    text = record(7, (1, 2), (3, 4)).text()
    assert parse_record(text.replace('"1":4', '"1":9')) is None
    unsealed = text[: text.index(',"checksum"')] + "}"
    assert parse_record(unsealed) == parse_record(text), "that of an earlier release"


@pytest.mark.parametrize(
    ("rows", "errors", "wanted"),
    [
        (None, None, None),
        (record(3, (1, 1), (5, 5)), None, (5, 5)),
        (record(3, (1, 1), (5, 5), is_half=True), None, (1, 1)),
        (record(3, (1, 1), (5, 5), is_half=True), record(3, (1, 1), (5, 5), other=3), (5, 5)),
        (record(3, (1, 1), (5, 5)), record(4, (5, 5), (6, 6), other=3), (6, 6)),
        (record(3, (1, 1), (5, 5)), record(9, (5, 5), (9, 9), other=8), (5, 5)),  # rows were restored
        (record(9, (5, 5), (9, 9), other=8), record(3, (1, 1), (5, 5), other=3), (5, 5)),  # errors were
        (record(9, (5, 5), (9, 9), is_half=True, other=8), record(3, (1, 1), (2, 6), other=3), (2, 5)),
        (record(3, (1, 7), (5, 9)), record(4, (1, 1), (6, 6), other=3), (5, 6)),  # of two copies
        (None, record(4, (1, 1), (6, 6)), (6, 6)),
        (None, record(4, (1, 1), (6, 6), other=3), None),  # the rows are gone
    ],
)
def test_the_place_behind_which_both_tables_lack_messages(rows, errors, wanted):
    assert resume_offsets(rows, errors) == (None if wanted is None else place(*wanted))


def test_a_new_queue_is_read_from_its_begin():
    rows, errors = record(3, (1,), (5, 2)), record(9, (5,), (9,), other=8)
    assert resume_offsets(rows, errors) == place(5)


def test_a_table_that_is_behind_a_topic_made_again_is_read_from_where_it_was_in_the_earlier_one():
    rows = Record(3, place(0, life=7), place(31, life=7), False, 3, {})
    errors = Record(9, place(31, life=7), place(5, life=9), False, 8, {})
    assert resume_offsets(rows, errors) == place(31, life=7)


@pytest.mark.parametrize(
    ("had", "start", "end", "wanted"),
    [
        (place(9), place(5), place(12), place(9)),
        (place(9), place(9), place(12), None),
        (place(9, 2), place(9, 1), place(12, 5), place(9, 2)),
        (place(9, life=7), place(5, life=7), place(12, life=7), place(9)),
        (place(31, life=7), place(5, life=9), place(12, life=9), None),  # rows of the topic before
        (place(31, life=7), place(31, life=7), place(5, life=9), None),
        (place(5, life=9), place(31, life=7), place(12, life=9), place(5)),  # the batch has both topics
        (place(31), place(5, life=-1), place(12, life=-1), None),
        (place(9), place(5), place(12, life=7), place(9)),  # a broker that now names its topics
    ],
)
def test_the_rows_of_a_batch_that_a_table_has_are_those_of_the_same_topic(had, start, end, wanted):
    found = table_offsets_in(*map(from_json, (had, start, end)))
    assert found == (None if wanted is None else from_json(wanted))


def test_a_checkpoint_has_the_begin_and_the_end_of_batches(tmp_path):
    found = planned(tmp_path / "c", (3, 3), (5, 4), first=7, begin=place(1, 1))
    assert (found.last(), found.end(7), found.end(8), found.end(9)) == (8, place(3, 3), place(5, 4), None)
    assert (found.start(7), found.start(8)) == (place(1, 1), place(3, 3))
    assert Checkpoint(tmp_path / "none", 7, None).last() == 6


@pytest.mark.parametrize("content", ["", "v1\n{}\n{"])
def test_a_damaged_plan_has_no_end(tmp_path, content):
    checkpoint = planned(tmp_path / "c", (3, 3), (4, 4))
    (tmp_path / "c" / "offsets" / "0").write_text(content)
    assert checkpoint.end(0) is None
    assert checkpoint.end(1) is not None


def test_a_checkpoint_that_is_put_aside_is_kept_until_the_next_one(tmp_path):
    planned(tmp_path / "c", (3, 3)).move_aside()
    planned(tmp_path / "c", (3, 3), (4, 4)).move_aside()
    assert not (tmp_path / "c").exists()
    assert len(list((tmp_path / "c.old" / "offsets").iterdir())) == 2


@pytest.mark.parametrize(
    ("batch", "end", "reached", "why"),
    [
        (1, (5, 4), 1, None),
        (1, (5, 4), -1, None),
        (0, (3, 3), 0, None),  # batch 1 had no rows, or is under way
        (0, (3, 3), 1, "its state is newer than the table"),
        (2, (6, 6), 2, "its state is older than the table"),
        (1, (5, 5), 1, "its state is of another run"),
    ],
)
def test_how_table_and_state_differ(tmp_path, batch, end, reached, why):
    found = planned(tmp_path / "c", (3, 3), (5, 4))
    assert state_difference(record(batch, (1, 1), end), None, LastBatches(rows=reached), found) == why
    assert state_difference(None, record(batch, (1, 1), end), LastBatches(errors=reached), found) == why


def test_a_lost_checkpoint_is_noticed_and_one_that_is_to_begin_is_none(tmp_path):
    rows = record(3, (1, 1), (5, 5))
    assert state_difference(rows, None, LastBatches(), Checkpoint(tmp_path, 0, None)) == "its state was lost"
    assert state_difference(rows, None, LastBatches(), Checkpoint(tmp_path, 4, None)) is None
    assert state_difference(None, None, LastBatches(), Checkpoint(tmp_path, 0, None)) is None


def test_a_table_that_is_before_all_kept_batches_is_compared_with_the_last(tmp_path):
    """Spark keeps the last hundred batches; the table may have no row of them."""
    found = planned(tmp_path / "c", (3, 3), (5, 4))
    (tmp_path / "c" / "offsets" / "0").unlink()
    assert state_difference(record(0, (1, 1), (3, 3)), None, LastBatches(), found) is None
    assert state_difference(record(0, (1, 1), (9, 3)), None, LastBatches(), found) == "its state is of another run"
    earlier = Record(0, place(1, 1, life=7), place(9, 3, life=7), False, -1, {})
    assert state_difference(earlier, None, LastBatches(), found) is None, "the topic was made again since"


def test_what_was_reached_is_kept(tmp_path):
    LastBatches(3, 4).save(tmp_path)
    assert LastBatches.load(tmp_path) == LastBatches(3, 4)
    assert LastBatches.load(tmp_path / "none") == LastBatches()
