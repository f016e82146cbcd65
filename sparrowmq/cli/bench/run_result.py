"""The result of a run of many messages: count, rate, latencies, failures.

messages    those that are certain: acknowledged by the broker, or handled here
seconds     from the start to the last of them
MB          1,000,000 bytes of bodies
quantiles   at most 12.5 % too high, never too low, as `sparrowmq.core.stats.Histogram` keeps them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sparrowmq.cli.terminal.output import Table, heads
from sparrowmq.core.stats import Histogram
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock

HEADS: Final = heads("MESSAGES|SECONDS|MESSAGES/S|MB/S|P50 MS|P95 MS|P99 MS|GREATEST MS|FAILED")
ERRORS: Final = ("ERROR", "COUNT", "THE FIRST")
EACH_S: Final = 1.0


class Tally:
    """Counts messages from its creation on.

    Attributes:
        messages, bytes: those that succeeded.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_s = self._last_s = clock.monotonic()
        self.messages = 0
        self.bytes = 0
        self._took_us = Histogram()
        self._errors: dict[str, tuple[int, str]] = {}  # how often, and what the first one said
        # Since the last line:
        self._told = (0, 0, self._begun_s)
        self._lately_us = Histogram()

    def add(self, count: int, size_bytes: int, took_us: int | None) -> None:
        """Count messages that succeeded, and the time that each took; None if it is unknown."""
        self.messages += count
        self.bytes += size_bytes
        self._last_s = self._clock.monotonic()
        if took_us is not None:
            self._took_us.record(took_us, count)
            self._lately_us.record(took_us, count)

    def fail(self, error: BaseException | str, text: str = "", count: int = 1) -> None:
        """Count messages that failed, by an error or by a name."""
        name = error if isinstance(error, str) else name_of(error)
        before, first = self._errors.get(name, (0, text or str(error)))
        self._errors[name] = (before + count, first)

    @property
    def failed(self) -> int:
        return sum(count for count, _ in self._errors.values())

    @property
    def figures(self) -> Table:
        """One row: the result of the run."""
        seconds = self._last_s - self._begun_s
        shares = [self._took_us.quantile(share) for share in (0.5, 0.95, 0.99)]
        took = [_ms(each) if self._took_us.count else None for each in (*shares, self._took_us.greatest)]
        pace = round(_per_second(self.messages, seconds)), round(_per_second(self.bytes, seconds) / 1e6, 3)
        return HEADS, [(self.messages, round(seconds, 3), *pace, *took, self.failed)]

    @property
    def errors(self) -> Table:
        """A row for each kind of failure, the most frequent first."""
        found = sorted(self._errors.items(), key=lambda each: -each[1][0])
        return ERRORS, [(name, count, first) for name, (count, first) in found]

    def line(self, word: str) -> str:
        """Return the progress since the last line; `word` is what was done to the messages."""
        now_s, (messages, size, then_s) = self._clock.monotonic(), self._told
        self._told = self.messages, self.bytes, now_s
        lately, self._lately_us = self._lately_us, Histogram()
        count = _per_second(self.messages - messages, now_s - then_s)
        megabytes = _per_second(self.bytes - size, now_s - then_s) / 1e6
        took = f"mean {lately.mean / 1000:.2f} ms   greatest {_ms(lately.greatest):.2f} ms"
        return (
            f"{now_s - self._begun_s:5.0f} s   {count:9,.0f} {word}/s   {megabytes:8.2f} MB/s   "
            f"{took if lately.count else 'no times'}   {self.failed:,} failed"
        )

    @contextmanager
    def telling(self, word: str, tell: Callable[[str], object]) -> Iterator[None]:
        """Pass a line to `tell` each second inside the `with`."""

        def each() -> None:
            tell(self.line(word))
            timers[0] = self._clock.call_later(EACH_S, each)

        timers = [self._clock.call_later(EACH_S, each)]
        try:
            yield
        finally:
            timers[0].cancel()


def name_of(error: BaseException) -> str:
    """Return the name under which failures are counted: the cause's class, with the code of a peer's answer."""
    cause = getattr(error, "cause", None) or error
    name = type(cause).__name__
    return f"{name} {cause.code}" if isinstance(cause, RemoteError) else name


def _ms(us: int) -> float:
    return round(us / 1000, 3)


def _per_second(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
