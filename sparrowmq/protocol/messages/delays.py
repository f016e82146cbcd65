"""What an application calls a delay, as the level that a message carries.

    "10s"  timedelta(seconds=10)  3      -> 3, the third of the broker's delays
    "15s"                                -> refused: the nearest are 10s and 30s

A broker knows levels only. A duration is looked up among Java's default ones (`messageDelayLevel`); who has set up
others at the brokers gives the level itself.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import timedelta
from typing import Final

from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.delay_levels import DelayLevels, duration_ms, duration_word

Delay = str | timedelta | int

_DELAYS_MS: Final = DelayLevels.parse().delays_ms
_MILLISECOND: Final = timedelta(milliseconds=1)


def delay_level(delay: Delay | None) -> int:
    """The level of a delay; 0 when there is none.

    Args:
        delay: a level from 1 on (one beyond the broker's last is its last), a duration such as "10s", "5m" or "2h",
            or a `timedelta`.
    Raises:
        InvalidMessage: it is none of these, or brokers by default have no such duration.
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
