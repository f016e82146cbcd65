"""The state of a broker with failover during one period as master or slave; each period has its own object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparrowmq.broker.failover.group_state import Leader
from sparrowmq.broker.failover.in_sync import InSync


@dataclass(frozen=True, slots=True)
class Term:
    """One period as master or slave.

    Attributes:
        member: the broker's id among the members.
        epoch: the current master's epoch; 0 if there was no master yet.
        leader: the master to follow; None for the master itself, and while no master is known.
        in_sync: the members in sync; only at a master.
        cut_at: the offset up to which the log is proved equal to the master's; the rest is moved aside.
        holds: whether this period still lasts; a master announces itself only then.
        joined: called before anything is appended, once the log is known to be the beginning of the master's.
        problem: why the broker neither leads nor follows; "" if there is no problem.
    """

    member: int
    epoch: int
    leader: Leader | None = None
    in_sync: InSync | None = None
    cut_at: int | None = None
    holds: Callable[[], bool] = lambda: True
    joined: Callable[[], object] = lambda: None
    problem: Callable[[], str] = lambda: ""

    def told(self) -> dict[str, str]:
        """Return the entries of `brokerStatus` about the leader."""
        table = {"memberId": str(self.member), "masterEpoch": str(self.epoch)}
        if self.in_sync is not None:
            table["inSyncMembers"] = ",".join(map(str, sorted(self.in_sync.members)))
        return table
