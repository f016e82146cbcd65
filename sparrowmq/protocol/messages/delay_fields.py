"""Convert an application's delay to the fields of a message: a level, or a time.

    "10s"  timedelta(seconds=10)         -> level 3, the third of the broker's delays, which all brokers know
    delay_level=3                        -> the same
    "15s"  timedelta(days=2)             -> ms, for brokers that deliver at any time
    deliver_at=datetime                  -> ms since 1970, likewise

A duration is looked up among Java's default levels (`messageDelayLevel`). If the brokers have other levels, give the
level itself. A bare number is refused as a delay: 30 could be seconds or a level.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final

from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.delay_levels import DelayLevels, duration_ms
from sparrowmq.protocol.java_numbers import INT32

Delay = str | timedelta
MAX_TIME_MS: Final = (1 << 53) - 1

_DELAYS_MS: Final = DelayLevels.parse().delays_ms
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def wait_of(delay: Delay | None, deliver_at: datetime | None, level: int | None = None) -> tuple[int, int, int]:
    """The delay level, the delay in ms, and the delivery time in ms of a message. At most one of them is not 0.

    Raises: InvalidMessage, a value is no delay, no level or no time, or several were given.
    """
    if (delay is not None) + (deliver_at is not None) + (level is not None) > 1:
        raise InvalidMessage("give one of delay=, delay_level= and deliver_at=")
    if deliver_at is not None:
        return 0, 0, _timestamp_ms(deliver_at)
    if level is not None:
        return check_level(level), 0, 0
    if delay is None:
        return 0, 0, 0
    wanted_ms = _wanted_ms(delay)
    if wanted_ms > MAX_TIME_MS:
        raise InvalidMessage(f"delay={delay!r} is longer than any broker keeps a message; give a shorter one")
    if wanted_ms <= 0:
        raise _not_later(delay)
    index = bisect_left(_DELAYS_MS, wanted_ms)
    if index < len(_DELAYS_MS) and _DELAYS_MS[index] == wanted_ms:
        return index + 1, 0, 0
    return 0, wanted_ms, 0


def _wanted_ms(delay: Delay) -> int:
    """The length of a delay in ms. Raises: InvalidMessage."""
    if isinstance(delay, timedelta):
        whole_ms, rest = divmod(delay, _MILLISECOND)
        return whole_ms + bool(rest)  # rounded up
    return _duration_ms(delay)


def _duration_ms(delay: object) -> int:
    wanted_ms = duration_ms(delay) if isinstance(delay, str) else None
    if wanted_ms is None:
        raise _no_delay(delay)
    return wanted_ms


def _no_delay(delay: object) -> InvalidMessage:
    if isinstance(delay, int | float) and not isinstance(delay, bool) and delay < inf:
        if delay <= 0:
            return _not_later(delay)
        return InvalidMessage(
            f"delay={delay!r} could be seconds or a level; write delay='{delay}s' or delay=timedelta(seconds={delay}) "
            "for seconds, or delay_level= for a level of the broker"
        )
    return InvalidMessage(
        f"delay={delay!r} is not a delay; give a duration such as '10s', '5m' or '2h', or a timedelta"
    )


def _not_later(delay: object) -> InvalidMessage:
    return InvalidMessage(f"delay={delay!r} is not later than now; leave it out")


def _timestamp_ms(deliver_at: object) -> int:
    if not isinstance(deliver_at, datetime) or deliver_at.tzinfo is None:
        raise InvalidMessage(
            f"deliver_at={deliver_at!r}: give a datetime with a time zone, as datetime.now(UTC) + timedelta(hours=1)"
        )
    return max(1, (deliver_at - _EPOCH) // _MILLISECOND)


def check_level(level: object) -> int:
    """Return a delay level. A number above the last level of a broker means its last level.

    Raises: InvalidMessage, it is no level.
    """
    if not isinstance(level, int) or isinstance(level, bool) or not 1 <= level <= INT32:
        raise InvalidMessage(
            f"delay_level={level!r}: levels are whole numbers from 1, which is 1s; leave it out for no delay"
        )
    return level


def nearest_level(delay_s: float) -> int:
    """The level of the delay that is nearest to so many seconds."""
    return 1 + min(range(len(_DELAYS_MS)), key=lambda index: abs(_DELAYS_MS[index] - delay_s * 1000))


def level_s(level: int) -> float:
    """The seconds of a level from 1 on."""
    return _DELAYS_MS[min(level, len(_DELAYS_MS)) - 1] / 1000
