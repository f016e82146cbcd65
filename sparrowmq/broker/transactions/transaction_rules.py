"""The time limits of transactions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TransactionRules:
    """The time limits of open transactions, with Java's names in brackets.

    Attributes:
        timeout_ms: from the message's birth until the first check (transactionTimeOut).
        interval_ms: between two checks (transactionCheckInterval).
        most_checks: checks of one transaction (transactionCheckMax).
        retention_ms: older ones are discarded, because their half messages are about to be deleted (fileReservedTime).
        place_ms: a half message that waits for a producer is stored again after this time, so that the log before it
            can be deleted.
        place_entries: sooner if the half topic has grown by so many entries: the broker keeps a number for each op
            record behind the oldest copy.
        rejected: whether half messages are refused (rejectTransactionMessage).
        is_masters: whether only a master may append to this log, so that a start adds no op records to it.
    """

    timeout_ms: int = 6000
    interval_ms: int = 60_000
    most_checks: int = 15
    retention_ms: int = 72 * 3_600_000
    place_ms: int = 3_600_000
    place_entries: int = 100_000
    rejected: bool = False
    is_masters: bool = False

    def immune_ms(self, own_s: int) -> int:
        """Return the immunity that a producer asked for: at most the time for which messages are kept."""
        return min(own_s * 1000, self.retention_ms)
