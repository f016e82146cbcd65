"""Starts a failed stream again from its checkpoint, after pauses that grow: 1 s, 2 s, 4 s, up to a minute.

A batch that is done sets the pause back. A stream with an end (`once`) gives up after a few failures in a row, because
a timer or a person will start it again. A stream without an end goes on until the cause is gone. Both give up at once
where the next start would fail the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparrowmq.spark.failures import failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
MOST_WITH_AN_END: Final = 5  # failures in a row: half a minute of pauses


@dataclass
class Restarts:
    """The failures in a row of one stream."""

    most: int | None = None  # of them before it is given up; None for no limit
    _failures: int = 0

    def pause_s(self, error: Exception, *, went_on: bool) -> float | None:
        """Return the pause before the next start; None if there is to be none.

        Args:
            went_on: whether a batch was done since the failure before.
        """
        self._failures = 1 if went_on else self._failures + 1
        if failure(str(error)).is_permanent or (self.most is not None and self._failures > self.most):
            return None
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * (1 << min(self._failures - 1, 16)))


def has_ended(session: SparkSession) -> bool:
    """Whether a session can start nothing any more: its Java process is gone, or was asked to stop."""
    from py4j.protocol import Py4JError

    try:
        return bool(session.sparkContext._jsc.sc().isStopped())
    except (Py4JError, OSError, AttributeError):  # AttributeError: `stop` was called here
        return True
