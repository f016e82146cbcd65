"""The state of a broker with failover during one period as master or slave; each period has its own object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sparrowmq.broker.failover.group_state import Leader
from sparrowmq.broker.failover.in_sync import InSync
from sparrowmq.remoting.tls.contexts import ClientContext


async def no_peers() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class Term:
    """One period as master or slave.

    `leader` is the master to follow, and `epoch` that of the master; `log_epoch` is the last one that the log here was
    part of. Up to `cut_at` the log is proved equal to the master's, or all of it if it `is_shared`. `on_joined` is
    called before anything is appended. `problem` says why the broker neither leads nor follows. `peers` asks etcd for
    the other members that run. `elect` and `hand_over` are for operators; the latter takes 0 for any member in sync.
    """

    member: int
    epoch: int
    leader: Leader | None = None
    in_sync: InSync | None = None
    cut_at: int | None = None
    is_shared: bool = False
    is_current: Callable[[], bool] = lambda: True
    on_joined: Callable[[], object] = lambda: None
    problem: Callable[[], str] = lambda: ""
    peers: Callable[[], Awaitable[Sequence[str]]] = no_peers
    accepts_writes: Callable[[], bool] = lambda: True
    elect: Callable[[bool], Awaitable[None]] | None = None
    hand_over: Callable[[int], Awaitable[int]] | None = None
    process_ms: int = 0
    is_elected: bool = True  # False: the settings say who is master (`NO_FAILOVER`)
    log_epoch: Callable[[], int] = lambda: 0
    etcd_tls: ClientContext | None = None

    @property
    def hides_log(self) -> bool:
        """Whether clients must not read: no master is known, or a new one does not know yet which members follow."""
        if self.in_sync is not None:
            return self.in_sync.hides_log
        return self.is_elected and self.leader is None

    def may_have_more(self, end: int) -> bool:
        """Whether a slave's log, which ends at `end` after any cut, may have messages that its master lacks."""
        if self.in_sync is not None or self.is_shared or not self.is_elected:
            return False
        return self.cut_at is None or end > self.cut_at

    @property
    def is_alone(self) -> bool:
        """Whether this one stays the master, or the next master has everything that this one has."""
        return self.in_sync is None or self.in_sync.is_alone

    def status_lines(self) -> dict[str, str]:
        if not self.is_elected:
            return {}
        lines = {
            "memberId": str(self.member),
            "masterEpoch": str(self.epoch),
            "logEpoch": str(self.log_epoch()),
            "memberBootTimestamp": str(self.process_ms),
        }
        if self.in_sync is not None and self.is_current():
            lines["inSyncMembers"] = ",".join(map(str, sorted(self.in_sync.members)))
            lines["epochSettled"] = str(self.in_sync.is_settled).lower()
        return lines


NO_FAILOVER: Final = Term(0, 0, is_elected=False)
