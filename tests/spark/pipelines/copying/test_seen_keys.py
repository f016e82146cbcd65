"""sparrowmq.spark.pipelines.seen_keys: which messages of a batch are repeats."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import BadStore, NoRoute
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines import seen_keys
from sparrowmq.spark.pipelines.seen_keys import (
    KnownKeys,
    Repeats,
    SeenMessage,
    find_repeats,
    sort_messages,
    take_over_earlier_keys,
)

QUEUE, OTHER = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
ROWS = (
    "select msgId, timestamp_millis(at) storeTimestamp, 'orders' topic, 'broker-a' brokerName, 0 queueId, "
    "queueOffset from values {} as t(msgId, at, queueOffset)"
)


def places(*rows):
    """Rows of a key, a time, and an offset of the queue."""
    return [SeenMessage(None if key is None else key.encode(), at, QUEUE, offset) for key, at, offset in rows]


def test_the_first_message_of_a_key_passes_and_others_within_the_window_do_not():
    batch = places(("a", 0, 0), ("b", 1, 1), ("a", 2, 2), (None, 3, 3), (None, 3, 4), ("a", 99, 5))
    assert find_repeats(batch, {}, 100) == ({QUEUE: frozenset({2, 5})}, [(b"a", 0), (b"b", 1)])


def test_the_window_counts_the_times_of_the_messages_and_begins_at_the_one_that_passed():
    batch = places(("a", 1000, 0), ("a", 3500, 1), ("a", 4000, 2), ("a", 6999, 3), ("a", 9000, 4))
    dropped, passed = find_repeats(batch, {}, 3000)
    assert dropped == {QUEUE: {1, 3}}
    assert passed == [(b"a", 1000), (b"a", 4000), (b"a", 9000)]


def test_a_message_of_a_queue_that_is_behind_repeats_a_younger_one():
    batch = places(("a", 1000, 0), ("a", 5000, 1), ("b", 5000, 2))
    assert find_repeats(batch, {b"a": [3500]}, 3000) == ({QUEUE: frozenset({0, 1})}, [(b"b", 5000)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_messages_in_any_batches_pass_as_in_one(tmp_path, seed):
    chance = random.Random(seed)
    window_ms = 2 * 3_600_000
    ages = sorted(chance.randrange(10 * window_ms) for _ in range(400))
    rows = places(*((str(chance.randrange(60)), 10**12 + at, number) for number, at in enumerate(ages)))
    wanted, _ = find_repeats(rows, {}, window_ms)
    found: set[int] = set()
    with KnownKeys(tmp_path, window_ms) as known:
        begin = batch = 0
        while begin < len(rows):
            end = begin + chance.randrange(1, 60)
            for _attempt in range(chance.choice((1, 1, 2))):
                assert known.begin(batch) == window_ms
                asked = [(row.key, row.at_ms) for row in rows[begin:end] if row.key is not None]
                dropped, passed = find_repeats(rows[begin:end], known.times(asked, window_ms), window_ms)
                known.note(batch, window_ms, passed)
                found |= dropped.get(QUEUE, frozenset())
            begin, batch = end, batch + 1
    assert found == wanted[QUEUE]


def test_messages_of_a_batch_come_in_the_order_of_their_times_and_places():
    rows = pa.table(
        {
            "key": [b"c", b"b", b"a", None],
            "at": [2, 1, 1, 1],
            "topic": ["orders"] * 4,
            "brokerName": ["broker-a"] * 4,
            "queueId": [0, 1, 0, 0],
            "queueOffset": [0, 7, 9, 8],
        }
    )
    assert list(sort_messages(rows)) == [
        SeenMessage(None, 1, QUEUE, 8),
        SeenMessage(b"a", 1, QUEUE, 9),
        SeenMessage(b"b", 1, OTHER, 7),
        SeenMessage(b"c", 2, QUEUE, 0),
    ]


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_a_batch_of_spark_and_keys_that_an_earlier_release_has_left(spark, tmp_path):
    for number, name in enumerate(("old", "later")):
        folder = tmp_path / f"keys-{number:09}"
        folder.mkdir()
        pq.write_table(pa.table({"_key": [name], "_seen_at_s": [1000.0]}), folder / "part.parquet")
        (folder / "_SUCCESS").touch()
    rows = spark.sql(ROWS.format("('new', 1, 0), ('old', 2, 1), (null, 3, 2), ('new', 4, 3), ('later', 5, 4)"))
    repeats = Repeats(tmp_path, "msgId", 3_600_000)
    with repeats.keys:
        for _attempt in range(2):  # batch 1 was cut short before the new release came
            assert repeats.find(rows, 1) == (5, {QUEUE: frozenset({1, 3})})
        assert repeats.find(rows, 2) == (5, {QUEUE: frozenset({0, 1, 3, 4})})
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_what_an_earlier_release_did_not_write_to_its_end_is_left_out(tmp_path):
    for number, is_done in ((3, True), (4, False)):
        (tmp_path / f"keys-{number:09}").mkdir()
        rows = pa.table({"_key": [f"{number}"], "_seen_at_s": [1.0]})
        pq.write_table(rows, tmp_path / f"keys-{number:09}" / "part.parquet")
        if is_done:
            (tmp_path / f"keys-{number:09}" / "_SUCCESS").touch()
    with KnownKeys(tmp_path, 1000) as known:
        take_over_earlier_keys(tmp_path, known, 9)
        keys = {number: seen_keys.key_of(f"{number}") for number in (3, 4)}
        found = known.times([(key, 500) for key in keys.values()], 1000)
    assert found == {keys[3]: [1000]}


@pytest.fixture
def checkpoint(tmp_path):
    """Of a stream with three batches that are done, and one that is planned."""
    folder = tmp_path / "checkpoint"
    for name in ("offsets/0", "offsets/1", "offsets/2", "offsets/3", "commits/0", "commits/1", "commits/2"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def noted(folder, batches):
    """Keys as that many batches of `dedup` leave them, each with one key."""
    repeats = Repeats(folder, "msgId", 1000)
    with repeats.keys as known:
        for batch in range(batches):
            known.begin(batch)
            known.note(batch, 1000, [(bytes([batch]) * 16, 1)])
    return repeats


@pytest.mark.parametrize("damaged", [["last.json"], ["last.json", "last.json.bak"]], ids=len)
def test_a_batch_whose_keys_a_disk_has_lost_is_done_again(tmp_path, checkpoint, damaged):
    repeats, said = noted(tmp_path / "seen", 3), list[str]()
    repeats.repeat_lost_batch(checkpoint, said.append)
    assert said == []
    for name in damaged:
        (tmp_path / "seen" / name).write_bytes(b"")
    repeats.repeat_lost_batch(checkpoint, said.append)
    assert len(said) == 1 and said[0].startswith("the keys of batch 2 in ")
    left = sorted(str(path.relative_to(checkpoint)) for path in checkpoint.rglob("?"))
    assert left == ["commits/0", "commits/1", "offsets/0", "offsets/1", "offsets/2"]


@pytest.mark.parametrize("batches", [0, 1], ids=["gone", "older"])
def test_keys_that_are_gone_or_older_than_the_checkpoint_are_refused(tmp_path, checkpoint, batches):
    repeats = noted(tmp_path / "seen", batches)
    with pytest.raises(BadStore, match=r"lacks the keys of batches up to 2, .*; restore the folder of the state"):
        repeats.repeat_lost_batch(checkpoint, print)
    assert (checkpoint / "commits" / "2").exists()


def test_keys_that_an_earlier_release_has_left_count_as_those_of_all_batches(tmp_path, checkpoint):
    (tmp_path / "keys-000000001").mkdir()
    Repeats(tmp_path, "msgId", 1000).repeat_lost_batch(checkpoint, print)
    (tmp_path / "keys-000000001").rmdir()
    repeats = Repeats(tmp_path, "msgId", 1000)
    with repeats.keys as known:
        known.add_earlier([(b"k" * 16, 1)])
    repeats.repeat_lost_batch(checkpoint, print)
    assert (checkpoint / "commits" / "2").exists()


def test_keys_are_kept_while_a_queue_is_behind_or_its_broker_away(tmp_path, monkeypatch):
    read = {QUEUE: 10, OTHER: 4}
    answers = [NoRoute("orders", "away:1"), {QUEUE: 10, OTHER: 5}, {QUEUE: 10, OTHER: 4}]

    def ends_before(given, time_ms):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(seen_keys, "ends_before", ends_before)
    monkeypatch.setattr(seen_keys, "planned_end", lambda checkpoint, batch: read)
    monkeypatch.setattr(seen_keys, "_CLEANUP_PERIOD_S", 0)
    repeats = Repeats(tmp_path, "msgId", 1000)
    with repeats.keys as known:
        known.add([(b"k" * 16, 1)])
        left = []
        for batch in (0, 1, 2, 3, 4):
            repeats.forget({}, "checkpoint", batch)
            left.append(bool(known.times([(b"k" * 16, 1)], 1000)))
    assert left == [True, True, True, False, False]
    assert answers == []
