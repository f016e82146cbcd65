"""A broker in a process of its own, which measures the CPU of each step of its event loop.

A step is one callback: nothing else of the broker happens meanwhile. Its CPU time is the thread's, so that other
processes of the machine do not count.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import socket
import time
from asyncio import events
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, Self

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateTopic
from sparrowmq.protocol.requests.headers import GetMinOffset
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.connection import Connection as Wire
from sparrowmq.protocol.wire.frame import FrameReader
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing import Cluster
from tests.broker.live import send_request
from tests.fuzz.cost.genes import TOPIC, WIDE

ANSWER_LIMIT_S: Final = 0.3
HANG_S: Final = 30.0
# A request's CPU per byte counts from here on; smaller ones have costs that do not depend on their size.
LEAST_BYTES: Final = 4096
# Between two questions to an idle broker it uses less CPU than this.
IDLE_S: Final = 0.001
MOST_PASSES: Final = 2000
WIDEST: Final = 65_535
_LONGEST, _TOTAL = 0, 1


class Cost(NamedTuple):
    """What a case cost.

    Attributes:
        size, cpu_s: bytes, and CPU of all steps, of the request with the most CPU per byte.
        step_s: of the longest step; `where` says which, and `at` in which request; len() is the end of the connection.
    """

    size: int
    cpu_s: float
    step_s: float
    where: str
    at: int = 0


class Hung(Exception):
    """The broker did not answer for HANG_S."""


class Rig:
    """The broker, from outside."""

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._times = context.Array("d", 2, lock=False)
        self._where = context.Array("c", 400, lock=False)
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._times, self._where), daemon=True)
        self._process.start()
        theirs.close()
        host, _, port = self._pipe.recv().rpartition(":")
        self._address = host, int(port)
        self._fence = socket.create_connection(self._address, HANG_S)
        self._fence_bytes = _fence()
        return self

    def __exit__(self, *error: object) -> None:
        self._fence.close()
        self._pipe.close()
        self._process.kill()
        self._process.join()

    def measure(self, frames: Sequence[bytes]) -> Cost:
        """Send requests on a new connection, await their answers, and leave. Raises: Hung."""
        self._pass()
        self._times[_LONGEST] = self._times[_TOTAL] = 0.0
        self._where.value = b""
        longest, at, totals = 0.0, 0, [0.0]
        with socket.create_connection(self._address, ANSWER_LIMIT_S) as peer:
            for number, request in enumerate(frames):
                is_open = _answered(peer, request, number + 1)
                self._pass()  # an answer may come before the end of its step
                totals.append(self._times[_TOTAL])
                if self._times[_LONGEST] > longest:
                    longest, at = self._times[_LONGEST], number
                if not is_open:
                    break
        self._pass()
        totals[-1] = self._times[_TOTAL]  # the end of the connection belongs to the last request
        costs = [
            (after - before, len(each))
            for before, after, each in zip(totals, totals[1:], frames, strict=False)
        ]
        cpu_s, size = max(costs, key=lambda cost: cost[0] / max(cost[1], LEAST_BYTES))
        at = len(frames) if self._times[_LONGEST] > longest else at
        where = self._where.value.decode("utf-8", "replace")
        return Cost(size, cpu_s, self._times[_LONGEST], where, at)

    def _pass(self) -> None:
        """Return when the broker has done all that came before, also what it does in slices."""
        try:
            for _ in range(MOST_PASSES):
                before = self._times[_TOTAL]
                for _ in range(2):
                    self._fence.sendall(self._fence_bytes)
                    if not self._fence.recv(1 << 16):
                        raise Hung("the broker closed a connection that does no harm")
                if self._times[_TOTAL] - before < IDLE_S:
                    break
        except TimeoutError as error:
            raise Hung(f"no answer for {HANG_S:.0f} s") from error


def _answered(peer: socket.socket, request: bytes, opaque: int) -> bool:
    """Send one request, and wait for its answer for a while. Returns whether the connection is there still."""
    reader = FrameReader()
    try:
        peer.settimeout(HANG_S)
        peer.sendall(request)
        peer.settimeout(ANSWER_LIMIT_S)
        while True:
            chunk = peer.recv(1 << 18)
            if not chunk:
                return False
            commands = [codec.decode(*frame) for frame in reader.feed(chunk)]
            if any(command.is_reply and command.opaque == opaque for command in commands):
                return True
    except TimeoutError:
        return True
    except (ConnectionError, RemoteProtocolError):
        return False


def _fence() -> bytes:
    return Wire[None]().request(GetMinOffset(TOPIC, 0), b"", None)[1]


# In the other process -------------------------------------------------------------------------------------------------


def _serve(pipe: Connection, times: Any, where: Any) -> None:
    logging.disable(logging.CRITICAL)
    with TemporaryDirectory(prefix="sparrowmq-cost-") as folder:
        asyncio.run(_broker(Path(folder), pipe, times, where))


async def _broker(folder: Path, pipe: Connection, times: Any, where: Any) -> None:
    async with Cluster(folder) as cluster:
        await _fill(cluster.brokers[0].address)
        # As `sparrowmq broker` starts: a look at all objects for garbage takes longer than any step may.
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 20, 50)
        _measure(times, where)
        pipe.send(cluster.brokers[0].address)
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(pipe.fileno(), ended.set_result, None)
        await ended


def _measure(times: Any, where: Any) -> None:
    """Measure every callback of this process's loop from now on."""
    run, now = events.Handle._run, time.thread_time

    def measured(handle: events.Handle) -> None:
        began = now()
        run(handle)
        took = now() - began
        times[_TOTAL] += took
        if took > times[_LONGEST]:
            times[_LONGEST] = took
            where.value = repr(handle).encode()[:399]

    events.Handle._run = measured  # type: ignore[method-assign, assignment]


async def _fill(address: str) -> None:
    """A topic with messages that are large in properties, and one with very many queues."""
    pool = Pool(SystemClock())
    try:
        session = await pool.session(address)
        for topic, queues in ((TOPIC, 8), (WIDE, WIDEST)):
            await session.call(UpdateAndCreateTopic(topic, queues, queues, 6, "TBW102", "SINGLE_TAG", 0))
        for number in range(32):
            marks = {"KEYS": f"key {number}", "a": "x" * 30_000, "TAGS": "t"}
            await session.call(send_request(TOPIC, 0, marks), b"body")
        await session.call(send_request(TOPIC, 0, {"TRAN_MSG": "true", "PGROUP": "fuzzers"}), b"half")
    finally:
        pool.close()
