"""Groups of two or three members that were killed, one of them with damage: what their recovery and repair keep.

    group = Killed(folder, seed)          members with messages; killed, or after a power cut of all machines
    problem = group.play(seed)            one to three faults at one member; then all start, in some order

The election is that of the product (`compare_first`, `GroupState`), without etcd: the order of the starts and the
member that tries first are chosen by the seed. A message is acknowledged once all members have it on disk (D3).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from zlib import crc32

from sparrowmq.broker.failover.group_keys import Present, compare_first
from sparrowmq.broker.failover.group_state import GroupState, OwnEpoch
from sparrowmq.errors import BadStore, CorruptRecord, LogsDiffer, SparrowError
from sparrowmq.protocol.messages import record as records
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.record_repair import replace_damaged, take_from
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk
from tests.store.mutated import QUEUES, SECTOR, settings_of
from tests.store.stores import let_go, message

MESSAGES = 90
FILE_SIZE = 8192
MOST_REPAIRS = 8
Place = tuple[str, int, int]  # topic, queue, offset in the queue
KINDS = ("bit", "bit", "bit", "garbage", "zeros", "sector")
PARTS = ("log", "log", "log", "log", "log", "checkpoint", "ends", "abort", "consumequeue")


class Copy:
    """The log of a member that runs, as its peers read it."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def record_at(self, offset: int) -> bytes | None:
        return self._store.copy_at(offset)


@dataclass
class Group:
    """Members that started.

    Attributes:
        refused: why a member does not start, or does not follow.
    """

    stores: dict[int, MessageStore] = field(default_factory=dict)
    doubts: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)

    def others(self, member: int) -> list[MessageStore]:
        return [store for number, store in self.stores.items() if number != member]

    def close(self) -> None:
        for store in self.stores.values():
            store.close()


class Killed:
    """The folders of members that were killed.

    Attributes:
        acknowledged: the body of each acknowledged message, by its place.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self._folder = folder
        self.count = self._rng.choice((2, 2, 3))
        self.acknowledged: dict[Place, bytes] = {}
        self._ends: dict[int, tuple[int, int]] = {}  # how far the log of each is on disk, and written
        self._marks: dict[int, bytes] = {}  # of the file `abort`, at the start
        self._make()
        if self.is_power_cut:
            for number in self._ends:
                self._lose_sectors(number)
                self._restart_machine(number)

    def settings(self, folder: Path, number: int) -> StoreSettings:
        return replace(settings_of(folder / f"member-{number}"), awaits_copy=True)

    def _make(self) -> None:
        rng, numbers = self._rng, range(1, self.count + 1)
        stores = {number: MessageStore.open(self.settings(self._folder, number)) for number in numbers}
        self._marks = {n: Path(stores[n].settings.layout.abort).read_bytes() for n in numbers}
        self.is_power_cut = rng.random() < 0.5
        placed: list[tuple[Place, bytes, int]] = []
        counts = dict.fromkeys(QUEUES, 0)
        for number in range(MESSAGES):
            topic, queue_id = rng.choice(QUEUES)
            body = b"%s %d " % (topic.encode(), number) * rng.randrange(1, 12)
            [at] = stores[1].append(message(body, topic, queue_id))
            placed.append(((topic, queue_id, counts[topic, queue_id]), body, at.end))
            counts[topic, queue_id] += 1
            stores[1].publish()
            if rng.random() < 0.3 or number == MESSAGES - 5:
                stores[1].flush()
                for other in numbers[1:]:
                    self._follow(stores[other], stores[1], stores[1].flushed.value)
            if rng.random() < 0.03:
                stores[rng.choice(numbers)].checkpoint()
        end = min(store.flushed.value for store in stores.values())
        self.acknowledged = {place: body for place, body, after in placed if after <= end}
        self._ends = {n: (stores[n].flushed.value, stores[n].end) for n in numbers}
        for store in stores.values():
            kill(store)

    def _follow(self, store: MessageStore, master: MessageStore, limit: int) -> None:
        if self._rng.random() < 0.2:
            return
        follow(store, master, limit)
        if self._rng.random() < 0.8:
            store.flush()

    def _lose_sectors(self, number: int) -> None:
        """Take away some of the sectors that no sync covered, and perhaps the newest mark of a sync."""
        layout, (flushed, end) = self.settings(self._folder, number).layout, self._ends[number]
        for begin in range(flushed // SECTOR * SECTOR, end, SECTOR):
            if self._rng.random() < 0.4:
                path = Path(layout.commit_log, f"{begin // FILE_SIZE * FILE_SIZE:020d}")
                low = max(begin, flushed)
                overwrite(path, low % FILE_SIZE, bytes(begin + SECTOR - low))
        if self._rng.random() < 0.5:
            Path(layout.abort).write_bytes(self._marks[number])

    def _restart_machine(self, number: int) -> None:
        """Let the marks of the last syncs be of another boot of the system."""
        path = Path(self.settings(self._folder, number).layout.abort)
        other = bytes(15) + b"1"
        content = path.read_bytes()
        for at in (0, SECTOR):
            boot = other + crc32(other).to_bytes(4, "big")
            content = content[: at + 24] + boot + content[at + 24 + len(boot) :]
        path.write_bytes(content)

    def play(self, scratch: Path, seed: int) -> str | None:
        """Damage one member, start all, and say what is wrong, if anything is."""
        rng = random.Random(seed)
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(self._folder, scratch)
        victim = rng.randrange(1, self.count + 1)
        faults = [self._damage(scratch, victim, rng) for _ in range(rng.randrange(1, 4))]
        order = list(range(1, self.count + 1))
        rng.shuffle(order)
        alone = rng.randrange(1, self.count + 1)  # so many start, and have time to elect a master
        group = Group()
        try:
            problem = self._start(scratch, group, order, alone, rng)
        finally:
            group.close()
        if problem is None:
            return None
        what = "power cut" if self.is_power_cut else "kill"
        return (
            f"seed {seed}, {what}, {self.count} members in the order {order}, {alone} first, member {victim} "
            f"with {faults}: {problem}; refused: {group.refused}, in doubt: {group.doubts}"
        )

    def _damage(self, scratch: Path, victim: int, rng: random.Random) -> str:
        """Change some bytes of a file, as a disk does."""
        layout, part = self.settings(scratch, victim).layout, rng.choice(PARTS)
        root = Path(layout.root) / {"log": "commitlog"}.get(part, part)
        files = sorted(path for path in ([root] if root.is_file() else root.rglob("*")) if path.is_file())
        if not files:
            return f"{part}: no file"
        path = rng.choice(files)
        size = path.stat().st_size
        if part == "log":
            size = min(size, max(self._ends[victim][1] - int(path.name), 0))
        if not size:
            return f"{path.name}: empty"
        at, kind = rng.randrange(size), rng.choice(KINDS)
        if kind == "bit":
            content = bytes([path.read_bytes()[at] ^ 1 << rng.randrange(8)])
        elif kind == "garbage":
            content = rng.randbytes(min(rng.randrange(1, 300), size - at))
        elif kind == "zeros":
            content = bytes(min(rng.randrange(1, 300), size - at))
        else:
            at = at // SECTOR * SECTOR
            content = bytes(min(SECTOR, path.stat().st_size - at))
        overwrite(path, at, content)
        return f"{kind} at {at} of {root.name}/{path.name}"

    def _start(self, scratch: Path, group: Group, order: list[int], alone: int, rng: random.Random) -> str | None:
        """Start the members, elect, follow and compare."""
        for number in [*order[:alone], *order[:alone]]:  # again those that had to wait for another one
            self._open(scratch, group, number)
        master = self._elected(group, rng)
        if master is None:
            for number in [*order, *order]:
                self._open(scratch, group, number)
            master = self._elected(group, rng)
        if master is None:  # damage that no other member has is refused, and a member in doubt needs one to compare
            others = [doubt for number, doubt in group.doubts.items() if number not in group.refused]
            is_stuck = len(group.refused) == 1 and len(others) == 1 and all(others)
            return None if is_stuck else "no member leads, though all run"
        end = group.stores[master].end
        for number in order:
            if number != master:
                self._join(scratch, group, number, master, end)
        return self._compare(group, master)

    def _open(self, scratch: Path, group: Group, number: int, cut_at: int | None = None) -> None:
        """Start a member; take damaged records from the others that run."""
        if number in group.stores:
            return
        settings = self.settings(scratch, number)
        for _ in range(MOST_REPAIRS):
            try:
                store = MessageStore.open(settings, cut_at=cut_at)
            except CorruptRecord as damage:
                group.refused[number] = str(damage)
                if not any(self._repaired(settings, other, damage.offset) for other in group.others(number)):
                    return
            except SparrowError as error:
                group.refused[number] = str(error)
                return
            else:
                group.stores[number] = store
                group.doubts.setdefault(number, store.recovered.doubt)
                group.refused.pop(number, None)
                return

    def _repaired(self, settings: StoreSettings, other: MessageStore, offset: int) -> bool:
        try:
            done = take_from(Copy(other), replace_damaged(settings, Disk(), offset, is_partial=True))
        except SparrowError:
            return False
        return done.count + done.blank_count > 0

    def _elected(self, group: Group, rng: random.Random) -> int | None:
        """The member that becomes the master, of those that may."""
        members = tuple(range(1, self.count + 1))
        state = GroupState(epoch=1, line="x", leader=1, in_sync=members, begins=((1, 0),))
        present = {
            number: Present(member=number, store=str(number), address="", epoch=1, line="x", end=store.end)
            for number, store in group.stores.items()
        }
        able = [
            number
            for number, store in group.stores.items()
            if not compare_first(
                OwnEpoch(Path("-"), 1, "x", str(number), doubt=group.doubts[number]),
                store.end,
                state,
                [each for each in present.values() if each.member != number],
            )
        ]
        return rng.choice(able) if able else None

    def _join(self, scratch: Path, group: Group, number: int, master: int, begin: int) -> None:
        """Cut a member's log at the begin of the new epoch, compare it with the master's, and let it follow."""
        if number in group.stores:
            group.stores.pop(number).close()
        self._open(scratch, group, number, cut_at=begin)
        store, leader = group.stores.get(number), group.stores[master]
        if store is None:
            return
        first = max((store.end - 1) // FILE_SIZE * FILE_SIZE, store.begin, 0)
        ours = bytes(store.log_bytes(first, store.end - first) or b"")
        theirs = bytes(leader.log_bytes(first, store.end - first) or b"")
        if ours != theirs or store.end > leader.end:
            group.refused[number] = str(LogsDiffer("its last bytes are not those of the master"))
            group.stores.pop(number).close()
            return
        follow(store, leader, leader.end)

    def _compare(self, group: Group, master: int) -> str | None:
        """Whether each member that runs has all acknowledged messages, and the master gives no offset twice."""
        for number, store in group.stores.items():
            for place, body in self.acknowledged.items():
                if (problem := self._read(group, number, store, place, body)) is not None:
                    return f"member {number}{' (the master)' if number == master else ''}: {problem}"
        leader = group.stores[master]
        for topic, queue_id in QUEUES:
            [placed] = leader.append(message(b"more", topic, queue_id))
            known = [at for name, queue, at in self.acknowledged if (name, queue) == (topic, queue_id)]
            if known and placed.queue_offset <= max(known):
                return f"offset {placed.queue_offset} of {topic}/{queue_id} is given out again"
        leader.publish()
        return None

    def _read(self, group: Group, number: int, store: MessageStore, place: Place, body: bytes) -> str | None:
        problem = ""
        for _ in range(MOST_REPAIRS):
            try:
                found = list(bodies(store, place))
                return None if found == [body] else f"{place} is {found[:1]} and not {body[:30]!r}"
            except (CorruptRecord, BadStore) as damage:
                problem = str(damage)
                store.scrubber.review()
                for other in group.others(number):
                    try:
                        take_from(Copy(other), store.replace_damaged(1 << 30))
                    except SparrowError as error:
                        problem += f", {error}"
        return problem if group.others(number) else None  # the only copy: it is refused, not lost


def bodies(store: MessageStore, place: Place) -> Iterator[bytes]:
    """The message at a place. Raises: CorruptRecord."""
    topic, queue_id, offset = place
    read = store.read(topic, queue_id, offset, 1)
    for view in read.views:
        for each in records.walk(view):
            yield bytes(records.decode(each).body)


def follow(store: MessageStore, master: MessageStore, limit: int) -> None:
    """Copy whole records of the master's log up to a limit."""
    while store.end < limit:
        piece = master.log_bytes(store.end, limit - store.end)
        assert piece is not None
        store.follow(store.end, piece, True)
    store.publish()


def kill(store: MessageStore) -> None:
    """End a store as kill -9 does."""
    store._log.write_out()
    let_go(store)


def overwrite(path: Path, at: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)
