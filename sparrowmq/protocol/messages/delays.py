"""Convert an application's delay to the fields of a message: a level, or a time.

    "10s"  timedelta(seconds=10)  3      -> level 3, the third of the broker's delays, which all brokers know
    "15s"  timedelta(days=2)             -> ms, for brokers that deliver at any time; a retry has only levels
    deliver_at=datetime                  -> ms since 1970, likewise

A duration is looked up among Java's default levels (`messageDelayLevel`). If the brokers have other levels, give the
level itself.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from typing import Final

from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.delay_levels import DelayLevels, duration_ms, duration_word

Delay = str | timedelta | int

_DELAYS_MS: Final = DelayLevels.parse().delays_ms
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def wait_of(delay: Delay | None, deliver_at: datetime | None) -> tuple[int, int, int]:
    """The delay level, the delay in ms, and the delivery time in ms of a message. Only one of them is not 0.

    Raises:
        InvalidMessage: a value is no delay or no time, or both were given.
    """
    if deliver_at is not None:
        if delay is not None:
            raise InvalidMessage("give delay= or deliver_at=, not both")
        return 0, 0, _timestamp_ms(deliver_at)
    if delay is None:
        return 0, 0, 0
    wanted_ms = _wanted_ms(delay)
    if wanted_ms is None:
        return delay_level(delay), 0, 0
    if wanted_ms <= 0:
        raise InvalidMessage(f"delay={delay!r} is not later than now; leave it out")
    index = bisect_left(_DELAYS_MS, wanted_ms)
    if index < len(_DELAYS_MS) and _DELAYS_MS[index] == wanted_ms:
        return index + 1, 0, 0
    return 0, wanted_ms, 0


def _wanted_ms(delay: Delay) -> int | None:
    """The length of a delay in ms; None for a level, and for an invalid delay."""
    if isinstance(delay, timedelta):
        return -(-delay // _MILLISECOND)  # rounded up
    return duration_ms(delay) if isinstance(delay, str) else None


def _timestamp_ms(deliver_at: object) -> int:
    if not isinstance(deliver_at, datetime) or deliver_at.tzinfo is None:
        raise InvalidMessage(
            f"deliver_at={deliver_at!r}: give a datetime with a time zone, as datetime.now(UTC) + timedelta(hours=1)"
        )
    return max(1, (deliver_at - _EPOCH) // _MILLISECOND)


def delay_level(delay: Delay | None) -> int:
    """The level of a delay; 0 without a delay.

    Args:
        delay: a level from 1 on (higher numbers than the last level mean the last level), a duration such as "10s",
            "5m" or "2h", or a `timedelta`.
    Raises:
        InvalidMessage: it is none of these, or Java's default levels do not have this duration.
    """
    if delay is None:
        return 0
    if isinstance(delay, int) and not isinstance(delay, bool):
        if delay < 1:
            raise InvalidMessage(f"delay={delay}: levels begin with 1, which is 1s; leave delay out for none")
        return delay
    if isinstance(delay, timedelta):
        return _level_of(delay / _MILLISECOND, str(delay))
    wanted_ms = duration_ms(delay) if isinstance(delay, str) else None
    if wanted_ms is None:
        raise InvalidMessage(
            f"delay={delay!r} is not a delay; give a duration such as '10s', '5m' or '2h', a timedelta, or a level"
        )
    return _level_of(wanted_ms, str(delay))


def _level_of(wanted_ms: float, text: str) -> int:
    index = bisect_left(_DELAYS_MS, wanted_ms)
    if index < len(_DELAYS_MS) and _DELAYS_MS[index] == wanted_ms:
        return index + 1
    below = min(max(index - 1, 0), len(_DELAYS_MS) - 2)
    nearest = " and ".join(
        f"{duration_word(_DELAYS_MS[each])} (level {each + 1})" for each in (below, below + 1)
    )
    raise InvalidMessage(
        f"brokers by default have no delay of {text}; the nearest are {nearest}. "
        "Give a level if the brokers' messageDelayLevel is another"
    )
