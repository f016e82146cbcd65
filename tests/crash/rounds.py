"""Rounds of: start a broker, load it, `kill -9` it at any moment, start it again and look at everything.

Some rounds kill during recovery, before a single request. Log files are small, so that rolling to the next
file happens in every round. All randomness comes from one seed, which every failure prints.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sparrowmq.clock import SystemClock
from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch, record
from sparrowmq.protocol.requests.headers import PullMessage, SendBatchMessage, SendMessageV2
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from tests.crash.ledger import Ledger, Sent

TOPIC = "crash"
QUEUES = 4
WINDOW = 64
START_LIMIT_S = 20.0
CONF = """
brokerName=crash-broker
listenPort={port}
brokerIP1=127.0.0.1
storePathRootDir={store}
flushDiskType={flush}
autoCreateTopicEnable=true
mappedFileSizeCommitLog=524288
mappedFileSizeConsumeQueue=20000
"""


@dataclass(slots=True)
class Tally:
    """What all rounds came to."""

    rounds: int = 0
    kills_in_recovery: int = 0
    restart_s: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)


class CrashRig:
    """One store under one broker that keeps dying."""

    def __init__(self, folder: Path, flush: str, seed: int) -> None:
        self.folder = folder
        self.ledger = Ledger()
        self.tally = Tally()
        self._random = random.Random(seed)
        self._port = _free_port()
        self._conf = folder / "broker.conf"
        self._conf.write_text(CONF.format(port=self._port, store=folder / "store", flush=flush))
        self._log = folder / "broker.log"
        self._number = 0

    async def round(self) -> None:
        """One life of the broker, then everything it holds is looked at."""
        if self._random.random() < 0.2:
            await self._kill_in_recovery()
        process = await self._start()
        began = time.monotonic()
        pool = await self._connect(process)
        self.tally.restart_s.append(time.monotonic() - began)
        session = await pool.session(self._address)
        self.tally.violations += await self._look(session)
        load = asyncio.ensure_future(self._load(session))
        await asyncio.sleep(self._random.uniform(0.02, 0.2))
        process.send_signal(signal.SIGKILL)
        await asyncio.gather(process.wait(), load)
        pool.close()
        self.tally.rounds += 1

    async def finish(self) -> None:
        """A last start and a look at everything, then a clean stop."""
        process = await self._start()
        pool = await self._connect(process)
        self.tally.violations += await self._look(await pool.session(self._address))
        self.tally.violations += list(self.ledger.violations())
        pool.close()
        process.send_signal(signal.SIGTERM)
        if await asyncio.wait_for(process.wait(), START_LIMIT_S) != 0:
            self.tally.violations.append(f"the broker did not stop cleanly: see {self._log}")

    @property
    def _address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def _start(self) -> asyncio.subprocess.Process:
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", "sparrowmq", "broker", "-c", str(self._conf), stdout=log, stderr=log
            )

    async def _kill_in_recovery(self) -> None:
        process = await self._start()
        await asyncio.sleep(self._random.uniform(0.05, 0.5))
        process.send_signal(signal.SIGKILL)
        await process.wait()
        self.tally.kills_in_recovery += 1

    async def _connect(self, process: asyncio.subprocess.Process) -> Pool:
        pool, deadline = Pool(SystemClock()), time.monotonic() + START_LIMIT_S
        while True:
            try:
                await pool.session(self._address)
                return pool
            except SparrowError:
                if process.returncode is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"the broker did not start again:\n{self._log.read_text()[-2000:]}"
                    ) from None
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
        count = self._random.choice((1, 1, 1, 1, 1, 1, 1, 8))
        entries = [self._new(queue_id) for _ in range(count)]
        kind = SendMessageV2 if count == 1 else SendBatchMessage
        body = (
            entries[0].body
            if count == 1
            else batch.encode([batch.BatchPart(entry.body, b"") for entry in entries])
        )
        header = kind("crash-producer", TOPIC, "TBW102", QUEUES, queue_id, 0, int(time.time() * 1000), 0)
        header.batch = count > 1
        try:
            response = await session.call(header, body, timeout_s=START_LIMIT_S)
        except SparrowError:
            return  # Unknown: it may or may not be there, and is allowed to be.
        returned_ns = time.monotonic_ns()
        for offset, entry in enumerate(entries, response.header.queue_offset):
            entry.returned_ns, entry.offset = returned_ns, offset

    def _new(self, queue_id: int) -> Sent:
        self._number += 1
        body = b"message %d " % self._number + self._random.randbytes(self._random.randrange(1, 600))
        return self.ledger.send(body, queue_id, time.monotonic_ns())

    async def _look(self, session: Session) -> list[str]:
        found: list[str] = []
        for queue_id in range(QUEUES):
            found += list(self.ledger.show(queue_id, 0, await _all_bodies(session, queue_id)))
        return found


async def _all_bodies(session: Session, queue_id: int) -> list[bytes]:
    try:
        return await _pull_all(session, queue_id)
    except RemoteError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return []  # The broker was killed before it kept its first message.
        raise


async def _pull_all(session: Session, queue_id: int) -> list[bytes]:
    bodies: list[bytes] = []
    while True:
        header = PullMessage(
            "crash-look",
            TOPIC,
            queue_id,
            len(bodies),
            4096,
            4,
            0,
            0,
            0,
            subscription="*",
            max_msg_bytes=1 << 20,
        )
        response = await session.call(header, timeout_s=START_LIMIT_S, accept={19, 20, 21})
        if response.code != 0:
            return bodies
        for stored in map(record.decode, record.walk(response.body)):
            if stored.queue_offset != len(bodies):
                raise AssertionError(
                    f"queue {queue_id}: offset {stored.queue_offset} where {len(bodies)} is due"
                )
            bodies.append(stored.body)


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
