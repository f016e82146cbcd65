"""Delay levels: "1s 5s 10s ... 2h", where level 1 is the first.

A delayed message waits in queue `level - 1` of the topic SCHEDULE_TOPIC_XXXX until its time. A level beyond the last
one is the last one. Source: ScheduleMessageService, Java 4.9.8.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sparrowmq.errors import ConfigError

JAVA_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WORD_PATTERN = re.compile(r"([0-9]{1,9})(ms|[smhd])")


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The delays by level. `delays_ms[0]` is the delay of level 1."""

    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str = JAVA_LEVELS) -> DelayLevels:
        """Parse the setting `messageDelayLevel`. Raises: ConfigError, a word is no number with a unit, or there is no
        word.
        """
        words = text.split()
        delays_ms = [level_ms(word) for word in words]
        bad = next((word for word, delay in zip(words, delays_ms, strict=True) if delay is None), None)
        if bad is not None or not words:
            raise ConfigError(f"messageDelayLevel: {bad or text!r} is not a delay; write as in '1s 30s 5m 2h 1d'")
        return cls(tuple(delay for delay in delays_ms if delay is not None))

    @property
    def max(self) -> int:
        return len(self.delays_ms)

    def clamp(self, level: int) -> int:
        """The level itself, or the last level for higher numbers."""
        return min(level, self.max)

    def delay_ms(self, level: int) -> int:
        return self.delays_ms[self.clamp(level) - 1] if level > 0 else 0

    def deliver_timestamp_ms(self, level: int, from_timestamp_ms: int) -> int:
        return from_timestamp_ms + self.delay_ms(level)

    def __str__(self) -> str:
        return " ".join(map(duration_word, self.delays_ms))


def duration_ms(word: str) -> int | None:
    """The milliseconds of a duration such as "100ms", "30s", "5m", "2h" or "1d"; None for other texts."""
    match = _WORD_PATTERN.fullmatch(word)
    return int(match[1]) * _UNIT_MS[match[2]] if match else None


def level_ms(word: str) -> int | None:
    """The same for settings that Java's brokers share, which know whole seconds."""
    return None if word.endswith("ms") else duration_ms(word)


def duration_word(duration_ms: int) -> str:
    """Write a duration of whole seconds in the largest unit that fits."""
    unit = next((unit for unit in "dhm" if duration_ms and duration_ms % _UNIT_MS[unit] == 0), "s")
    return f"{duration_ms // _UNIT_MS[unit]}{unit}"


# The prepared offset of a delivered record, `_FIRST_MARK - (queue id << 48 | queue offset)`, says where it had waited.
# Half messages have offsets from 0 on there, and settled timers -1 - offset, which is greater (store/timers.py).
_FIRST_MARK: Final = -(1 << 62)
_QUEUE_ID_AT: Final = 48
_QUEUE_OFFSET_MASK: Final = (1 << _QUEUE_ID_AT) - 1


def delivered_mark(queue_id: int, queue_offset: int) -> int:
    """Return the `prepared_offset` of the record that delivers the message at this place of SCHEDULE_TOPIC_XXXX."""
    return _FIRST_MARK - (queue_id << _QUEUE_ID_AT | queue_offset)


def parse_delivered_mark(prepared_offset: int) -> tuple[int, int] | None:
    """Return queue id and queue offset from a record's `prepared_offset`; None if it delivers no delayed message."""
    if prepared_offset > _FIRST_MARK:
        return None
    place = _FIRST_MARK - prepared_offset
    return place >> _QUEUE_ID_AT, place & _QUEUE_OFFSET_MASK


def queue_of(level: int) -> int:
    return level - 1


def level_of(queue_id: int) -> int:
    return queue_id + 1
