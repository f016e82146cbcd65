"""How many rows a second a task may read or send (`rowsPerSecondPerTask`): so a backfill leaves something to others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

_PORTIONS_PER_S: Final = 4


class Pace:
    """Lets rows pass at a rate; what was not used of a pause is not made up for later."""

    def __init__(
        self,
        rows_per_s: int,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rows_per_s = rows_per_s
        self._most = max(1, rows_per_s // _PORTIONS_PER_S)
        self._sleep = sleep
        self._monotonic = monotonic
        self._due_s = monotonic()

    def portions(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, cut to portions, each of them not before its time."""
        for batch in batches:
            for begin in range(0, batch.num_rows, self._most):
                portion = batch.slice(begin, self._most)
                self._wait()
                yield portion
                self._due_s += portion.num_rows / self._rows_per_s

    def _wait(self) -> None:
        now_s = self._monotonic()
        if now_s < self._due_s:
            self._sleep(self._due_s - now_s)
        else:
            self._due_s = now_s


def paced(batches: Iterator[pa.RecordBatch], rows_per_s: int | None) -> Iterator[pa.RecordBatch]:
    """The batches at that rate, or as they come."""
    return batches if rows_per_s is None else Pace(rows_per_s).portions(batches)
