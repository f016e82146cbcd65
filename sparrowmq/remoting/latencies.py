"""The duration of requests by their codes, and log lines for slow requests.

    read        the socket has given the chunk with the request            Session.last_read
    handled     its handler is done                                        for appends: Turn.handled_at, that of a burst
    written     the burst's records are in the log's files                 Turn.written_at
    answered    the reply is made: the message is as safe as was promised

A burst of sends needs one reading of the clock, as they are made safe together. Held polls are counted separately,
because they wait on purpose.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from sparrowmq.core.logs import LogSettings
from sparrowmq.core.stats import Histogram
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.request_table import BY_CODE

log = logging.getLogger(__name__)

StepEnds = Sequence[tuple[str, float]]  # each step, and the time on the clock at which it ended

# Seconds between two lines about one code: a disk that hangs makes every send slow.
SILENCE_S: Final = 1.0
LONG_STEP_S: Final = 0.005  # no request keeps the event loop for longer (ADR 0046)
# The response code under which denials count; clients get SYSTEM_ERROR, the code that 4.9 has for them.
DENIED: Final = 0xFFFF
_HELD: Final = 1 << 16
_NEVER: Final = 1e18


class Latencies:
    """The latencies of one server. Requests are added one by one, or a burst at once. Those of at least `slow_s` are
    logged.
    """

    __slots__ = ("_by_kind", "_last_histogram", "_last_kind", "_silences", "_slow_s", "long_steps")

    def __init__(self, slow_s: float = 0.0) -> None:
        # The number of times that a handler kept the event loop for more than 5 ms, by request code.
        self.long_steps: dict[int, int] = {}
        self._slow_s = slow_s or _NEVER
        self._by_kind: dict[int, Histogram] = {}
        self._last_kind = -1  # most requests are of the same kind as the previous one
        self._last_histogram = Histogram()
        # By request code: the time until which nothing is logged, and the number of requests skipped since.
        self._silences: dict[int, tuple[float, int]] = {}

    def apply_settings(self, settings: LogSettings) -> None:
        self._slow_s = settings.slow_request_ms / 1000 or _NEVER

    def kinds(self) -> list[tuple[int, int, bool, Histogram]]:
        """Return for each kind: request code, response code, whether it was held, and the durations in microseconds."""
        return [
            (kind >> 17, kind & (_HELD - 1), bool(kind & _HELD), durations)
            for kind, durations in sorted(self._by_kind.items())
        ]

    def add(self, code: int, response_code: int, took_s: float, times: int = 1, was_held: bool = False) -> bool:
        """Count requests of one code that took equally long. Returns whether that is slow."""
        kind = code << 17 | response_code
        if was_held:
            kind |= _HELD
        if kind != self._last_kind:
            self._last_histogram = self._by_kind.setdefault(kind, Histogram())
            self._last_kind = kind
        self._last_histogram.record(int(took_s * 1e6), times)
        return took_s >= self._slow_s and not was_held

    def add_long_step(self, code: int) -> None:
        self.long_steps[code] = self.long_steps.get(code, 0) + 1

    def log_slow(self, code: int, peer: str, began: float, steps: StepEnds, times: int = 1) -> None:
        """Log the parts of a slow request's time. `steps` are in their order; the last one ends with the answer.
        `times` equal requests had them.
        """
        end = steps[-1][1]
        until, skipped = self._silences.get(code, (0.0, 0))
        skipped += times
        if end < until:
            self._silences[code] = (until, skipped)
            return
        skipped -= 1
        self._silences[code] = (end + SILENCE_S, 0)
        log.warning(
            "slow request %s of %s took %s (%s)%s",
            name_of(code),
            peer,
            _ms(end - began),
            ", ".join(_parts(began, steps)),
            f"; and {skipped} more like it" if skipped else "",
        )


def name_of(code: int) -> str:
    row = BY_CODE.get(code)
    return RequestCode(code).name if row is not None else f"code {code}"


def response_name(code: int) -> str:
    if code == DENIED:
        return "access_denied"
    try:
        return ResponseCode(code).name.lower()
    except ValueError:
        return str(code)


def _parts(began: float, steps: StepEnds) -> list[str]:
    texts = []
    for name, end in steps:
        if end > began:
            texts.append(f"{_ms(end - began)} {name}")
            began = end
    return texts


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"
