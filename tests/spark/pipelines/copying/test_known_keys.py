"""sparrowmq.spark.pipelines.seen_keys: keys that are found by the times of their messages, and forgotten."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import sqlite3
import subprocess
import sys
import time

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import BadStore
from sparrowmq.spark.failures import failure_from
from sparrowmq.spark.lakehouse.batch_parts import error_text
from sparrowmq.spark.pipelines.seen_keys import KnownKeys, Span

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 20_000 * DAY_MS


def key(number):
    return hashlib.sha256(b"%d" % number).digest()[:16]


def test_a_key_is_found_within_the_window_on_both_sides_and_in_other_spans(tmp_path):
    chance = random.Random(7)
    window_ms = 2 * HOUR_MS
    stored = [(key(chance.randrange(40)), NOW_MS + chance.randrange(12 * HOUR_MS)) for _ in range(150)]
    asked = [(key(chance.randrange(50)), NOW_MS + chance.randrange(12 * HOUR_MS)) for _ in range(200)]
    with KnownKeys(tmp_path, window_ms) as known:
        known.add(stored)
        for question in asked:
            name, at = question
            near = sorted({time for other, time in stored if other == name and abs(time - at) < window_ms})
            assert sorted(known.times([question], window_ms).get(name, [])) == near


def test_the_window_is_open_at_its_ends(tmp_path):
    with KnownKeys(tmp_path, 1000) as known:
        known.add([(key(1), NOW_MS)])
        found = [NOW_MS + each for each in (-1000, -999, 0, 999, 1000) if known.times([(key(1), NOW_MS + each)], 1000)]
    assert found == [NOW_MS - 999, NOW_MS, NOW_MS + 999]


def test_a_batch_that_is_repeated_finds_no_key_of_its_own(tmp_path):
    row = (key(1), NOW_MS)
    with KnownKeys(tmp_path, DAY_MS) as known:
        for _attempt in range(2):
            assert known.begin(3) == DAY_MS
            assert known.times([row], DAY_MS) == {}
            known.note(3, DAY_MS, [row])
    with KnownKeys(tmp_path, 1000) as known:  # with another window
        assert known.begin(3) == DAY_MS
        assert known.begin(2) == 1000  # as after an older checkpoint was restored
        assert known.times([row], DAY_MS) == {}
        assert known.begin(4) == 1000
        assert known.times([row], DAY_MS) == {key(1): [NOW_MS]}


def test_the_last_batch_whose_keys_were_noted_is_known(tmp_path):
    known = KnownKeys(tmp_path, DAY_MS)
    assert known.last_number == -1
    known.note(7, DAY_MS, [])
    assert known.last_number == 7


def test_spans_that_no_message_needs_are_deleted_once_all_before_is_read(tmp_path):
    read_ms = NOW_MS
    asked = []

    def is_read(until_ms):
        asked.append(until_ms)
        return until_ms <= read_ms

    with KnownKeys(tmp_path, HOUR_MS) as known:
        known.add([(key(hour), NOW_MS + hour * HOUR_MS) for hour in range(4)])
        known.forget(NOW_MS + HOUR_MS, is_read)
        assert asked == []  # the youngest message that may need a span is yet to come
        known.forget(NOW_MS + 9 * HOUR_MS, is_read)
        assert asked == [NOW_MS + 2 * HOUR_MS]
        read_ms = NOW_MS + 3 * HOUR_MS
        known.forget(NOW_MS + 9 * HOUR_MS, is_read)
        left = [hour for hour in range(4) if known.times([(key(hour), NOW_MS + hour * HOUR_MS)], HOUR_MS)]
    assert left == [2, 3]
    assert len(list(tmp_path.glob("keys-*.db"))) == 2


def test_of_many_spans_few_files_are_open(tmp_path):
    rows = [(key(hour), NOW_MS + hour * HOUR_MS) for hour in range(30)]
    with KnownKeys(tmp_path, HOUR_MS) as known:
        known.add(rows)
        assert known.times(rows, HOUR_MS) == {name: [at] for name, at in rows}
        assert len(known._open) <= 8
    with KnownKeys(tmp_path, HOUR_MS) as known:
        assert known.times(rows, HOUR_MS) == {name: [at] for name, at in rows}


def test_keys_of_an_earlier_release_are_found_by_all_messages_before_and_within_a_window_after(tmp_path):
    with KnownKeys(tmp_path, HOUR_MS) as known:
        known.add_earlier([(key(1), NOW_MS), (key(2), NOW_MS + HOUR_MS)])
        known.add_earlier([])

        def is_found(number, at_ms):
            return bool(known.times([(key(number), at_ms)], HOUR_MS))

        assert is_found(1, NOW_MS - 30 * DAY_MS)
        assert is_found(1, NOW_MS + HOUR_MS - 1)
        assert not is_found(1, NOW_MS + HOUR_MS)
        assert is_found(2, NOW_MS + 2 * HOUR_MS - 1)
    assert list(tmp_path.glob("keys-*-earlier.db"))


def test_keys_that_were_added_survive_a_kill(tmp_path):
    script = (
        "import os, sys; from pathlib import Path\n"
        "from sparrowmq.spark.pipelines.seen_keys import KnownKeys\n"
        f"known = KnownKeys(Path({str(tmp_path)!r}), {DAY_MS}); known.__enter__()\n"
        f"known.add([(bytes([each]) * 16, {NOW_MS}) for each in range(100)])\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == -9
    with KnownKeys(tmp_path, DAY_MS) as known:
        assert len(known.times([(bytes([each]) * 16, NOW_MS) for each in range(100)], DAY_MS)) == 100


@pytest.mark.parametrize("content", [b"no database" * 1000, b""], ids=["of others", "empty"])
def test_a_damaged_file_is_named_with_the_remedy(tmp_path, content):
    file = tmp_path / Span(NOW_MS, NOW_MS + DAY_MS).file
    with KnownKeys(tmp_path, DAY_MS) as known:
        known.add([(key(1), NOW_MS)])
    file.write_bytes(content)
    with KnownKeys(tmp_path, DAY_MS) as known:
        for work in (lambda: known.times([(key(1), NOW_MS)], DAY_MS), lambda: known.add([(key(2), NOW_MS)])):
            with pytest.raises(BadStore, match=f"{file.name} cannot be used: .*; if you move it to {file.name}.lost"):
                work()
        file.unlink()
        known.add([(key(2), NOW_MS)])
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name]


def test_an_addition_that_fails_on_a_full_disk_adds_none_and_can_be_repeated(tmp_path):
    rows = [(key(each), NOW_MS) for each in range(5000)]
    with KnownKeys(tmp_path, DAY_MS) as known:
        known.add([(key(-1), NOW_MS)])
        (database,) = known._open.values()
        database.execute("pragma max_page_count = 4")
        with pytest.raises(OSError) as full:
            known.add(rows)
        assert not failure_from(error_text(full.value)).is_permanent
        assert known.times(rows, DAY_MS) == {}
        for _attempt in range(2):
            known.add(rows)
        assert len(known.times(rows, DAY_MS)) == 5000


def test_keys_that_cannot_be_opened_for_want_of_a_descriptor_are_not_damaged(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with KnownKeys(tmp_path, DAY_MS) as known:
        with open(os.devnull) as next_one:
            resource.setrlimit(resource.RLIMIT_NOFILE, (next_one.fileno() + 1, limits[1]))
            try:
                with pytest.raises(OSError) as few:
                    known.add([(key(1), NOW_MS)])
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert failure_from(error_text(few.value)).name == "NoDescriptor"
        known.add([(key(1), NOW_MS)])
        assert known.times([(key(1), NOW_MS)], DAY_MS) == {key(1): [NOW_MS]}


def fill(folder):
    """Let two batches pass in two spans, and return their keys; the log of the second is not in the file yet."""
    rows = [(key(1), NOW_MS), (key(2), NOW_MS + DAY_MS)]
    for number in range(3):
        with KnownKeys(folder, DAY_MS) as known:
            known.begin(number)
            known.note(number, DAY_MS, [(each, at + number) for each, at in rows])
    return rows


@pytest.mark.parametrize("fault", ["gone", "older", "without the end of its log"])
def test_keys_that_a_fault_of_the_disk_has_taken_are_missed_at_the_next_start(tmp_path, fault):
    fill(tmp_path / "older")
    file = tmp_path / "older" / Span(NOW_MS, NOW_MS + DAY_MS).file
    older, log = file.read_bytes(), file.with_name(f"{file.name}-wal")
    with KnownKeys(file.parent, DAY_MS) as known:
        known.begin(3)
        known.note(3, DAY_MS, [])
        whole, synced = file.read_bytes(), log.read_bytes()  # as a kill leaves them
    if fault == "gone":
        file.unlink()
    elif fault == "older":
        file.write_bytes(older)
    else:
        file.write_bytes(whole)
        log.write_bytes(synced[: len(synced) // 2])
    with pytest.raises(BadStore, match=f"{file.name} is gone, or lacks keys .*; if you move it to {file.name}.lost"):
        KnownKeys(file.parent, DAY_MS).__enter__()
    (file.rename if file.exists() else type(file).touch)(file.with_name(f"{file.name}.lost"))
    with KnownKeys(file.parent, DAY_MS) as known:
        assert known.times([(key(1), NOW_MS)], 1000) == {}
        assert known.times([(key(2), NOW_MS + DAY_MS)], 1000) != {}


def test_a_run_that_was_killed_while_it_deleted_spans_misses_none(tmp_path, monkeypatch):
    fill(tmp_path)
    monkeypatch.setattr(KnownKeys, "_delete_span", lambda _, span: (tmp_path / span.file).unlink())  # and is killed
    with KnownKeys(tmp_path, DAY_MS) as known:
        known.forget(NOW_MS + 9 * DAY_MS, lambda _: True)
    with KnownKeys(tmp_path, DAY_MS) as known:
        assert known.last_number == 2


@pytest.mark.slow
def test_a_batch_costs_the_same_however_many_keys_are_known(tmp_path):
    """A scan of 1 M keys takes a hundred times as long as the 1,000 questions."""
    costs = []
    with KnownKeys(tmp_path, DAY_MS) as known:
        for number, more in enumerate((2_000, 1_000_000)):
            known.add([(random.randbytes(16), NOW_MS) for _ in range(more)])
            asked = [(random.randbytes(16), NOW_MS) for _ in range(1000)]
            begin = time.process_time()
            for _ in range(3):
                known.begin(number)
                known.times(asked, DAY_MS)
                known.note(number, DAY_MS, asked)
            costs.append(time.process_time() - begin)
    assert costs[1] < 10 * costs[0]


def test_files_of_others_are_left_alone(tmp_path):
    sqlite3.connect(tmp_path / "keys-of-mine.db").close()
    with KnownKeys(tmp_path, DAY_MS) as known:
        known.add([(key(1), NOW_MS)])
        known.forget(NOW_MS + 99 * DAY_MS, lambda _: True)
    assert [path.name for path in tmp_path.glob("*.db*")] == ["keys-of-mine.db"]
