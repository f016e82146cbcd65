"""The conditions in which a server does less than people expect: what is wrong, since when, and the remedy.

    probes of the parts ── look, each second ──┬── the log: a line when a condition begins, and one when it ends
                                               ├── /readyz: 503 while one of them keeps the broker from its work
                                               ├── brokerStatus: `condition.NAME`, for doctor and console
                                               └── sparrowmq_condition{condition, severity}, for alerts

A part declares the conditions that it can be in. A name server has no brokerStatus: it answers as the values of the
namespace `CONDITIONS`.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Final

from sparrowmq.errors import DiskFull, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import CLIENT_CERTIFICATE, CLOCK_WRONG, PROCESS_PAUSED, Kind, Probe, Severity
from sparrowmq.metrics.figures import Figures, Row
from sparrowmq.protocol.requests.bodies import CONDITION, ReportedCondition
from sparrowmq.remoting.tls.contexts import ClientContext

log = logging.getLogger(__name__)

POLL_S: Final = 1.0
MAX_CLOCK_STEP_S: Final = 5.0
TRUST_NEW_TIME_AFTER_S: Final = 600.0
MIN_REPORTED_PAUSE_S: Final = 5.0
PAUSE_WINDOW_S: Final = 60.0
_COMMAND: Final = re.compile(r"`[^`]+`")
_PLACEHOLDER: Final = re.compile(r"\b[A-Z]+\b")


class NotReady(SparrowError):
    """The server cannot do its work now; the text says why."""


@dataclass(frozen=True, slots=True)
class Condition:
    kind: Kind
    facts: str  # in one sentence
    since_s: float  # when it was first seen, by the steady clock: the time of day may be what is wrong


class Conditions:
    """Looks for conditions, and remembers since when each lasts. They count in `figures`. `names` has the real names
    for the words in commands of remedies, such as NAME."""

    def __init__(self, clock: Clock, figures: Figures, names: Callable[[], Mapping[str, str]] = dict[str, str]) -> None:
        self._clock = clock
        self.figures = figures
        self._names = names
        self._probes: Mapping[Kind, list[Callable[[], str]]] = {}
        self._lasting: dict[str, Condition] = {}
        self._failed_probes: set[str] = set()  # of which a probe failed at the last look
        figures.gauges(
            "sparrowmq_condition",
            "1 for each condition in which the broker does less than expected",
            ("condition", "severity"),
            self.rows,
        )
        figures.gauge("sparrowmq_ready", "1 while /readyz says yes", lambda: int(not self.unready()))

    def watch(self, probes: Iterable[Probe]) -> None:
        """Look for these from now on. Several probes may see the same kind."""
        probes_by_kind: dict[Kind, list[Callable[[], str]]] = {}
        for kind, probe in probes:
            probes_by_kind.setdefault(kind, []).append(probe)
        self._probes = probes_by_kind

    def poll(self) -> None:
        for kind, probes in self._probes.items():
            before = self._lasting.get(kind.name)
            try:
                facts = "; ".join(text for probe in probes if (text := probe()))
            except (OSError, DiskFull) as error:  # as when no descriptor is left
                if kind.name not in self._failed_probes:
                    log.warning("condition %s cannot be looked for, and stays as it was: %s", kind.name, error)
                self._failed_probes.add(kind.name)
                continue
            self._failed_probes.discard(kind.name)
            if facts and before is None:
                self._lasting[kind.name] = Condition(kind, facts, self._clock.monotonic())
                log.warning("condition %s: %s. What to do: %s", kind.name, facts, self._remedy(kind))
            elif facts and before is not None and before.facts != facts:
                self._lasting[kind.name] = Condition(kind, facts, before.since_s)
            elif not facts and before is not None:
                del self._lasting[kind.name]
                log.info("condition %s is over", kind.name)

    def current(self) -> list[Condition]:
        """Return the conditions of this moment, the critical ones first."""
        self.poll()
        worst_first = list(Severity)
        return sorted(self._lasting.values(), key=lambda each: (worst_first.index(each.kind.severity), each.since_s))

    def unready(self) -> list[Condition]:
        return [condition for condition in self.current() if condition.kind.is_unready]

    def as_properties(self) -> dict[str, str]:
        """Return the lines of `brokerStatus`, or the values of a name server; no tool of Apache reads them."""
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        return {
            CONDITION + condition.kind.name: ReportedCondition(
                severity=condition.kind.severity.value,
                what=condition.facts,
                since_ms=now_ms - round((now_s - condition.since_s) * 1000),
                remedy=self._remedy(condition.kind),
                cause=next((name for name in condition.kind.follows if name in self._lasting), None),
            )
            .encode()
            .decode()
            for condition in self.current()
        }

    async def ready(self) -> str:
        """Return the text of /readyz. Raises: NotReady; its text begins with what keeps the broker from its work."""
        now = sorted(self.current(), key=lambda condition: not condition.kind.is_unready)
        lines = [f"{condition.kind.name}: {condition.facts}" for condition in now]
        if now and now[0].kind.is_unready:
            raise NotReady("; ".join(lines))
        return "".join(f"{line}\n" for line in ["ok", *lines])

    def _remedy(self, kind: Kind) -> str:
        names = {word: name for word, name in self._names().items() if name}
        return _COMMAND.sub(
            lambda command: _PLACEHOLDER.sub(lambda word: names.get(word[0], word[0]), command[0]), kind.remedy
        )

    def rows(self) -> Iterable[Row]:
        return [((condition.kind.name, condition.kind.severity.value), 1) for condition in self.current()]


class Machine:
    """Sees what is wrong with the machine: a process that is stopped for a while, and a wrong clock.

        pauses    the loop's own ticks came too late: the machine swapped, or the process, its container or its
                  virtual machine was stopped
        clock     the time of day moved against the steady clock, which no one can set: it jumped
                  the newest message is from the future: this clock is behind, or the master's clock was ahead; then
                  the store goes on from that time for TRUST_NEW_TIME_AFTER_S

    Small steps, as NTP makes them, are no jump. After TRUST_NEW_TIME_AFTER_S the new time counts as right.
    """

    def __init__(self, clock: Clock, newest_ms: Callable[[], int]) -> None:
        self._clock = clock
        self._newest_ms = newest_ms
        self._begin_s = clock.monotonic()
        self._offset_s: float | None = None  # of the time of day over the steady clock, before a jump
        self._jumped_s = 0.0  # when a jump was seen
        self._ahead_since_s: float | None = None  # when a message from the future was first seen

    def probes(self) -> tuple[Probe, ...]:
        return (PROCESS_PAUSED, self.pauses), (CLOCK_WRONG, self.wrong_clock)

    def pauses(self) -> str:
        """Return for how long the process did not run lately; "" if that is not worth a report."""
        now_s = self._clock.monotonic()
        begin_s = max(self._begin_s, now_s - PAUSE_WINDOW_S)
        paused_s = now_s - begin_s - self._clock.age(begin_s)
        return (
            f"the process did not run for {paused_s:.0f} s of the last minute"
            if paused_s >= MIN_REPORTED_PAUSE_S
            else ""
        )

    def wrong_clock(self) -> str:
        """Return why the time of day is wrong; "" if it seems right."""
        jump = self._clock_jump()
        return "; ".join(filter(None, (jump, self._newest_ahead(is_right=not jump))))

    def _clock_jump(self) -> str:
        now_s = self._clock.monotonic()
        offset_s = self._clock.now_ms() / 1000 - now_s
        jump_s = 0.0 if self._offset_s is None else offset_s - self._offset_s
        if abs(jump_s) <= MAX_CLOCK_STEP_S:
            self._offset_s, self._jumped_s = offset_s, now_s
            return ""
        if now_s - self._jumped_s > TRUST_NEW_TIME_AFTER_S:
            self._offset_s, self._jumped_s = offset_s, now_s
            return ""
        return f"the clock of this machine jumped {abs(jump_s):.0f} s {'ahead' if jump_s > 0 else 'back'}"

    def _newest_ahead(self, is_right: bool) -> str:
        """Return how far the newest message is ahead; if this clock may be right, also when that ends."""
        now_s = self._clock.monotonic()
        ahead_s = (self._newest_ms() - self._clock.now_ms()) / 1000
        if ahead_s <= MAX_CLOCK_STEP_S:
            self._ahead_since_s = None
            return ""
        if self._ahead_since_s is None:
            self._ahead_since_s = now_s
        remaining_min = ceil(max(self._ahead_since_s + TRUST_NEW_TIME_AFTER_S - now_s, 0) / 60)
        problem = f"the newest message has a time that is {ahead_s:.0f} s ahead of the clock of this machine"
        if not is_right:
            return problem
        ending = f" after {remaining_min} min" if remaining_min else ""
        return f"{problem}; if this clock is right, this ends by itself, with the first message{ending}"


def client_certificate_probe(clock: Clock, *used_contexts: ssl.SSLContext | None) -> Probe:
    """Return the probe of certificates for connections to other servers that end soon, or cannot be used any more.
    Contexts of a program's own making are left out."""
    contexts = [context for context in used_contexts if isinstance(context, ClientContext)]
    return CLIENT_CERTIFICATE, lambda: "; ".join(filter(None, (each.problem(clock.now_ms()) for each in contexts)))
