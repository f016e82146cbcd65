"""kernel/follow.py: it leaves in queues and index what the long way leaves there, which takes record after record."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import SparrowError
from sparrowmq.kernel.follow import Follower, add_keys
from sparrowmq.kernel.log_tail import KeyHashes, QueueTail
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from sparrowmq.store import queue_builder
from sparrowmq.store.index import Index
from sparrowmq.store.layout import Layout
from sparrowmq.store.queue_builder import Hole, QueueBuilder
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.queue_files import OpenFiles
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.vfs import Disk, Unsynced
from tests.kernel.cases import damaged
from tests.records import encoded

TOPICS = ("T", "T", "T", "U", "Tä", "Gone", SCHEDULE_TOPIC, TIMER_TOPIC, "o" * 200, "no/name")
FLAGS = (0, 0, 0, 0, SysFlag.PREPARED, SysFlag.COMMIT, SysFlag.ROLLBACK, 1)
PROPERTIES = (
    b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x017F\x02",
    b"UNIQ_KEY\x017F\x02TAGS\x01paid\x02TAGS\x01\x02KEYS\x01 \t\x1ck\x0b\x02KEYS\x02",
    "KEYS\x01Schlüssel\x02TAGS\x01ä".encode(),
    b"KEYS\x01\xff\x02",
    b"DELAY\x012\x02TIMER_OUT_MS\x0199\x02TIMER_DEL_UNIQKEY\x01x\x02TAGS\x01b",
    b"",
    b"\x01v\x02KEYS\x01a\x01b\x02 KEYS\x01c",
)


class LongWay(QueueBuilder):
    """Takes each record in Python."""

    def take(self, content: bytes, at: int, *_more: object) -> int:
        return at


def builder(made: type[QueueBuilder], folder: str, has_index: bool) -> tuple[QueueBuilder, QueueTable]:
    disk, layout, unsynced = Disk(), Layout.of(Path(folder)), Unsynced()
    queues = QueueTable(OpenFiles(disk, 8, unsynced), layout, 4)
    index = Index(disk, layout.index, 16, 64, unsynced) if has_index else None
    target = made(queues, index, (1000, 5000))
    target.deleted = {"Gone": 400}
    return target, queues


def rows(random: Random) -> bytes:
    """Records of which most are the next in their queues, and often some damage."""
    content, following = b"", dict[tuple[str, int], int]()
    for _ in range(random.randint(1, 12)):
        topic, queue_id = random.choice(TOPICS), random.choice([0, 0, 1, -1])
        number = following.get((topic, queue_id), 0) + random.choice([0] * 12 + [1, -1, 3, 9000])
        place = len(content) if random.random() < 0.95 else random.choice([0, -5, (1 << 63) - 1])
        sys_flag = random.choice(FLAGS)
        content += encoded(
            topic,
            queue_id,
            random.randbytes(random.choice([0, 3, 70])),
            random.choice(PROPERTIES),
            queue_offset=max(number, -(1 << 63)),
            physical_offset=place,
            sys_flag=sys_flag,
            born_host=random.choice([hosts.pack("127.0.0.1:1"), hosts.pack("[::1]:1")]),
            store_timestamp_ms=random.choice([5, 1_700_000_000_000]),
            crc=random.random() < 0.8,
        )
        following[topic, queue_id] = number + (not sys_flag & SysFlag.PREPARED)
    return damaged(content, random) if random.random() < 0.5 else content


def follow(target: QueueBuilder, content: bytes, _last_offsets: dict[ConsumeQueue, int]) -> object:
    return target.follow(content, 1000)


def replay(target: QueueBuilder, content: bytes, last_offsets: dict[ConsumeQueue, int]) -> object:
    """Some of the records twice, as far as queues and index may know them."""
    first = outcome(lambda: target.replay(content[: len(content) // 2], last_offsets, 0, -1))
    last_offsets.clear()
    return (
        first,
        outcome(lambda: target.replay(content, last_offsets, 150, 300)),
        target.replay(content, last_offsets, 0, 200, fills_gaps=True),
    )


def outcome(action: Callable[[], object]) -> object:
    try:
        return action()
    except Hole as hole:
        return str(hole), hole.following
    except (SparrowError, IndexError, OverflowError, ValueError, OSError) as error:
        return type(error).__name__


def left(
    way: Callable[[QueueBuilder, bytes, dict[ConsumeQueue, int]], object],
    made: type[QueueBuilder],
    content: bytes,
    has_index: bool,
) -> object:
    """All that the records left behind."""
    with tempfile.TemporaryDirectory() as folder:
        target, queues = builder(made, folder, has_index)
        last_offsets: dict[ConsumeQueue, int] = {}
        found = outcome(lambda: way(target, content, last_offsets))
        tails = [
            (each.topic, each.queue_id, each.max_offset, each.next_offset, each.added_bytes, each.unwritten.content())
            for each in queues
        ]
        unwritten = [(each.topic, each.queue_id) for each in target.queues_to_write]
        known = [(each.topic, each.queue_id, offset) for each, offset in last_offsets.items()]
        counts = target.added, target.added_bytes, target.followed
        followed_ms = target.followed_ms if way is follow else None
        return found, tails, unwritten, known, counts, followed_ms, target.keys.columns.content()


@pytest.mark.parametrize("way", [follow, replay])
@given(st.randoms(use_true_random=False), st.booleans())
def test_it_leaves_what_the_long_way_leaves(
    way: Callable[[QueueBuilder, bytes, dict[ConsumeQueue, int]], object], random: Random, has_index: bool
):
    content = rows(random)
    assert left(way, QueueBuilder, content, has_index) == left(way, LongWay, content, has_index)


@given(st.randoms(use_true_random=False))
def test_it_finds_the_keys_that_the_long_way_finds(random: Random):
    content, found = rows(random), list[object]()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        target, _ = builder(QueueBuilder, folder, True)
        for _ in range(2):
            keys = KeyHashes()
            found += [outcome(lambda keys=keys: target.keys_of(content, keys)), keys.columns.content()]  # type: ignore[misc]
            patched.setattr(queue_builder, "add_keys", lambda _content, at, _keys: at)
    assert found[:2] == found[2:]


def test_plain_records_need_no_long_way():
    content = b""
    for number in range(6):
        content += encoded("TU"[number % 2], 3, properties=PROPERTIES[0], queue_offset=7 + number // 2)
    tails = {topic: {3: QueueTail()} for topic in "TU"}
    for tail in (tails["T"][3], tails["U"][3]):
        tail.next_offset = 7
    follower = Follower(tails, ())
    assert follower.take(content, 0, -1) == add_keys(content, 0, KeyHashes()) == len(content)
    assert [tail[3].next_offset for tail in tails.values()] == [10, 10]
    assert (follower.added, len(follower.keys)) == (6, 18)


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "V"},
        {"topic": "S"},
        {"topic": "D"},
        {"queue_id": 1},
        {"queue_offset": 2},
        {"properties": "x\x01ä".encode()},
        {"physical_offset": -1},
    ],
)
def test_it_stops_before_a_record_that_is_not_plain(changes: dict[str, Any]):
    plain = encoded()
    follower = Follower({topic: {0: QueueTail()} for topic in "TSD"}, ("S",))
    follower.deleted["D"] = 1
    content = plain + encoded(**{"queue_offset": int(changes.keys().isdisjoint(("topic", "queue_id"))), **changes})
    assert follower.take(content, 0, -1) == len(plain)
    assert follower.added == 1 and len(follower.keys) == 0


def test_a_queue_that_knows_a_record_gets_no_second_entry():
    tail = QueueTail()
    follower = Follower({"T": {0: tail}}, ())
    content = encoded(physical_offset=100) + encoded(physical_offset=300)
    assert follower.take(content, 0, -1, {}) == 0
    assert follower.take(content, 0, -1, {tail: 100}, 301) * 2 == len(content)
    assert follower.take(content, 0, -1, {tail: 100}, 300) == len(content)
    assert follower.added == 1
