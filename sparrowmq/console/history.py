"""The messages per second of brokers and topics, in steps of five minutes, by day.

    day      a local date; its steps count from midnight: 288 of them, fewer or more if the clock changes
    line     one broker or topic: the steps with messages, and the mean rate of each
    looked   the steps in which the console ran: a line that lacks such a step was at 0; all other steps are unknown

The history is bounded: 2,000 lines of each kind in a day, the busiest ones, and a week of days. With a folder it has
thirty days in 100 MB, one file for each day, and only the days of the last requests are in memory. Its arrays take six
bytes for a point, where lists would take forty. The folder is that of `--history`, or one for the cluster:

    ~/.local/state/sparrowmq/console/10.0.0.11_9876,10.0.0.12_9876/    or below XDG_STATE_HOME
        lock                   held by the console that writes here, as two would replace each other's files
        2026-11-26.json ...    a day; `samples.py` writes the last hour beside them

Source: DashboardCollectTask, rocketmq-dashboard 2.1, which also writes files.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
from array import array
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Final, Literal
from zlib import crc32

import msgspec

from sparrowmq.client.cluster.name_servers import addresses_of
from sparrowmq.core import snapshot
from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)
STEP_S: Final = 300
_MAX_LINES: Final = 2000
_DAYS_IN_MEMORY: Final = 7
_DAYS_ON_DISK: Final = 30
_MAX_BYTES: Final = 100_000_000  # 2,000 busy topics take 12 MB a day
OFF: Final = "off"
_DEFAULT_STATE_FOLDER: Final = "~/.local/state"
_MAX_NAME_LENGTH: Final = 100  # file systems take 255 bytes
Kind = Literal["in", "out", "topic"]  # messages into and out of a broker; messages into a topic
Points = list[tuple[int, float | None]]  # times in milliseconds; None where the line is broken


class History:
    """The rates that were noted; `close_step` is called at least once in each step.

    Without a folder for the files of the days, the days are only in memory. The files take `max_bytes`; the day that is
    written counts, but stays.
    """

    def __init__(self, clock: Clock, folder: Path | None = None, max_bytes: int = _MAX_BYTES) -> None:
        self._clock = clock
        self._folder = folder
        self._max_bytes = max_bytes
        self._days: dict[date, _Day] = {}
        self._current_step: tuple[date, int] | None = None
        self._last_closed_day: date | None = None  # the day of the step that was closed last
        self._is_written = True
        # The step that is not over: by kind and name, the sum and the count of the noted rates.
        self._open_sums: dict[Kind, dict[str, tuple[float, int]]] = {}

    def note(self, kind: Kind, rates: Mapping[str, float]) -> None:
        """Note the rates of a kind, in messages per second; a name that is missing has the rate 0."""
        self._advance()
        sums = self._open_sums.setdefault(kind, {})
        for name, rate in rates.items():
            total, count = sums.get(name, (0.0, 0))
            sums[name] = total + rate, count + 1

    def today(self) -> date:
        return self._now_step()[0]

    def first_day(self) -> date:
        return min({*self._days, *self._files(), self.today()})

    def span(self, day: date) -> tuple[int, int]:
        """The begin and the end of a day, in milliseconds."""
        return _midnight_ms(day), _midnight_ms(day + timedelta(days=1))

    def names(self, kind: Kind, day: date) -> list[str]:
        names = set(self._day(day).lines.get(kind, {}))
        if day == self.today():
            names |= self._open_sums.get(kind, {}).keys()
        return sorted(names)

    def points(self, kind: Kind, name: str, day: date) -> Points:
        """A line of a day, with a gap where the console did not run; empty if it did not run on that day."""
        stored = self._day(day)
        line = stored.lines.get(kind, {}).get(name, _Line())
        rates = dict(zip(line.steps, line.rates, strict=True))
        steps = list(stored.looked.get(kind, ()))
        if kind in self._open_sums and self._current_step is not None and self._current_step[0] == day:
            total, count = self._open_sums[kind].get(name, (0.0, 1))
            rates[self._current_step[1]] = total / count
            steps = sorted({*steps, self._current_step[1]})
        begin_ms = _midnight_ms(day)
        points: Points = []
        for index, step in enumerate(steps):
            if index and step > steps[index - 1] + 1:
                points.append((begin_ms + (steps[index - 1] + 1) * STEP_S * 1000, None))
            points.append((begin_ms + step * STEP_S * 1000, round(rates.get(step, 0.0), 3)))
        return points

    async def close_step(self) -> None:
        """Close the step if it is over, and write its day if there is a folder.

        A failure to write is logged; the next step writes the day again.
        """
        self._advance()
        if self._is_written or self._folder is None or self._last_closed_day is None:
            return
        day, stored = self._last_closed_day, self._day(self._last_closed_day)
        looked = {kind: steps.tolist() for kind, steps in stored.looked.items()}
        lines = {
            kind: {name: (line.steps.tolist(), line.rates.tolist()) for name, line in by_name.items()}
            for kind, by_name in stored.lines.items()
        }
        self._is_written = True
        try:
            await asyncio.to_thread(_write_day, self._file(day), looked, lines)
            self._delete_oldest(self._folder)
        except OSError as error:
            self._is_written = False
            log.warning("the history is not written to %s: %s", self._folder, error)

    def _delete_oldest(self, folder: Path) -> None:
        """Delete days that are too many or take too much room. Raises: OSError."""
        total = 0
        for count, day in enumerate(reversed(self._files()), 1):
            files = list(folder.glob(f"{day.isoformat()}.json*"))
            total += sum(file.stat().st_size for file in files)
            if count > _DAYS_ON_DISK or (total > self._max_bytes and count > 1):
                for file in files:
                    file.unlink(missing_ok=True)

    def _advance(self) -> None:
        """Move the noted rates into their lines, once the step is over."""
        now = self._now_step()
        if now == self._current_step:
            return
        before, self._current_step = self._current_step, now
        if before is None:
            self._day(now[0])
            return
        day, step = before
        self._last_closed_day, self._is_written = day, False
        stored = self._day(day)
        for kind, sums in self._open_sums.items():
            stored.looked.setdefault(kind, array("H")).append(step)
            lines = stored.lines.setdefault(kind, {})
            means = {name: total / count for name, (total, count) in sums.items() if total > 0}
            for name in sorted(means, key=means.__getitem__, reverse=True):
                line = lines.get(name)
                if line is None and len(lines) < _MAX_LINES:
                    line = lines[name] = _Line()
                if line is not None:
                    line.steps.append(step)
                    line.rates.append(means[name])
        self._open_sums = {}

    def _now_step(self) -> tuple[date, int]:
        now_ms = self._clock.now_ms()
        day = datetime.fromtimestamp(now_ms / 1000).date()
        return day, (now_ms - _midnight_ms(day)) // (STEP_S * 1000)

    def _day(self, day: date) -> _Day:
        """A day; from its file if it is not in memory."""
        self._days[day] = stored = self._days.pop(day, None) or self._read(day)
        while len(self._days) > _DAYS_IN_MEMORY:
            # A day that is not in its file yet stays.
            del self._days[next(old for old in self._days if old not in (day, self._last_closed_day, self.today()))]
        return stored

    def _read(self, day: date) -> _Day:
        if self._folder is None:
            return _Day()
        try:
            file = snapshot.load(self._file(day), _DayFile, report=lambda text: log.warning("%s", text)) or _DayFile()
        except (BadStore, OSError) as error:
            log.warning("the history of %s is lost: %s", day, error)
            return _Day()
        return _Day(
            {kind: array("H", steps) for kind, steps in file.looked.items()},
            {
                kind: {name: _Line(line.steps, line.rates) for name, line in lines.items()}
                for kind, lines in file.lines.items()
            },
        )

    def _file(self, day: date) -> Path:
        assert self._folder is not None
        return self._folder / f"{day.isoformat()}.json"

    def _files(self) -> list[date]:
        days = []
        for file in self._folder.glob("????-??-??.json") if self._folder is not None else ():
            with suppress(ValueError):  # not a file of the console
                days.append(date.fromisoformat(file.stem))
        return sorted(days)


class _Line:
    """Steps and their rates: six bytes for a point."""

    __slots__ = ("rates", "steps")

    def __init__(self, steps: list[int] | None = None, rates: list[float] | None = None) -> None:
        self.steps = array("H", steps or [])
        self.rates = array("f", rates or [])


@dataclass(slots=True)
class _Day:
    looked: dict[str, array[int]] = field(default_factory=dict)
    lines: dict[str, dict[str, _Line]] = field(default_factory=dict)


class _LineInFile(msgspec.Struct):
    steps: list[int]
    rates: list[float]

    def __post_init__(self) -> None:
        if len(self.steps) != len(self.rates) or not all(0 <= step < 1 << 16 for step in self.steps):
            raise ValueError("a line needs one rate for each step")


class _DayFile(msgspec.Struct):
    looked: dict[str, list[int]] = {}
    lines: dict[str, dict[str, _LineInFile]] = {}


def _write_day(
    path: Path, looked: dict[str, list[int]], lines: Mapping[str, Mapping[str, tuple[list[int], list[float]]]]
) -> None:
    rounded = {
        kind: {name: _LineInFile(steps, [round(rate, 3) for rate in rates]) for name, (steps, rates) in by_name.items()}
        for kind, by_name in lines.items()
    }
    snapshot.save(path, _DayFile(looked, rounded))


def _midnight_ms(day: date) -> int:
    return round(datetime.combine(day, time.min).timestamp() * 1000)


@contextmanager
def lock_history_folder(folder: str | None, namesrv: str | None) -> Iterator[Path | None]:
    """Hold the folder of the history; None for a history in memory only.

    Without `folder`, takes the default one of the cluster if it can be used, and logs the reason if it cannot.
    Raises: ConfigError, the wanted folder cannot be used, or there is no such address.
    """
    with ExitStack() as stack:
        if folder is None:
            yield _default_folder(namesrv, stack)
            return
        path = None if folder == OFF else Path(folder).expanduser()
        if path is not None and (problem := _lock(path, stack)):
            raise ConfigError(f"--history {folder}: {problem}; name another folder, or --history {OFF}")
        yield path


def _default_folder(namesrv: str | None, stack: ExitStack) -> Path | None:
    path = Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser(_DEFAULT_STATE_FOLDER))
    path = path / "sparrowmq" / "console" / _folder_name(namesrv)
    problem = _lock(path, stack) if path.is_absolute() else "this user has no home"
    if not problem:
        log.info("the history is in %s", path)
        return path
    log.warning(
        "the history is not kept in %s (%s), so it ends with this console: name another folder by --history FOLDER, "
        "or --history %s if it may end",
        *(path, problem, OFF),
    )
    return None


def _folder_name(namesrv: str | None) -> str:
    """Return the name of the cluster's folder, the same for each order of its addresses. Raises: ConfigError."""
    addresses, page = addresses_of(namesrv)
    text = page or ",".join(sorted(addresses))
    name = re.sub(r"[^A-Za-z0-9.,-]", "_", text)
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}-{crc32(text.encode()):08x}"


def _lock(path: Path, stack: ExitStack) -> str:
    """Make a folder and hold it until the stack is left. Return why that is impossible, or ""."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        return f"it cannot be written to: {error.strerror}"
    stack.callback(os.close, file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "another console keeps its history there"
    except OSError as error:
        return f"it cannot be locked: {error.strerror}"
    return ""
