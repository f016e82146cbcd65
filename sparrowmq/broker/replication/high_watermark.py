"""The part of a member's log that consumers may read. Other members may lack the rest, and one of them may lead next.

no failover              all
no master is known       nothing
the master               nothing until its epoch is settled, then what all members in sync have (in_sync.py)
its slave                up to the offset that the master says, once this has reached the end that the log had
                         when the slave began: any of those messages may be of an earlier master
... of an older master   all, once the log is proved to be the beginning of the master's
... without room         all, if the log was proved so at an earlier start: it follows no master
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparrowmq.broker.failover.term import Term
from sparrowmq.store.message_store import MessageStore

if TYPE_CHECKING:  # a master does not load it
    from sparrowmq.broker.replication.replica import Replica


class HighWatermark:
    """Decides whether consumers may read, and how far.

    Args:
        is_full: whether the store takes nothing, because its disk had no room at the start.
    Attributes:
        asks: whether a slave asks its master how far.
        on_change: called when they may read now, and could not before.
    """

    def __init__(self, store: MessageStore, term: Term | None, *, is_full: bool) -> None:
        self.on_change: Callable[[], object] = lambda: None
        self._store = store
        self._term = term
        self._begin = store.end
        leader = term.leader if term is not None else None
        self.asks = leader is not None and leader.tells_shown and not is_full
        self._is_unproved = term is not None and (self.asks or term.may_have_more(store.end))
        if term is not None and term.in_sync is not None:
            term.in_sync.on_settled = lambda: self.on_change()

    @property
    def is_hidden(self) -> bool:
        """Whether consumers must not read."""
        return self._term is not None and (self._term.hides_log or self._is_unproved)

    def follow(self, replica: Replica) -> None:
        """Show what the master of a slave says."""
        if self.asks:
            show = self._store.show_within(lambda: replica.shown)

            def said() -> None:
                show()
                if replica.shown >= self._begin:
                    self._prove()

            replica.on_shown = said

    def joined(self) -> None:
        """Note that the log is proved to be the beginning of the master's."""
        if not self.asks:
            self._prove()

    def _prove(self) -> None:
        if self._is_unproved:
            self._is_unproved = False
            self.on_change()
