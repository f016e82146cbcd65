"""Stores whose files were changed at random, and what may come of one: it is as it was, or it is refused in words.

    problem = Mutated(seed).play("queues")       None, or how a message was lost, changed or doubled in silence

A change is what disks and people do: a bit, a run of bytes, a sector of zeros or of another place; a file cut, emptied,
lengthened, deleted, exchanged with another; a folder deleted.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sparrowmq.core import snapshot
from sparrowmq.errors import SparrowError
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol.messages import record as records
from sparrowmq.store import checkpoint
from sparrowmq.store.care.check import verify
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import CorruptPolicy, StoreSettings
from tests.store.stores import HOST, let_go, message

QUEUES = (("Orders", 0), ("Orders", 1), ("Bills", 0))
MESSAGES = 240
SECTOR = 512
PARTS = {
    "queues": ("consumequeue",),
    "ends": ("ends", "consumequeue"),
    "checkpoint": ("checkpoint", "ends", "consumequeue"),
    "index": ("index",),
    "log": ("commitlog",),
    "config": ("config",),
}
Bodies = dict[tuple[str, int], list[bytes]]


def settings_of(folder: Path) -> StoreSettings:
    return StoreSettings(
        folder,
        commit_log_file_size=8192,
        consume_queue_file_entries=16,
        index_slots=128,
        index_entries=256,
        store_host=HOST,
        corrupt_policy=CorruptPolicy.FAIL,
    )


@contextmanager
def verifying_little(size: int = 2048) -> Iterator[None]:
    """Let starts check but so much of the log's end, so that a small store has a part that none looks at."""
    before = checkpoint.VERIFIED_BYTES
    checkpoint.VERIFIED_BYTES = size  # type: ignore[misc]
    try:
        yield
    finally:
        checkpoint.VERIFIED_BYTES = before  # type: ignore[misc]


def make(folder: Path, closed: bool, checkpoint_last: bool = False) -> Bodies:
    """A store with some hundred messages in three queues, closed in order or left by a kill, and what is in it.

    With `checkpoint_last` the checkpoint covers all: behind it, damage of the log cannot be told from a torn tail.
    """
    sent: Bodies = {key: [] for key in QUEUES}
    store = MessageStore.open(settings_of(folder))
    for number in range(MESSAGES):
        topic, queue_id = QUEUES[number * number % 7 % 3]
        body = b"%s %d " % (topic.encode(), number) * (1 + number % 9)
        store.append(message(body, topic, queue_id, tag="ab"[number % 2], key=f"k{number}"))
        sent[topic, queue_id].append(body)
        if number % 20 == 0:
            store.checkpoint()
    if closed:
        store.close()
        return sent
    store.checkpoint() if checkpoint_last else store.flush()
    store.publish()
    let_go(store)
    return sent


@dataclass
class Mutated:
    """A store that was changed once, by a seed."""

    whole: Path
    scratch: Path
    sent: Bodies

    def play(self, seed: int, part: str) -> str | None:
        """Change a copy of the store, and open it: what is wrong with what is found, if anything is."""
        rng = random.Random(seed)
        folder = self.scratch / "changed"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.whole, folder)
        change = mutate(folder, PARTS[part], rng)
        try:
            with verifying_little(), MessageStore.open(settings_of(folder)) as store:
                problem = self.compare(store)
            if problem is None:
                with verifying_little(), MessageStore.open(settings_of(folder)) as store:
                    problem = self.compare(store, more=1)
            if problem is None and part == "index":
                problem = self.search(folder)
        except SparrowError:
            return None  # it was told
        return None if problem is None else f"seed {seed}, {change}: {problem}"

    def search(self, folder: Path) -> str | None:
        """Whether keys are not found though `store check` has nothing to say. Raises: SparrowError."""
        settings = settings_of(folder)
        with verifying_little(), MessageStore.open(settings) as store:
            keys = [(topic, f"k{number}") for number, topic in enumerate(topics())]
            missing = [key for topic, key in keys if not store.query(topic, key, 9, 0, 1 << 62)]
        if missing and not any(verify(settings)):
            return f"{len(missing)} keys are not found, the first is {missing[0]}"
        return None

    def compare(self, store: MessageStore, more: int = 0) -> str | None:
        """How the messages differ from those that were sent; then each queue gets one more. Raises: SparrowError."""
        for (topic, queue_id), bodies in self.sent.items():
            expected = bodies + [b"more"] * more
            found = list(found_in(store, topic, queue_id))
            if found != expected:
                wrong = [n for n, (one, other) in enumerate(zip(found, expected, strict=False)) if one != other]
                return f"{topic}/{queue_id} has {len(found)} messages of {len(expected)}, wrong: {wrong[:5]}"
            queue = store.queues.get(topic, queue_id)
            assert queue is not None
            codes = [queue.read(n, 1).tags_code(0) for n in range(len(bodies))]
            if not set(codes) <= {string_hash("a"), string_hash("b")}:
                return f"{topic}/{queue_id} has wrong tags codes"
            if not more:
                [placed] = store.append(message(b"more", topic, queue_id, tag="a"))
                if placed.queue_offset != len(bodies):
                    return f"{topic}/{queue_id} gives out offset {placed.queue_offset} again"
        store.publish()
        return None


def topics() -> list[str]:
    """The topic of each message."""
    return [QUEUES[number * number % 7 % 3][0] for number in range(MESSAGES)]


class MutatedConfig:
    """A small file of JSON, with the copy of what was saved before, that is changed once."""

    def __init__(self, scratch: Path) -> None:
        self._folder = scratch / "config"
        self._path = self._folder / "consumerOffset.json"

    def play(self, seed: int) -> str | None:
        """What was read in silence though it was never saved last, if anything was."""
        rng = random.Random(seed)
        shutil.rmtree(self._folder, ignore_errors=True)
        last: dict[str, dict[str, int]] = {}
        for number in range(3):
            last = {f"Orders@group{i}": {"0": 1000 * i + number} for i in range(8)}
            snapshot.save(self._path, {"offsetTable": last})
        change = mutate(self._folder.parent, PARTS["config"], rng)
        told: list[str] = []
        try:
            found = snapshot.load(self._path, report=told.append)
        except SparrowError:
            return None
        if told or not self._path.parent.exists() or (found and found["offsetTable"] == last):
            return None
        return f"seed {seed}, {change}: {found}"


def found_in(store: MessageStore, topic: str, queue_id: int) -> Iterator[bytes]:
    """The bodies of a queue, read as a consumer reads them."""
    queue = store.queues.get(topic, queue_id)
    offset, end = (queue.min_offset, queue.max_offset) if queue else (0, 0)
    while offset < end:
        read = store.read(topic, queue_id, offset, 32)
        for view in read.views:
            for each in records.walk(view):
                found = records.decode(each, check_crc=False)
                assert found.topic == topic
                yield bytes(found.body)
        offset = read.next_offset


def mutate(folder: Path, parts: tuple[str, ...], rng: random.Random) -> str:
    """Change something in one of the parts of a store; what it was, in words."""
    root = folder / rng.choice(parts)
    files = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
    path = rng.choice(files)
    change = rng.choice({"commitlog": IN_PLACE, "config": ALONE}.get(root.name, CHANGES))
    change(path, rng)
    return f"{change.__name__} {path.relative_to(folder)}"


def flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    used = len(content.rstrip(b"\0")) or len(content)
    content[rng.randrange(used)] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def scribble(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    used = len(content.rstrip(b"\0")) or len(content)
    at = rng.randrange(used)
    junk = rng.randbytes(rng.randint(1, 40))
    content[at : at + len(junk)] = junk[: len(content) - at]
    path.write_bytes(content)


def zero_sector(path: Path, rng: random.Random) -> None:
    _sector(path, rng, lambda content, at: bytes(SECTOR))


def other_sector(path: Path, rng: random.Random) -> None:
    _sector(path, rng, lambda content, at: content[(at + SECTOR) % len(content) :][:SECTOR])


def _sector(path: Path, rng: random.Random, new: Callable[[bytes, int], bytes]) -> None:
    content = path.read_bytes()
    used = len(content.rstrip(b"\0")) or len(content)
    at = rng.randrange(used) // SECTOR * SECTOR
    size = min(SECTOR, len(content) - at)
    path.write_bytes(content[:at] + new(content, at)[:size].ljust(size, b"\0") + content[at + size :])


def cut(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def lengthen(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randint(1, 600)))


def delete(path: Path, rng: random.Random) -> None:
    path.unlink()


def delete_folder(path: Path, rng: random.Random) -> None:
    if path.name == "checkpoint":
        path.unlink()
    else:
        shutil.rmtree(rng.choice([path.parent, path.parent.parent]) if "consumequeue" in str(path) else path.parent)


def exchange(path: Path, rng: random.Random) -> None:
    other = rng.choice(sorted(each for each in path.parent.iterdir() if each.is_file()))
    one, two = path.read_bytes(), other.read_bytes()
    path.write_bytes(two)
    other.write_bytes(one)


IN_PLACE: list[Callable[[Path, random.Random], None]] = [flip, scribble, zero_sector, other_sector]
ALONE = [*IN_PLACE, cut, empty, lengthen, delete, delete_folder]
CHANGES = [*ALONE, exchange]  # a file of `config` that changes places with its copy was restored
