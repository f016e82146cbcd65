"""Cycles of: the disk of a broker under load fills up, and has room again.

While it is full messages are refused, and what is stored is read, and groups go on, on disk too; once there is room
messages are taken again within ten seconds. The process lives on all the time; some cycles kill it while it is full.

A failed sync, on a file system whose own disk is full, is another matter: from then on nothing is acknowledged, what
had been acknowledged is served, and the next start has it all, and after a power cut, too.

Linux may answer the sync before the first that fails with success, though its data is gone: pwrite and fdatasync alone,
on ext4 on a loop device on a full disk, showed it in 3 of 40 rounds, 2 ms before the error each time. What a broker
acknowledged in the tenth of a second before its failure, and lost, is counted apart (`Tally.forgotten`), for nobody can
tell whose fault it was; what it acknowledged earlier is lost, and what was sent later may not be acknowledged at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from sparrowmq.errors import SparrowError
from sparrowmq.protocol.requests.headers import UpdateConsumerOffset
from sparrowmq.remoting.session import Session
from tests.crash.loop_disk import LoopDisk
from tests.crash.rounds import GROUP, START_LIMIT_S, TOPIC, CrashRig
from tests.crash.small_disk import SmallDisk

REFUSES_LIMIT_S: Final = 15.0
RESUMES_LIMIT_S: Final = 10.0
SAVED_LIMIT_S: Final = 5.0
LOADED_S: Final = 0.3
POLL_S: Final = 0.02
FAILED: Final = "writing the store to disk failed"
FALSE_SYNC_NS: Final = 100_000_000


class FullDisk(CrashRig):
    """A broker on a small disk.

    Attributes:
        resumed_s: how long each time it took, from when there was room, to the first message.
    """

    def __init__(self, folder: Path, flush: str, seed: int, disk: SmallDisk) -> None:
        super().__init__(folder, flush, seed, store=disk.folder / "store")
        self.resumed_s: list[float] = []
        self._small = disk
        self._saved = disk.folder / "store" / "config" / "consumerOffset.json"

    async def cycle(self, kills: bool) -> None:
        """Fill it once, and free it."""
        async with self.living() as (process, session):
            load = asyncio.ensure_future(self._load(session))
            await asyncio.sleep(LOADED_S)
            await asyncio.to_thread(self._small.fill)
            await self._until_refused()
            await self._serves(session)
            if kills:
                process.send_signal(signal.SIGKILL)
                await process.wait()
            self._small.free()
            if not kills:
                await self._until_acked()
                await self._end(process)
            elif process.returncode not in (None, -signal.SIGKILL):
                self.tally.violations.append(f"the broker ended with {process.returncode}")
            await load
        self.tally.rounds += 1

    @contextlib.asynccontextmanager
    async def living(self) -> AsyncIterator[tuple[asyncio.subprocess.Process, Session]]:
        """A broker, and what it holds looked at."""
        process = await self._start()
        began = time.monotonic()
        pool = await self._connect(process)
        self.tally.restart_s.append(time.monotonic() - began)
        try:
            session = await pool.session(self._address)
            self.tally.violations += await self._look(session)
            yield process, session
        finally:
            pool.close()
            await self._end(process)

    async def _until_refused(self) -> None:
        before, deadline = self.refused, time.monotonic() + REFUSES_LIMIT_S
        while self.refused == before and time.monotonic() < deadline:
            await asyncio.to_thread(self._small.fill)
            await asyncio.sleep(POLL_S)
        if self.refused == before:
            self.tally.violations.append("a full disk refuses nothing")

    async def _serves(self, session: Session) -> None:
        """What is stored can be read, and a group's progress reaches the disk."""
        self.tally.violations += await self._look(session)
        progress = self.tally.rounds + 1
        await session.call(UpdateConsumerOffset("progress", TOPIC, 0, progress), timeout_s=START_LIMIT_S)
        deadline = time.monotonic() + SAVED_LIMIT_S
        while self._progress() != progress:
            if time.monotonic() > deadline:
                self.tally.violations.append("a group's progress is not saved while the disk is full")
                return
            await asyncio.sleep(POLL_S)

    def _progress(self) -> int | None:
        try:
            table = msgspec.json.decode(self._saved.read_bytes())["offsetTable"]
        except (FileNotFoundError, ValueError):
            return None
        found: int | None = table.get(f"{TOPIC}@progress", {}).get("0")
        return found

    async def _until_acked(self) -> None:
        before, began = self.ledger.acknowledged, time.monotonic()
        while self.ledger.acknowledged == before:
            if time.monotonic() > began + RESUMES_LIMIT_S:
                self.tally.violations.append(f"no message is taken {RESUMES_LIMIT_S:g} s after there is room")
                return
            await asyncio.sleep(POLL_S)
        self.resumed_s.append(time.monotonic() - began)


class FailedSync(CrashRig):
    """A broker on a file system of its own, on a disk that becomes full."""

    def __init__(self, folder: Path, seed: int, under: SmallDisk, disk: LoopDisk) -> None:
        super().__init__(folder, "SYNC_FLUSH", seed, store=disk.folder / "store")
        self._under = under
        self._loop_disk = disk

    async def cycle(self) -> None:
        """Let a sync fail, stop the broker as its message says, make room, start it; then cut the power."""
        process = await self._start()
        pool = await self._connect(process)
        session = await pool.session(self._address)
        load = asyncio.ensure_future(self._load(session))
        await asyncio.sleep(LOADED_S)
        await asyncio.to_thread(self._under.fill)
        await self._until_failed()
        seen_ns = time.monotonic_ns()
        failed_ns = seen_ns - int((time.time() - self._failed_at()) * 1e9)
        await asyncio.sleep(LOADED_S)
        # Answers to what was sent before may have been on their way; that it is kept is seen at the end.
        late = sum(sent.offset is not None for sent in self.ledger.sent_since(seen_ns))
        if late:
            self.tally.violations.append(f"{late} were sent and acknowledged after a sync had failed")
        await self._still_serves(session)
        pool.close()
        await load
        process.send_signal(signal.SIGTERM)
        if await asyncio.wait_for(process.wait(), START_LIMIT_S) != 1:
            self.tally.violations.append(f"after a failed sync the broker ends with {process.returncode}")
        self._under.free()
        await asyncio.to_thread(self._loop_disk.again)
        self._disk, self._may_lose_tail = self._loop_disk, True
        self._cut_ns, self._tail_ns = failed_ns, FALSE_SYNC_NS
        await self.round()  # ends by a power cut
        self._disk, self._may_lose_tail = None, False

    async def _until_failed(self) -> None:
        deadline = time.monotonic() + REFUSES_LIMIT_S
        while FAILED not in self._log.read_text():
            assert time.monotonic() < deadline, "no sync fails; is the disk below not full?"
            await asyncio.to_thread(self._under.fill)
            await asyncio.sleep(POLL_S)

    def _failed_at(self) -> float:
        """When the broker's log says that it failed, in seconds since 1970."""
        line = next(line for line in self._log.read_text().splitlines() if FAILED in line)
        return datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()

    async def _still_serves(self, session: Session) -> None:
        try:
            await session.call(UpdateConsumerOffset(GROUP, TOPIC, 0, 0), timeout_s=START_LIMIT_S)
            shown = await self.first_bodies(session)
        except SparrowError as error:
            self.tally.violations.append(f"after a failed sync nothing is served: {error}")
            return
        if shown == 0:
            self.tally.violations.append("after a failed sync no message is shown")
