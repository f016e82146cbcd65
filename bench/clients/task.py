"""What a client has to do, and the watch that measures it."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.usage import cpu_s

PIPELINED: Final = "send pipelined"
IN_TURN: Final = "send in turn"
ONE_BY_ONE: Final = "consume one by one"
BATCHES: Final = "consume batches"

LIMIT_S: Final = 300
BODY: Final = b"x" * 128
WARM_UP: Final = 200
UNANSWERED: Final = 5000  # results that asyncio's clients keep before they look at the oldest

Figures = dict[str, float]


class Stopwatch:
    """Elapsed time, the CPU time of this process, and that of the server's."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._served, self._cpu, self._wall = cpu_s(server), time.process_time(), time.perf_counter()

    def figures(self, messages: int, latencies_s: Sequence[float] = ()) -> Figures:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        found = {
            "rate": messages / wall,
            "cpu_us": cpu / messages * 1e6,
            "server_us": (cpu_s(self._server) - self._served) / messages * 1e6,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        if latencies_s:
            found["p99_us"] = sorted(latencies_s)[len(latencies_s) * 99 // 100] * 1e6
        return found


@dataclass(frozen=True)
class Task:
    """`messages` to send to `topic` or to consume from it, at the server whose process is `server`."""

    address: str
    topic: str
    messages: int
    server: int
    group: str = field(default_factory=lambda: f"bench-{time.time_ns()}")

    def watch(self) -> Stopwatch:
        return Stopwatch(self.server)


class Count:
    """Counts what a consumer was given. Its watch runs from a fifth of it on, so what was fetched before is no gain."""

    def __init__(self, task: Task) -> None:
        self._task, self._watch = task, task.watch()
        self._before = self._seen = 0

    def take(self, bodies: Sequence[bytes]) -> bool:
        """Whether that was enough. Raises: ValueError for a body that was never sent."""
        for body in bodies:
            if body != BODY:
                raise ValueError(f"consumed {body[:40]!r}, which is not what was sent")
        self._seen += len(bodies)
        if not self._before and self._seen >= self._task.messages // 5:
            self._before, self._watch = self._seen, self._task.watch()
            return False
        return self._seen >= self._task.messages

    def figures(self) -> Figures:
        return self._watch.figures(self._seen - self._before)


Ways = dict[str, Callable[[Task], Figures]]
