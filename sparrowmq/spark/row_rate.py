"""A limit of rows per second for a task that reads or sends (`rowsPerSecondPerTask`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

_PORTIONS_PER_S: Final = 4


class Pace:
    """Lets things pass at a rate; time that was not used is not made up for later."""

    def __init__(
        self,
        per_s: float,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_s = per_s
        self._sleep = sleep
        self._monotonic = monotonic
        self._due_s = monotonic()

    def wait(self) -> None:
        """Wait until the next may pass."""
        now_s = self._monotonic()
        if now_s < self._due_s:
            self._sleep(self._due_s - now_s)
        else:
            self._due_s = now_s

    def passed(self, count: int) -> None:
        self._due_s += count / self._per_s

    def portions(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, cut to portions, each of them not before its time."""
        most = max(1, int(self._per_s) // _PORTIONS_PER_S)
        for batch in batches:
            for begin in range(0, batch.num_rows, most):
                portion = batch.slice(begin, most)
                self.wait()
                yield portion
                self.passed(portion.num_rows)


def paced(batches: Iterator[pa.RecordBatch], rows_per_s: int | None) -> Iterator[pa.RecordBatch]:
    """The batches at that rate, or as they come."""
    return batches if rows_per_s is None else Pace(rows_per_s).portions(batches)
