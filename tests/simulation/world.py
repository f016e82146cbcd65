"""Hosts, processes and what they take for the machine: the clock, files, sockets, threads and randomness.

`World.entered` replaces what the product reads of the machine while the simulation runs: the calls of files in `os`,
the sockets of a door, the flush thread, the clocks and the sources of randomness.
"""

from __future__ import annotations

import asyncio
import builtins
import gc
import io
import logging
import os
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from typing import Any, Final
from unittest.mock import patch

from prometheus_client.core import GaugeMetricFamily, Metric

from sparrowmq.errors import SparrowError
from sparrowmq.loop import clock, slices
from sparrowmq.loop.clock import SystemClock
from sparrowmq.metrics import metrics_page
from sparrowmq.remoting import listener
from sparrowmq.store import upkeep, vfs
from sparrowmq.store.log import flush
from tests.simulation.disk import SimDisk
from tests.simulation.fibers import Fiber, waiting
from tests.simulation.files import ROOT, Fcntl, Files
from tests.simulation.network import Network, SocketModule
from tests.simulation.ordered_set import OrderedSet
from tests.simulation.schedule import Died, ProcessLoop, Scheduler
from tests.simulation.threads import SimQueue, Threads

BEGIN_MS: Final = 1_800_000_000_000
_BURIALS_PER_COLLECTION: Final = 200
# The order of their sets would depend on addresses. That of all other sets depends on PYTHONHASHSEED at most.
_ORDERED: Final = (
    "asyncio.taskgroups",
    "sparrowmq.broker.due_work",
    "sparrowmq.broker.pop.popper",
    "sparrowmq.broker.replication.ha_master",
    "sparrowmq.client.consuming.process_queue",
    "sparrowmq.metrics.http_endpoint",
    "sparrowmq.namesrv.handlers",
    "sparrowmq.remoting.server",
)


class Host:
    """A machine: its address, its disk, its wall clock, at most one server, and tools that run beside it.

    Attributes:
        ahead_ms: how far its wall clock is ahead.
        tools: the processes beside the server.
    """

    def __init__(self, world: World, name: str, ip: str) -> None:
        self.world = world
        self.name = name
        self.ip = ip
        self.disk = SimDisk(ROOT)
        self.ahead_ms = 0
        self.has_power = True
        self.boots = 1
        self.process: Process | None = None
        self.tools: list[Process] = []

    @property
    def is_healthy(self) -> bool:
        """Whether its process runs, and its disk has no fault."""
        disk, process = self.disk, self.process
        if process is None or process.is_dead or process.loop.is_paused:
            return False
        return not (disk.is_full or disk.is_read_only or disk.failing_syncs or disk.sync_s > 0.05)

    def start(self, program: Callable[[], Coroutine[Any, Any, Any]]) -> Process:
        """Run a program, as the only process."""
        assert self.process is None or self.process.is_dead
        if not self.has_power:
            self.has_power = True
            self.boots += 1
            self.world.network.booted(self.ip)
        self.process = Process(self)
        self.process.start(program)
        return self.process

    def run_tool(self, program: Callable[[], Coroutine[Any, Any, Any]], pauses: float) -> Process:
        """Run a program beside the server; its fibers let others run at this share of the calls of the system."""
        self.tools = [tool for tool in self.tools if not tool.is_dead]
        tool = Process(self, pauses)
        self.tools.append(tool)
        tool.start(program)
        return tool

    def kill(self, *, power: bool) -> None:
        """Kill the process; with `power`, the whole machine."""
        if self.process is not None and not self.process.is_dead:
            self.process.die("power" if power else "kill", power=power)
        for tool in self.tools if power else ():
            tool.die("power", power=True)
        if power and self.has_power:
            self.has_power = False
            self.world.network.power_cuts[self.ip] += 1
            self.disk.cut_power(self.world.scheduler.rng)


class Process:
    """A running program of a host.

    Attributes:
        began_s: when it began.
        dies_in: the number of calls of the system after which it dies; None for never.
        dies_by_power: whether that takes the whole machine.
        ended: why it ended.
        why: the traceback of the error that ended it.
    """

    def __init__(self, host: Host, pauses: float = 0.0) -> None:
        self.host = host
        self.world = host.world
        self._pauses = pauses
        self.number = self.world.next_process()
        self.began_s = self.world.scheduler.now
        self.loop = ProcessLoop(self.world.scheduler, self, self.world.network)
        self.is_dead = False
        self.dies_in: int | None = None
        self.dies_by_power = False
        self.ended = ""
        self.why = ""
        self._task: asyncio.Task[Any] | None = None

    def __str__(self) -> str:
        return f"{self.host.name}#{self.number}"

    def start(self, program: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.world.scheduler.note(f"start {self}")
        self.loop.call_soon(self._begin, program)

    def _begin(self, program: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._task = self.loop.create_task(self._main(program()))

    async def _main(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            with suppress(asyncio.CancelledError):
                await work
            self.die("end", power=False)
        except Exception as error:
            self.why = "".join(traceback.format_exception(error))
            self.die(f"{type(error).__name__}: {error}", power=False)
        raise Died

    def die(self, why: str, *, power: bool) -> None:
        """End at once: nothing of it runs any more."""
        if self.is_dead:
            return
        self.world.scheduler.note(f"end {self} {why}")
        self.is_dead, self.ended = True, why
        self.loop.die()
        self.world.network.killed(self.loop, power=power)
        self.world.files.killed(self)
        self.world.scheduler.after(0.0, lambda: self.world.bury(self))
        self.world.on_end(self)

    def die_now(self, where: str) -> None:
        """Die as `dies_by_power` says."""
        self.world.scheduler.note(f"{self} dies in {where}")
        self.host.kill(power=self.dies_by_power)

    def resume(self) -> None:
        """Let a paused process go on."""
        self.loop.is_paused = False
        if not self.is_dead:
            self.loop.call_soon(_nothing)

    def stop(self) -> None:
        """Ask it to end in order, as SIGTERM does."""
        if self._task is not None:
            self._task.cancel()

    def system_call(self, what: str, path: str) -> None:
        """Note a call. Raises: Died."""
        if self.is_dead:
            raise Died
        if self.dies_in is not None:
            self.dies_in -= 1
            if self.dies_in <= 0:
                self.die_now(f"{what} of {path}")
                raise Died
        if Fiber.current is not None:
            Fiber.current.called_system()

    def in_fiber(self, work: Callable[[], object]) -> None:
        """Do some work as a thread does that may wait for others."""
        self.in_thread(lambda: Fiber(self.loop, work, self._pauses).start())

    def in_thread(self, work: Callable[[], object]) -> None:
        """Do some work as a thread does: a little later."""
        delay_s = self.host.disk.sync_s * (0.5 + self.world.scheduler.rng.random())
        self.loop.call_later(delay_s, work)

    def took_sync(self) -> None:
        """Let the time of a sync pass for this process."""
        self.loop.busy_until = max(self.loop.busy_until, self.world.scheduler.now + self.host.disk.sync_s / 4)


class SimClock(SystemClock):
    """The clock of a process."""

    def __init__(self, process: Process) -> None:
        self._host = process.host
        self._scheduler = process.world.scheduler
        self.monotonic = lambda: self._scheduler.now

    def now_ms(self) -> int:
        return self._host.world.begin_ms + int(self._scheduler.now * 1000) + self._host.ahead_ms


class ProcessFigures:
    """Metrics of the process that runs. Real figures have other lengths each time, and so would the pages."""

    def __init__(self, world: World) -> None:
        self._world = world

    def collect(self) -> Iterator[Metric]:
        began_s = self._world.begin_ms / 1000 + this_process(self._world).began_s
        yield GaugeMetricFamily("process_start_time_seconds", "start", value=began_s)


class World:
    """Everything there is; it begins at `begin_ms`."""

    def __init__(self, seed: int, begin_ms: int = BEGIN_MS) -> None:
        self.seed = seed
        self.begin_ms = begin_ms
        self.scheduler = Scheduler(seed)
        self.hosts: dict[str, Host] = {}
        self.network = Network(self.scheduler, self._is_up)
        self.files = Files(self)
        self.threads = Threads(self)
        self.on_end: Callable[[Process], object] = lambda process: None
        self._entropy = random.Random(f"entropy {seed}")
        self._processes = 0
        self._burials = 0

    def add(self, name: str, ip: str) -> Host:
        """A new host."""
        host = self.hosts[ip] = Host(self, name, ip)
        return host

    def next_process(self) -> int:
        """The number of a new process."""
        self._processes += 1
        return self._processes

    def collect_regularly(self, process: Callable[[], Process | None], every_s: float) -> None:
        """Collect garbage as a process does: that of a run of days would not fit into memory."""
        if (found := process()) is not None:
            found.loop.within(gc.collect)
        self.scheduler.after(every_s, lambda: self.collect_regularly(process, every_s))

    def bury(self, process: Process) -> None:
        """Release what a dead process left."""
        process.loop.bury()
        for by_loop in (slices._turn_began_s, slices._pauses, clock._RUNNING_TIME_BY_LOOP):
            by_loop.pop(process.loop, None)
        self._burials += 1
        if self._burials % _BURIALS_PER_COLLECTION == 0:
            process.loop.within(gc.collect)

    def _is_up(self, ip: str) -> bool:
        host = self.hosts.get(ip)
        return host is not None and host.has_power

    @contextmanager
    def entered(self) -> Iterator[World]:
        """Replace what the product reads of the machine."""
        state, was_collected = random.getstate(), gc.isenabled()
        gc.collect()  # the world of an earlier run; what was there before is frozen since
        gc.freeze()
        gc.disable()
        random.seed(self.seed)
        with ExitStack() as stack:
            for place, name, value in self._replacements():
                stack.enter_context(patch.object(place, name, value))
            for name in _ORDERED:
                stack.enter_context(patch.object(import_module(name), "set", OrderedSet, create=True))
            stack.enter_context(self._logged())
            stack.enter_context(_quiet())
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines of dead processes were never awaited
            try:
                yield self
            finally:
                for host in self.hosts.values():
                    for process in (host.process, *host.tools):
                        if process is not None:
                            process.die("the run is over", power=False)
                self.scheduler.run(self.scheduler.now)
                last = next(iter(self.hosts.values()), None)
                if last is not None and last.process is not None:
                    last.process.loop.within(gc.collect)
        random.setstate(state)
        if was_collected:
            gc.enable()

    def _pid(self) -> int:
        loop = asyncio._get_running_loop()
        return 1000 + (loop.owner.number if isinstance(loop, ProcessLoop) else self._processes)

    def _replacements(self) -> Iterator[tuple[Any, str, Any]]:
        for name, call in self.files.replaced.items():
            yield os, name, call
        yield os, "urandom", self._entropy.randbytes
        yield os, "getpid", self._pid
        yield io, "open", self.files.open
        yield builtins, "open", self.files.open
        yield vfs, "_sync_data", self.files.replaced["fdatasync"]
        yield vfs, "fcntl", Fcntl(self.files)
        yield flush, "boot_id", self._boot_id
        yield listener, "socket", SocketModule(self.network)
        yield flush, "threading", self.threads
        yield flush, "SimpleQueue", SimQueue
        yield upkeep, "ThreadPoolExecutor", self.threads.executor
        yield Future, "result", waiting(Future.result)
        yield metrics_page, "_PROCESS_COLLECTOR", ProcessFigures(self)
        seconds = self._seconds
        for name in ("monotonic", "perf_counter"):
            yield time, name, seconds
            yield time, f"{name}_ns", lambda: int(seconds() * 1e9)
        yield time, "time", lambda: self.begin_ms / 1000 + seconds()
        yield time, "time_ns", lambda: self.begin_ms * 10**6 + int(seconds() * 1e9)
        yield slices.in_slices, "__defaults__", (seconds,)
        yield slices.run_to_end, "__defaults__", (seconds,)
        for module in _modules():
            if hasattr(module, "perf_counter"):
                yield module, "perf_counter", seconds

    def _boot_id(self) -> bytes:
        loop = self.scheduler.current
        return b"%016d" % loop.owner.host.boots if loop is not None else bytes(16)

    def _seconds(self) -> float:
        return self.scheduler.now

    @contextmanager
    def _logged(self) -> Iterator[None]:
        handler = _ToTrace(self.scheduler)
        logger = logging.getLogger("sparrowmq")
        before = logger.level, logger.propagate
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.level, logger.propagate = before


def _modules() -> list[Any]:
    """The modules of the product that are loaded."""
    return [module for name, module in sorted(sys.modules.items()) if name.startswith("sparrowmq.")]


class _ToTrace(logging.Handler):
    """Shows log lines among the last events. They are not part of the trace's hash."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def emit(self, record: logging.LogRecord) -> None:
        loop = self._scheduler.current
        owner = loop.owner if loop is not None else "-"
        line = f"{self._scheduler.now:.6f} {owner} {record.levelname} {record.getMessage()}"
        self._scheduler.recent.append(line)
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, Died | OSError | SparrowError):
            self._scheduler.unhandled.append(f"{line}\n{''.join(traceback.format_exception(error))}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Let what dead processes still raise pass."""
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, Died | OSError | RuntimeError):
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _nothing() -> None:
    """Only let the scheduler look."""


def this_process(world: World) -> Process:
    """The process that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ProcessLoop)
    process: Process = loop.owner
    return process
