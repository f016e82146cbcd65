"""Rounds of: start a broker, load it, end it at any moment, start it again and look at everything.

    CrashRig(folder, "SYNC_FLUSH", seed)                kill -9, at any moment
    CrashRig(folder, ..., points=Points(folder, rng))   ... or at a crash point (deadly.py), that was tried least
    CrashRig(folder, ..., disk=disk)                    a power cut of the disk that the store lies on (loop_disk.py)

Some rounds end during recovery, before a single request. Log files are small, so that rolling to the next
file happens in every round. All randomness comes from one seed, which every failure prints.

With ASYNC_FLUSH a power cut may take what was acknowledged in the last half second, and only from the log's end: the
ledger then forgets that. What was acknowledged earlier and is gone is lost.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch, record
from sparrowmq.protocol.requests.headers import (
    GetMaxOffset,
    GetMinOffset,
    PullMessage,
    QueryConsumerOffset,
    SendBatchMessage,
    SendMessageV2,
    UpdateConsumerOffset,
)
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from tests.crash.ledger import Ledger, Sent

TOPIC: Final = "crash"
GROUP: Final = "crash-look"
QUEUES: Final = 4
WINDOW: Final = 64
# Against a hang. On a busy machine a start took more than 20 s; a broker that has ended is seen at once.
START_LIMIT_S: Final = 100.0
REFUSED_PAUSE_S: Final = 0.05
SHOWN_AGAIN: Final = 64  # messages of each queue that are looked at once more in each round
BATCHES: Final = (1, 1, 1, 1, 1, 1, 8, 32)
# ASYNC_FLUSH: how long ago what a power cut takes may have been acknowledged: half a second, and a quarter of one more
# on a machine that has other things to do.
TAIL_NS: Final = 750_000_000
CONF: Final = """
brokerName=crash-broker
listenPort={port}
brokerIP1=127.0.0.1
storePathRootDir={store}
flushDiskType={flush}
autoCreateTopicEnable=true
mappedFileSizeCommitLog=524288
mappedFileSizeConsumeQueue=20000
flushConsumerOffsetInterval=200
"""


class Disk(Protocol):
    """What a store lies on, whose power can be cut."""

    @property
    def folder(self) -> Path: ...

    def cut(self) -> None:
        """From now on nothing reaches the disk, and what did not is lost."""

    def again(self) -> None:
        """Switch it on again; nobody may have a file of it open."""


@dataclass(slots=True)
class Points:
    """The crash points that brokers met, and how often each was to be the last of one, and was.

    One that is hard to come by is not tried for ever.
    """

    folder: Path
    rng: random.Random
    tried: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    chosen: str = ""

    def command(self) -> list[str]:
        """Words for Python, by which a broker dies at the point that was tried least."""
        file = self.folder / "points"
        known = sorted(set(file.read_text().splitlines())) if file.exists() else [""]
        least = min(self.tried[point] for point in known)
        self.chosen = self.rng.choice([point for point in known if self.tried[point] == least])
        self.tried[self.chosen] += 1
        return ["-m", "tests.crash.deadly", str(file), self.chosen, str(self.rng.choice((1, 1, 1, 2, 3, 8)))]


@dataclass(slots=True)
class Tally:
    """What all rounds came to.

    Attributes:
        forgotten: messages that a power cut was allowed to take.
        tail_ms: how long before the cut the first of them had been acknowledged, at most.
    """

    rounds: int = 0
    kills_in_recovery: int = 0
    kills_at_points: int = 0
    restart_s: list[float] = field(default_factory=list)
    forgotten: int = 0
    tail_ms: float = 0.0
    violations: list[str] = field(default_factory=list)


class CrashRig:
    """One store under one broker that keeps dying.

    Args:
        load_s: how long it is under load, at most.
        store: its folder; in `folder`, or on `disk`, unless it is told.
        disk: what its store lies on, whose power is cut; without one the process is killed.
        points: where the process may kill itself.
    """

    def __init__(
        self,
        folder: Path,
        flush: str,
        seed: int,
        *,
        load_s: float = 0.2,
        store: Path | None = None,
        disk: Disk | None = None,
        points: Points | None = None,
    ) -> None:
        self.ledger = Ledger()
        self.tally = Tally()
        self._load_s = load_s
        self._disk = disk
        self._points = points
        self._may_lose_tail = disk is not None and flush == "ASYNC_FLUSH"
        self._cut_ns = 0
        self._tail_ns = TAIL_NS
        self._random = random.Random(seed)
        self._port = _free_port()
        self._conf = folder / "broker.conf"
        store = store or (disk.folder if disk is not None else folder) / "store"
        self._conf.write_text(CONF.format(port=self._port, store=store, flush=flush))
        self._log = folder / "broker.log"
        self._number = 0
        self.refused = 0

    async def play(self, rounds: int) -> None:
        """So many rounds, or until a promise is broken; at last all of it is read, and the broker stopped."""
        for _ in range(rounds):
            await self.round()
            if self.tally.violations:
                return
        await self.finish()

    async def round(self) -> None:
        """One life of the broker: what the one before left is looked at, then it is loaded until it dies."""
        if self._random.random() < 0.2:
            await self._end_in_recovery()
        process = await self._start(self._points)
        try:
            died = await self._live(process)
        except SparrowError:
            died = await self._died_at_its_point(process)
            if not died:
                raise
        if self._points is not None and died:
            self._points.hits[self._points.chosen] += 1
            self.tally.kills_at_points += 1
        await self._end(process)
        self.tally.rounds += 1

    async def finish(self) -> None:
        """A last start and a look at everything, then a clean stop."""
        process = await self._start()
        pool = await self._connect(process)
        self.tally.violations += await self._look(await pool.session(self._address), everything=True)
        self.tally.violations += list(self.ledger.violations())
        pool.close()
        process.send_signal(signal.SIGTERM)
        if await asyncio.wait_for(process.wait(), START_LIMIT_S) != 0:
            self.tally.violations.append(f"the broker did not stop cleanly: see {self._log}")

    @property
    def _address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def _live(self, process: asyncio.subprocess.Process) -> bool:
        """Whether it died by itself."""
        began = time.monotonic()
        pool = await self._connect(process)
        self.tally.restart_s.append(time.monotonic() - began)
        session = await pool.session(self._address)
        self.tally.violations += await self._look(session)
        load = asyncio.ensure_future(self._load(session))
        await asyncio.wait([load], timeout=self._random.uniform(0.02, self._load_s))
        died = load.done()
        if not died:
            await self._end(process)
        await load
        pool.close()
        return died

    async def _died_at_its_point(self, process: asyncio.subprocess.Process) -> bool:
        if self._points is None:
            return False
        return await asyncio.wait_for(process.wait(), START_LIMIT_S) == -signal.SIGKILL

    async def _start(self, points: Points | None = None) -> asyncio.subprocess.Process:
        program = ["-m", "sparrowmq"] if points is None else points.command()
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, *program, "broker", "-c", str(self._conf)), stdout=log, stderr=log
            )

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """Cut the power, or kill; a process that died by itself may lose the power, too."""
        if self._disk is not None:
            if process.returncode is None:
                _freeze(process.pid)
            self._cut_ns = time.monotonic_ns()
            self._disk.cut()
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
        if self._disk is not None:
            await asyncio.to_thread(self._disk.again)

    async def _end_in_recovery(self) -> None:
        process = await self._start()
        await asyncio.sleep(self._random.uniform(0.05, 0.5))
        cut_ns = self._cut_ns
        await self._end(process)
        self._cut_ns = cut_ns  # nothing was acknowledged since
        self.tally.kills_in_recovery += 1

    async def _connect(self, process: asyncio.subprocess.Process) -> Pool:
        """Raises: SparrowError, it died as it was told to."""
        pool, deadline = Pool(SystemClock()), time.monotonic() + START_LIMIT_S
        while True:
            try:
                await pool.session(self._address)
                return pool
            except SparrowError:
                if process.returncode is not None and self._points is not None:
                    raise
                if process.returncode is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the broker did not start again:\n{self._log.read_text()[-2000:]}") from None
                await asyncio.sleep(0.02)

    async def _load(self, session: Session) -> None:
        """Send until the connection dies, `WINDOW` sends in flight, now and then a batch."""
        in_flight: set[asyncio.Task[None]] = set()
        while not session.closed:
            task = asyncio.ensure_future(self._send(session))
            in_flight.add(task)
            task.add_done_callback(in_flight.discard)
            if len(in_flight) >= WINDOW:
                await asyncio.wait(in_flight, return_when=asyncio.FIRST_COMPLETED)
        if in_flight:
            await asyncio.wait(in_flight)

    async def _send(self, session: Session) -> None:
        queue_id = self._random.randrange(QUEUES)
        count = self._random.choice(BATCHES)
        entries = [self._new(queue_id) for _ in range(count)]
        kind = SendMessageV2 if count == 1 else SendBatchMessage
        body = entries[0].body if count == 1 else batch.encode([batch.BatchPart(entry.body, b"") for entry in entries])
        header = kind("crash-producer", TOPIC, "TBW102", QUEUES, queue_id, 0, int(time.time() * 1000), 0)
        header.batch = count > 1
        try:
            response = await session.call(header, body, timeout_s=START_LIMIT_S)
        except SparrowError as error:
            if isinstance(error, RemoteError):
                self.refused += 1
                await asyncio.sleep(REFUSED_PAUSE_S)
            return  # Unknown: it may or may not be there, and is allowed to be.
        returned_ns = time.monotonic_ns()
        for offset, entry in enumerate(entries, response.header.queue_offset):
            entry.returned_ns, entry.offset = returned_ns, offset
        self.ledger.acknowledged += len(entries)

    def _new(self, queue_id: int) -> Sent:
        self._number += 1
        body = b"message %d " % self._number + self._random.randbytes(self._random.randrange(1, 600))
        return self.ledger.send(body, queue_id, time.monotonic_ns())

    async def first_bodies(self, session: Session) -> int:
        """How many messages one pull from the beginning of each queue brings."""
        return sum([len(await _pull(session, queue_id, 0)) for queue_id in range(QUEUES)])

    async def _look(self, session: Session, everything: bool = False) -> list[str]:
        """What the queues have gained, or lost, since they were looked at last; or all that they hold."""
        found: list[str] = []
        for queue_id in range(QUEUES):
            end = await _ask(session, GetMaxOffset(TOPIC, queue_id))
            if self._may_lose_tail:
                self._forget(queue_id, end)
            begin = await _ask(session, GetMinOffset(TOPIC, queue_id))
            if begin:
                self.ledger.delete(queue_id, begin)
            known = len(self.ledger.shown.get(queue_id, ()))
            start = begin if everything else max(begin, min(known, end) - SHOWN_AGAIN)
            found += self.ledger.show(queue_id, start, await pull_all(session, queue_id, start))
            committed = await _ask(session, QueryConsumerOffset(GROUP, TOPIC, queue_id))
            if committed > end:
                found.append(f"ahead: the group is at {committed} of queue {queue_id}, which ends at {end}")
            if end:
                await session.call(UpdateConsumerOffset(GROUP, TOPIC, queue_id, end), timeout_s=START_LIMIT_S)
        return found

    def _forget(self, queue_id: int, end: int) -> None:
        gone = self.ledger.forget(queue_id, end, self._cut_ns - self._tail_ns)
        self.tally.forgotten += len(gone)
        for returned_ns in gone:
            self.tally.tail_ms = max(self.tally.tail_ms, (self._cut_ns - returned_ns) / 1e6)


def _freeze(pid: int) -> None:
    """Stop all threads of a process, as the power does.

    Linux answers a sync that is under way when a file system is shut down with "all well" (seen on ext4 and xfs, one
    cut in fifteen): a process that still runs would acknowledge what nobody has written.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + START_LIMIT_S
    while not all(map(_is_stopped, Path(f"/proc/{pid}/task").iterdir())):
        assert time.monotonic() < deadline, "the broker does not stop"
        time.sleep(0.001)


def _is_stopped(task: Path) -> bool:
    """Whether a thread runs no more, or waits in the kernel and will not come back from there."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] in "TtDZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def _ask(session: Session, header: GetMaxOffset | GetMinOffset | QueryConsumerOffset) -> int:
    """An offset; 0 where there is none yet."""
    try:
        response = await session.call(header, timeout_s=START_LIMIT_S)
    except RemoteError as error:
        if error.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.QUERY_NOT_FOUND):
            return 0  # The broker was killed before it kept its first message.
        raise
    return int(response.header.offset)


async def pull_all(session: Session, queue_id: int, start: int) -> list[bytes]:
    bodies: list[bytes] = []
    while found := await _pull(session, queue_id, start + len(bodies)):
        bodies += found
    return bodies


async def _pull(session: Session, queue_id: int, start: int) -> list[bytes]:
    """What one pull brings."""
    header = PullMessage(*(GROUP, TOPIC, queue_id, start, 4096, 4, 0, 0, 0), subscription="*", max_msg_bytes=1 << 20)
    try:
        response = await session.call(header, timeout_s=START_LIMIT_S, accept={19, 20, 21})
    except RemoteError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return []
        raise
    found = [record.decode(each) for each in record.walk(response.body)] if response.code == 0 else []
    for offset, stored in enumerate(found, start):
        assert stored.queue_offset == offset, f"queue {queue_id}: {stored.queue_offset} where {offset} is due"
    return [stored.body for stored in found]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def sentences(tally: Tally, ledger: Ledger) -> Iterator[str]:
    """The result, for people."""
    times = sorted(tally.restart_s) or [0.0]
    yield f"{tally.rounds} kills under load, {tally.kills_in_recovery} during recovery"
    yield f"{len(ledger.sent)} messages sent, {ledger.acked} acknowledged, {len(tally.violations)} violations"
    yield f"restart: median {times[len(times) // 2]:.2f} s, longest {times[-1]:.2f} s"
    if not tally.violations:
        yield f"0 of {tally.rounds} rounds failed: below {3 / max(1, tally.rounds):.1%} a kill (95 % bound, 3/N)"
