"""The points of the last hour on disk, so that charts go on after a restart of the console.

The file is written once a minute, as a whole, by a thread. A damaged file is left out with a warning, and the next
minute replaces it. Its size is bounded, because the points in memory are.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import msgspec

from sparrowmq.core import snapshot
from sparrowmq.errors import BadStore

log = logging.getLogger(__name__)

_NAME: Final = "last-hour.json"
_HOUR_MS: Final = 3_600_000


class LastHour(msgspec.Struct):
    """The points, the oldest first.

    Attributes:
        rates: by broker: the time in milliseconds, and the messages per second that it received and delivered.
        lags: by group: the time in milliseconds, and the lag.
    """

    rates: dict[str, list[tuple[int, float, float]]] = {}
    lags: dict[str, list[tuple[int, int]]] = {}


def load(folder: Path, now_ms: int) -> LastHour:
    """Read the points that are not older than an hour; none if the file is absent or damaged."""
    try:
        found = snapshot.load(folder / _NAME, LastHour, tell=lambda text: log.warning("%s", text))
    except (BadStore, OSError) as error:
        log.warning("the figures of the last hour are lost: %s", error)
        found = None
    if found is None:
        return LastHour()
    span = range(now_ms - _HOUR_MS, now_ms + 1)
    rates = {name: [each for each in points if each[0] in span] for name, points in found.rates.items()}
    lags = {name: [each for each in points if each[0] in span] for name, points in found.lags.items()}
    return LastHour(
        {name: points for name, points in rates.items() if points},
        {name: points for name, points in lags.items() if points},
    )


def save(folder: Path, points: LastHour) -> None:
    """Write the points; blocks for a sync. A failure is logged."""
    try:
        snapshot.save(folder / _NAME, points)
    except OSError as error:
        log.warning("the figures of the last hour are not written to %s: %s", folder, error)
