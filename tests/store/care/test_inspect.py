import os
import re
import shutil
from pathlib import Path

import pytest

from sparrowmq.errors import BadStore
from sparrowmq.store.care.inspect import describe
from sparrowmq.testing.clock import ManualClock
from tests.golden import STORES
from tests.store.stores import put

VERSIONS = ["4.9.7", "4.9.7-killed", "5.4.0", "5.4.0-crc"]


def shown(path, **how):
    return list(describe(path, **how))


def test_a_store_is_told_in_a_dozen_lines(stores):
    with stores.open() as store:
        for number in range(30):
            put(store, b"x" * 200, topic=f"Topic-{number % 2}", queue_id=number % 4, key=f"k{number}")
        end = store.end
    state, log, queues, *rest = shown(stores.settings.path)
    assert state == f"store {stores.settings.path}: closed in order"
    assert re.fullmatch(rf"log: 3 files, offsets 0 to {end}, the last message stored \d{{4}}-.*", log)
    assert queues == "queues: 4 queues of 2 topics, 30 entries"
    assert rest[:3] == ["  Topic-0: 2 queues, 15 entries", "  Topic-1: 2 queues, 15 entries", "index: 1 file"]
    assert "30 entries in" in rest[3] and f"the log is on disk up to offset {end}" in rest[-1]


def test_an_open_store_is_read_without_its_lock(stores):
    with stores.open() as store:
        put(store)
        store.publish()
        state, log, *_ = shown(stores.settings.path)
        assert state.endswith(": open in a broker, or left by a crash")
        assert f"offsets 0 to {store.end}" in log


async def test_the_age_of_a_checkpoint_is_told(stores):
    clock = ManualClock()
    with stores.open(clock=clock) as store:
        put(store)
    for elapsed_s, age in ((0, "just now"), (30, "30 seconds ago"), (7200, "2 hours ago")):
        await clock.advance(elapsed_s)
        assert age in shown(stores.settings.path, clock=clock)[-1]


def test_only_the_largest_topics_are_listed(stores):
    with stores.open() as store:
        for number in range(15):
            for _ in range(number + 1):
                put(store, topic=f"Topic-{number:02d}")
    lines = shown(stores.settings.path)
    assert lines[3] == "  Topic-14: 1 queue, 15 entries"
    assert lines[13] == "  ... and 5 topics with fewer"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_store_of_java_is_told(version):
    lines = shown(STORES / version)
    assert lines[0].endswith("left by a crash" if version == "4.9.7-killed" else "closed in order")
    assert re.match(r"log: [12] files?, offsets 0 to \d{4}, the last message stored 2026-11-20 ", lines[1])
    assert "  StoreTopic: 2 queues, 24 entries" in lines
    assert lines[-1].startswith("checkpoint: never" if version == "4.9.7-killed" else "checkpoint: 2026-11-20 ")


def test_a_missing_file_of_the_log_is_told(stores):
    with stores.open() as store:
        for _ in range(40):
            put(store, b"x" * 200)
    stores.leave_damaged()
    os.unlink(Path(stores.settings.layout.commit_log) / f"{4096:020d}")
    assert "log: the file of offset 4096 is missing" in shown(stores.settings.path)


def test_what_is_not_there_is_told(stores):
    with stores.open() as store:
        put(store)
    stores.leave_damaged()
    shutil.rmtree(stores.settings.layout.commit_log)
    os.unlink(stores.settings.layout.checkpoint)
    lines = shown(stores.settings.path)
    assert "log: no files; it is elsewhere, or lost" in lines and lines[-1] == "checkpoint: none"


def test_a_folder_in_a_store_is_told_file_by_file():
    assert shown(STORES / "5.4.0" / "commitlog") == [
        "00000000000000000000: commit log, offsets 0 to 8192",
        "00000000000000008192: commit log, offsets 8192 to 16384",
    ]
    lines = shown(STORES / "5.4.0" / "consumequeue" / "StoreTopic")
    assert lines[1] == "0/00000000000000000160: queue StoreTopic/0, entries 8 to 16"


def test_what_is_nothing_of_a_store_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    os.mkfifo(tmp_path / "pipe")
    for name, words in (
        ("", "there is no store at"),
        ("notes.txt", "is no file of a store"),
        ("pipe", "is neither a file nor a folder"),
        ("missing", "is neither a file nor a folder"),
    ):
        with pytest.raises(BadStore, match=words):
            shown(tmp_path / name)


def test_a_path_from_within_the_store_will_do(monkeypatch):
    monkeypatch.chdir(STORES / "5.4.0" / "commitlog")
    assert shown("00000000000000000000", limit=1)[0] == "commit log, offsets 0 to 8192"
    monkeypatch.chdir(STORES / "5.4.0" / "consumequeue" / "StoreTopic" / "0")
    assert shown("00000000000000000160", limit=1)[0] == "queue StoreTopic/0, entries 8 to 16"


def test_limit_says_where_to_go_on():
    path = STORES / "5.4.0" / "commitlog" / "00000000000000000000"
    whole = shown(path)
    assert shown(path, limit=2) == [*whole[:3], "  more follow, from 501 on"]
    assert shown(path, start=501)[1:-1] == whole[3:-1]
