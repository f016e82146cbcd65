"""A broker and a name server in a process of their own, which measures the CPU of each step of its event loop.

A step is one callback: nothing else of the servers happens meanwhile. Its CPU time is the thread's, so that other
processes of the machine do not count. Dozens of small requests are measured together: the CPU that the dispatcher took
for each is known by its opaque.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import select
import socket
import time
from asyncio import events
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, Self

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateTopic
from sparrowmq.protocol.requests.headers import GetMinOffset
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.codec import encode_request
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.frame import FrameReader
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Dispatch, Session
from sparrowmq.testing import Cluster
from tests.broker.live import send_request
from tests.fuzz.cost.genes import TOPIC, WIDE

ANSWER_LIMIT_S: Final = 0.3
LATE_LIMIT_S: Final = 0.05
HANG_S: Final = 30.0
# From here on, the CPU per byte of a request and its answer counts; smaller ones have costs of another kind.
LEAST_BYTES: Final = 4096
# Between two questions to an idle broker it uses less CPU than this.
IDLE_S: Final = 0.001
MOST_PASSES: Final = 2000
WIDEST: Final = 65_535
MOST_TOGETHER: Final = 1024  # requests
_LONGEST, _TOTAL = 0, 1
_UNKNOWN: Final = -1.0
_LAST: Final = 2_100_000_001  # the opaque of the request after those that are measured together


class Cost(NamedTuple):
    """What a case cost.

    Attributes:
        size, cpu_s: bytes, and CPU of all steps, of the request with the most CPU per byte, together with its answer.
        step_s: of the longest step; `where` says which, and `at` in which request; len() is the end of the connection.
    """

    size: int
    cpu_s: float
    step_s: float
    where: str
    at: int = 0


class Together(NamedTuple):
    """What requests cost together.

    Attributes:
        step_s: of the longest step, which was in `where`.
        cpu_s: of all steps.
        took_s: the dispatcher's CPU for each request; below 0 for a request that the server did not handle.
    """

    step_s: float
    where: str
    cpu_s: float
    took_s: list[float]


class Hung(Exception):
    """The broker did not answer for HANG_S."""


class Rig:
    """The broker, from outside.

    Args:
        of_namesrv: measure the name server instead.
    """

    def __init__(self, of_namesrv: bool = False) -> None:
        self._of_namesrv = of_namesrv

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        self._times = context.Array("d", 2, lock=False)
        self._where = context.Array("c", 400, lock=False)
        self._took = context.Array("d", MOST_TOGETHER + 1, lock=False)
        self._pipe, theirs = context.Pipe()
        shared = self._times, self._where, self._took
        self._folder = TemporaryDirectory(prefix="sparrowmq-cost-")
        arguments = Path(self._folder.name), theirs, *shared
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        host, _, port = self._pipe.recv()[self._of_namesrv].rpartition(":")
        self._address = host, int(port)
        self._fence = socket.create_connection(self._address, HANG_S)
        self._fence_bytes = _fence()
        return self

    def __exit__(self, *error: object) -> None:
        self._fence.close()
        self._pipe.close()
        self._process.kill()
        self._process.join()
        self._folder.cleanup()

    def measure(self, frames: Sequence[bytes]) -> Cost:
        """Send requests on a new connection, await their answers, and leave. Raises: Hung."""
        self._pass()
        self._times[_LONGEST] = self._times[_TOTAL] = 0.0
        self._where.value = b""
        longest, at, totals = 0.0, 0, [0.0]
        sizes: list[int] = []
        with socket.create_connection(self._address, ANSWER_LIMIT_S) as peer:
            for number, request in enumerate(frames):
                began = time.monotonic()
                is_open, answer_bytes = _answered(peer, request, number + 1)
                self._pass()  # an answer may come before the end of its step
                if is_open and time.monotonic() - began > ANSWER_LIMIT_S:
                    answer_bytes += _received(peer)
                sizes.append(len(request) + answer_bytes)
                totals.append(self._times[_TOTAL])
                if self._times[_LONGEST] > longest:
                    longest, at = self._times[_LONGEST], number
                if not is_open:
                    break
        self._pass()
        totals[-1] = self._times[_TOTAL]  # the end of the connection belongs to the last request
        costs = [(after - before, size) for before, after, size in zip(totals[:-1], totals[1:], sizes, strict=True)]
        cpu_s, size = max(costs, key=lambda cost: cost[0] / max(cost[1], LEAST_BYTES))
        at = len(frames) if self._times[_LONGEST] > longest else at
        where = self._where.value.decode("utf-8", "replace")
        return Cost(size, cpu_s, self._times[_LONGEST], where, at)

    def together(self, frames: Sequence[bytes]) -> Together:
        """Send requests with the opaques 1, 2, ... at once on a new connection, and leave. Raises: Hung."""
        self._times[_LONGEST] = self._times[_TOTAL] = 0.0
        self._where.value = b""
        self._took[: len(frames) + 1] = [_UNKNOWN] * (len(frames) + 1)
        with socket.create_connection(self._address, HANG_S) as peer:
            peer.setblocking(False)
            with suppress(ConnectionError):
                _exchange(peer, b"".join([*frames, _fence(_LAST)]))
            self._pass()
        self._pass()
        where = self._where.value.decode("utf-8", "replace")
        took_s = list(self._took[1 : len(frames) + 1])
        return Together(self._times[_LONGEST], where, self._times[_TOTAL], took_s)

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


def _answered(peer: socket.socket, request: bytes, opaque: int) -> tuple[bool, int]:
    """Send one request, and wait for its answer for a while.

    Returns: whether the connection is there still, and how many bytes came.
    """
    reader, size = FrameReader(), 0
    try:
        peer.settimeout(HANG_S)
        peer.sendall(request)
        peer.settimeout(ANSWER_LIMIT_S)
        while True:
            chunk = peer.recv(1 << 18)
            if not chunk:
                return False, size
            size += len(chunk)
            commands = [codec.decode(*frame) for frame in reader.feed(chunk)]
            if any(command.is_reply and command.opaque == opaque for command in commands):
                return True, size
    except TimeoutError:
        return True, size
    except (ConnectionError, RemoteProtocolError):
        return False, size


def _received(peer: socket.socket) -> int:
    """Read what is there, as an answer that took longer. Returns the number of bytes."""
    size = 0
    peer.settimeout(LATE_LIMIT_S)
    with suppress(TimeoutError, ConnectionError):
        while chunk := peer.recv(1 << 18):
            size += len(chunk)
    return size


def _exchange(peer: socket.socket, unsent: bytes) -> None:
    """Send requests, and read answers up to the one to _LAST, or up to the end of the connection."""
    rest, tail, marker = memoryview(unsent), b"", b'"opaque":%d' % _LAST
    while True:
        readable, writable, _ = select.select([peer], [peer] if rest else [], [], HANG_S)
        if not readable and not writable:
            raise Hung(f"no answer for {HANG_S:.0f} s")
        if writable:
            rest = rest[peer.send(rest[: 1 << 18]) :]
        if readable:
            chunk = peer.recv(1 << 18)
            if not chunk or marker in tail + chunk:
                return
            tail = chunk[-64:]


def _fence(opaque: int = 1) -> bytes:
    """A request that costs little."""
    return encode_request(GetMinOffset(TOPIC, 0), GetMinOffset.code, opaque)


# In the other process -------------------------------------------------------------------------------------------------


def _serve(folder: Path, pipe: Connection, times: Any, where: Any, took: Any) -> None:
    logging.disable(logging.CRITICAL)
    asyncio.run(_servers(folder, pipe, times, where, took))


async def _servers(folder: Path, pipe: Connection, times: Any, where: Any, took: Any) -> None:
    async with Cluster(folder) as cluster:
        await _fill(cluster.brokers[0].address)
        for server in (cluster.brokers[0]._server, cluster._namesrv._server):
            assert server is not None
            server.dispatch = _measured_dispatch(server.dispatch, took)
        # As `sparrowmq broker` starts: a look at all objects for garbage takes longer than any step may.
        gc.collect()
        gc.freeze()
        gc.set_threshold(100_000, 20, 50)
        _measure(times, where)
        pipe.send((cluster.brokers[0].address, cluster.namesrv))
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(pipe.fileno(), ended.set_result, None)
        await ended


def _measured_dispatch(dispatch: Dispatch, took: Any) -> Dispatch:
    """Measure the CPU of each request, by its opaque."""
    now = time.thread_time

    def measured(session: Session, command: Command) -> None:
        began = now()
        dispatch(session, command)
        if 0 < command.opaque <= MOST_TOGETHER:
            took[command.opaque] = now() - began

    return measured


def _measure(times: Any, where: Any) -> None:
    """Measure every callback of this process's loop from now on."""
    run, now = events.Handle._run, time.thread_time
    collected = _Collected()
    gc.callbacks.append(collected.note)

    def measured(handle: events.Handle) -> None:
        collected.took_s = 0.0
        began = now()
        run(handle)
        took = now() - began
        times[_TOTAL] += took
        if took > times[_LONGEST]:
            times[_LONGEST] = took
            garbage = f"{collected.took_s * 1e3:.1f} ms of garbage collection and " if collected.took_s else ""
            where.value = f"{garbage}{handle!r}".encode()[:399]

    events.Handle._run = measured  # type: ignore[method-assign, assignment]


class _Collected:
    """The CPU that the garbage collector took."""

    def __init__(self) -> None:
        self.took_s = self._began = 0.0

    def note(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            self.took_s += time.thread_time() - self._began


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
