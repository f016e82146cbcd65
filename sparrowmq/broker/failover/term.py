"""The state of a broker with failover during one period as master or slave; each period has its own object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from sparrowmq.broker.failover.group_state import Leader
from sparrowmq.broker.failover.in_sync import InSync
from sparrowmq.remoting.tls.contexts import ClientContext


async def no_peers() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Term:
    """One period as master or slave.

    Attributes:
        member: the broker's id among the members.
        epoch: the current master's epoch; 0 if there was no master yet.
        process_ms: when the process began. `bootTimestamp` is that of the period.
        log_epoch: the last epoch that the log here was part of; a slave that lacks its master's log has an earlier one.
        leader: the master to follow; None for the master itself, and while no master is known.
        in_sync: the members in sync; only at a master.
        cut_at: the offset up to which the log is proved equal to the master's; the rest is moved aside.
        is_shared: whether the whole log is proved equal to the begin of the master's.
        holds: whether this period still lasts; a master announces itself only then.
        takes: whether the master takes messages and changes; not while it hands over the lead.
        joined: called before anything is appended, once the log is known to be the beginning of the master's.
        problem: why the broker neither leads nor follows; "" if there is no problem.
        peers: asks etcd for the addresses of the other members that run, for a log that has to be repaired.
        elect: an operator decides that this member begins a new line of epochs; True although etcd has members in sync.
        hand_over: an operator wants the member to lead, 0: any one that is in sync. Returns that member.
        etcd_tls: of the connections to etcd; None if they are not encrypted.
    """

    member: int
    epoch: int
    leader: Leader | None = None
    in_sync: InSync | None = None
    cut_at: int | None = None
    is_shared: bool = False
    holds: Callable[[], bool] = lambda: True
    joined: Callable[[], object] = lambda: None
    problem: Callable[[], str] = lambda: ""
    peers: Callable[[], Awaitable[Sequence[str]]] = no_peers
    takes: Callable[[], bool] = lambda: True
    elect: Callable[[bool], Awaitable[None]] | None = None
    hand_over: Callable[[int], Awaitable[int]] | None = None
    process_ms: int = 0
    log_epoch: Callable[[], int] = lambda: 0
    etcd_tls: ClientContext | None = None

    @property
    def hides_log(self) -> bool:
        """Whether clients must not read: no master is known, or a new one does not know yet which members follow."""
        if self.in_sync is not None:
            return self.in_sync.hides_log
        return self.leader is None

    def may_have_more(self, end: int) -> bool:
        """Whether a slave's log, which ends at `end` after any cut, may have messages that its master lacks."""
        if self.in_sync is not None or self.is_shared:
            return False
        return self.cut_at is None or end > self.cut_at

    def status_lines(self) -> dict[str, str]:
        """Return the entries of `brokerStatus` about the leader."""
        table = {
            "memberId": str(self.member),
            "masterEpoch": str(self.epoch),
            "logEpoch": str(self.log_epoch()),
            "memberBootTimestamp": str(self.process_ms),
        }
        if self.in_sync is not None and self.holds():
            table["inSyncMembers"] = ",".join(map(str, sorted(self.in_sync.members)))
            table["epochSettled"] = str(self.in_sync.is_settled).lower()
        return table
