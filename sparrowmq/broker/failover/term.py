"""What a broker with failover is told of its time as a master or a slave; it is made anew for each such time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparrowmq.broker.failover.group_state import Leader
from sparrowmq.broker.failover.in_sync import InSync


@dataclass(frozen=True, slots=True)
class Term:
    """One.

    Attributes:
        member: the broker's id among the members.
        epoch: that of the master, whoever it is; 0 if there was none yet.
        leader: whom to follow; None for the master itself, and while nobody is known.
        in_sync: a master's.
        cut_at: up to where the log is the master's, too, if that is proved; the rest is put aside.
        holds: whether it is still the time that this tells of; a master's announces itself only then.
        joined: is told, before anything is appended, that the log is the beginning of the master's.
        problem: why it neither leads nor follows; "" where nothing is in the way.
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
        """What `brokerStatus` says of who leads."""
        table = {"memberId": str(self.member), "masterEpoch": str(self.epoch)}
        if self.in_sync is not None:
            table["inSyncMembers"] = ",".join(map(str, sorted(self.in_sync.members)))
        return table
