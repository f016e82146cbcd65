"""The error of a log that takes no record, because the lead is handed over."""

from __future__ import annotations

from sparrowmq.errors import DiskFull


class LogEnded(DiskFull):
    """The log takes no record any more. The parts of a broker that add records treat it as a full disk."""
