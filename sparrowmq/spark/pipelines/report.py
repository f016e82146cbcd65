"""What a pipeline says of itself: a line for each batch while it runs, and one line of JSON at its end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Say = Callable[[str], None]

_LOOK_S: Final = 1


@dataclass
class Report:
    """What a pipeline did.

    Attributes:
        read: messages; None where nobody counts them. written, errors: rows of the table, and of the table of errors.
        offsets: where it is in each queue: topic, broker, queue id, next offset.
    """

    read: int | None = 0
    written: int = 0
    errors: int = 0
    batches: int = 0
    seconds: float = 0.0
    offsets: Mapping[str, Any] = field(default_factory=dict)

    def add_read(self, rows: int) -> int:
        """Count messages; returns how many there are by now."""
        self.read = (self.read or 0) + rows
        return self.read

    def line(self) -> str:
        """The report as one line of JSON."""
        return json.dumps(vars(self) | {"seconds": round(self.seconds, 3)}, separators=(",", ":"))


def watch(query: StreamingQuery, report: Report) -> None:
    """Wait until the query ends; Control-C stops it in order.

    Raises:
        StreamingQueryException: it failed.
    """
    begin = time.monotonic()
    try:
        while not query.awaitTermination(_LOOK_S):
            pass
    except KeyboardInterrupt:
        query.stop()
    finally:
        report.seconds = time.monotonic() - begin
        if query.lastProgress is not None:
            end = query.lastProgress["sources"][0]["endOffset"]
            report.offsets = json.loads(end)["topics"] if end else {}


def to_stderr(line: str) -> None:
    """How pipelines tell their progress unless told otherwise."""
    sys.stderr.write(f"{line}\n")
