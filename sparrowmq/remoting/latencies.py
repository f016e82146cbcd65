"""How long requests take, by their codes, and the stories of those that took too long.

    read        the socket has given the chunk in which a request came     Session.last_read
    handled     its handler is done                                        for appends: Turn.handled_at, that of a burst
    written     the burst's records are in the log's files                 Turn.written_at
    answered    the reply is made: what it says is as safe as was promised

A burst of sends is one reading of the clock, whether of one or of a thousand: they are made safe together, and their
replies leave together. Any other request is one reading. Held polls are kept apart, since they wait on purpose.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.requests.request_table import BY_CODE
from sparrowmq.stats import Histogram

if TYPE_CHECKING:
    from mypy_extensions import i64  # compiled, it is the processor's own integer

log = logging.getLogger(__name__)

Rooms = Sequence[tuple[str, float]]  # what was done, and until when on the clock

# For each code one line in so many seconds: a disk that hangs makes every send slow.
SILENCE_S: Final = 1.0
_HELD: Final = 1 << 16
_NEVER: Final = 1e18


class Latencies:
    """Of one server, whose requests are told one by one or a burst at once.

    Args:
        now: seconds of a clock that never goes back.
        slow_s: from when on a request is told in the log; 0 for none.
    Attributes:
        now: as given.
    """

    __slots__ = ("_by_kind", "_last", "_last_kind", "_quiet", "_slow_s", "now")

    def __init__(self, now: Callable[[], float], slow_s: float = 0.0) -> None:
        self.now = now
        self._slow_s = _NEVER
        self._by_kind: dict[int, Histogram] = {}
        self._last_kind: i64 = -1  # most requests are of the same kind as the one before
        self._last = Histogram()
        # By request code: until when nothing is said, and how many were passed over since.
        self._quiet: dict[int, tuple[float, int]] = {}
        self.use(slow_s)

    def use(self, slow_s: float) -> None:
        """From now on that long is slow; 0 for never."""
        self._slow_s = slow_s or _NEVER

    def kinds(self) -> list[tuple[int, int, bool, Histogram]]:
        """Request code, response code, whether it was held, and how long those took, in microseconds."""
        return [
            (kind >> 17, kind & (_HELD - 1), bool(kind & _HELD), seen)
            for kind, seen in sorted(self._by_kind.items())
        ]

    def add(self, code: i64, response_code: i64, took_s: float, times: i64 = 1, held: bool = False) -> bool:
        """Count requests of one code that took equally long; returns whether that is slow."""
        kind: i64 = code << 17 | response_code
        if held:
            kind |= _HELD
        if kind != self._last_kind:
            self._last = self._by_kind.setdefault(kind, Histogram())
            self._last_kind = kind
        self._last.record(int(took_s * 1e6), times)
        return took_s >= self._slow_s and not held

    def tell(self, code: int, peer: str, began: float, rooms: Rooms, times: int = 1) -> None:
        """Say in the log where a slow request's time went.

        Args:
            began: when the request was read.
            rooms: in their order; the last one ends with the answer.
            times: so many like it had the same fate.
        """
        end = rooms[-1][1]
        until, passed = self._quiet.get(code, (0.0, 0))
        passed += times
        if end < until:
            self._quiet[code] = (until, passed)
            return
        passed -= 1
        self._quiet[code] = (end + SILENCE_S, 0)
        log.warning(
            "slow: %s of %s took %s (%s)%s",
            name_of(code),
            peer,
            _ms(end - began),
            ", ".join(_parts(began, rooms)),
            f"; and {passed} more like it" if passed else "",
        )


def name_of(code: int) -> str:
    """A request code in words."""
    row = BY_CODE.get(code)
    return RequestCode(code).name if row is not None else f"code {code}"


def _parts(began: float, rooms: Rooms) -> list[str]:
    """How long each room took, but for those where nothing did."""
    told = []
    for name, end in rooms:
        if end > began:
            told.append(f"{_ms(end - began)} {name}")
            began = end
    return told


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.1f} ms"
