"""Whether a member may try to become the master now, and why not.

    etcd has no state of the group     a store that was part of an epoch waits for an operator: others may have more
    not in sync, or another store      never, but by an operator's decision
    has just started                   it waits for the other members in sync, for a while: it may lack what a power
                                       cut took
    its recovery cut bytes             it is compared with other members first (group_keys.py)
    the lead was handed over           the chosen member goes first
    the start as the master failed     after COOLDOWN_S
    no room, a port that is taken      others go first; without room it tries after a while, to serve reads at least

The reasons are shown in `brokerStatus`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from sparrowmq.broker.failover.group_keys import Present, compare_first, none_can_have_more
from sparrowmq.broker.failover.group_state import GroupState, Leader, OwnEpoch
from sparrowmq.core import descriptors
from sparrowmq.errors import ConfigError, DiskFull, StoreError
from sparrowmq.loop.clock import Clock
from sparrowmq.remoting.listener import Listener
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.vfs import Disk, Vfs, probe_writes

COOLDOWN_S: Final = 10.0
SLOW_S: Final = 1.0  # of the trial of the disk: some small files, each with its sync
_DISK: Final = Disk()
# The lease times for which a started member without a proof of being in sync lets others go first.
_FRESH_LEASES: Final = 2
_UNFIT_LEASES: Final = 2  # likewise, for one that can start, but has no room


@dataclass(frozen=True, slots=True)
class Reason:
    text: str
    remedy: str = ""  # what an operator has to do; "" if the group goes on by itself
    is_able_to_lead: bool = False  # it could lead, and only lets others go first


class Candidacy:
    """The record of one member of the group `name`. `is_proved`: since its start a master has checked its log."""

    def __init__(self, member: int, name: str, lease_s: float, own_record: OwnEpoch, clock: Clock) -> None:
        self.is_proved = False
        self._member = member
        self._name = name
        self._lease_s = lease_s
        self._own_record = own_record
        self._clock = clock
        self._started_s = clock.monotonic()
        self._vacant_since_s: float | None = None  # since when there is no master
        self._first_settled_epoch: int | None = None  # the first settled epoch that etcd had since the start
        self._was_out_of_sync = False  # out of sync at some time since the start
        self._addresses: dict[int, str] = {}  # the addresses at which members led or ran last
        self._failure = ""
        self._failed_s = 0.0
        self._chosen_version: int | None = None  # the version of the state for which an operator chose us

    def note_group(self, leader: Leader | None, state: GroupState | None) -> None:
        if leader is not None:
            self._vacant_since_s = None
            self._addresses[leader.member] = leader.address
        elif self._vacant_since_s is None:
            self._vacant_since_s = self._clock.monotonic()
        if state is not None:
            self._note_proof(state)

    def _note_proof(self, state: GroupState) -> None:
        """Note that a master has taken us in since the start, and so has checked that our log lacks nothing."""
        if self._first_settled_epoch is None:
            self._first_settled_epoch = state.proved_epoch
        if self._member not in state.in_sync:
            self._was_out_of_sync = True
        elif self._was_out_of_sync or state.proved_epoch > self._first_settled_epoch:
            self.is_proved = True

    def choose(self, version: int) -> None:
        """Note that an operator has decided, at this version of the state in etcd, that we begin a new line."""
        self._chosen_version = version

    def is_chosen(self, version: int) -> bool:
        return self._chosen_version == version

    def note_failed_start(self, reason: str) -> None:
        self._failure, self._failed_s = reason, self._clock.monotonic()

    def note_lead(self) -> None:
        self._failure, self._chosen_version = "", None

    def reason(self, state: GroupState | None, version: int, end: int, others: Collection[Present]) -> Reason | None:
        """Return why this member, whose log ends at `end`, does not try to lead without a master; None if it does."""
        self._addresses |= {other.member: other.address for other in others}
        if self._failure and self._clock.age(self._failed_s) < COOLDOWN_S:
            return Reason(f"it could not start as the master: {self._failure}")
        if self.is_chosen(version):
            return None
        if state is None:
            return self._reason_without_state(others)
        in_sync = ", ".join(
            f"{member} at {self._addresses[member]}" if member in self._addresses else str(member)
            for member in state.in_sync
        )
        if self._member not in state.in_sync:
            return Reason(f"there is no master, and this member is not in sync (in sync: {in_sync})")
        doubt = state.doubt(self._member, self._own_record, end)
        if doubt is not None:
            return Reason(
                f"not elected, though in sync: this is not the store that was ({doubt})",
                f"bring that one back, or another member that is in sync (in sync: {in_sync}). Only if they are lost "
                f"for good: {self._command(' --force')} (docs/operate/failover.md)",
            )
        comparison_reason = "" if self.is_proved else compare_first(self._own_record, end, state, others)
        if comparison_reason:
            text = f"not elected before another member, which may have more: {comparison_reason}"
            return Reason(text, is_able_to_lead=not self._own_record.doubt)
        may_lead_at_once = state.may_lead(self._member, is_fresh=True) or none_can_have_more(
            self._member, end, state, others
        )
        if self.is_fresh and (self._own_record.doubt or not may_lead_at_once):
            text = f"there is no master; this member has just started, and waits for others (in sync: {in_sync})"
            return Reason(text, is_able_to_lead=True)
        if state.successor not in (0, self._member) and self._vacant_s < self._lease_s:
            return Reason(f"the lead is handed over to member {state.successor}", is_able_to_lead=True)
        return None

    async def obstacle(
        self, store: MessageStore, port: Listener, vfs: Vfs = _DISK, *, is_chosen: bool = False
    ) -> Reason | None:
        """Try whether this member could start as the master; return why not. A slow disk delays the answer.

        A chosen member lets no others go first, and does not begin without room: etcd would have it in sync alone.
        """
        begin_s = self._clock.monotonic()
        try:
            descriptors.divide(descriptors.limit(), with_store=True)
            port.bind()
            port.release()
        except ConfigError as error:
            return Reason(f"it cannot start as the master: {error}")
        try:
            layout, room_bytes = store.settings.layout, store.appender.needed_bytes()
            folders = (layout.root, str(self._own_record.path.parent))
            await asyncio.to_thread(probe_writes, vfs, folders, layout.commit_log, room_bytes)
        except DiskFull as full:
            if is_chosen:
                return Reason(f"it cannot start as the master: {full}")
            problem = str(full)
        except (StoreError, OSError) as error:
            return Reason(f"it cannot start as the master: {error}")
        else:
            took_s = self._clock.monotonic() - begin_s
            problem = f"its disk took {took_s:.1f} s for small files" if took_s > SLOW_S else ""
        if not problem or is_chosen or self._vacant_s >= _UNFIT_LEASES * self._lease_s:
            return None
        return Reason(f"other members go first: {problem}")

    def _reason_without_state(self, others: Collection[Present]) -> Reason | None:
        epochs_by_member = {other.member: other.epoch for other in others if other.epoch}
        if self._own_record.epoch:
            epochs_by_member[self._member] = self._own_record.epoch
        if not epochs_by_member:
            return None
        stores = ", ".join(
            f"that of member {member} of epoch {epochs_by_member[member]}" for member in sorted(epochs_by_member)
        )
        return Reason(
            f"etcd has lost its data about {self._name}, and stores were part of it before ({stores})",
            f"start all members, and let the one begin that has most: {self._command()} (docs/operate/failover.md)",
        )

    def _command(self, options: str = "") -> str:
        return f"`sparrowmq cluster elect -b {self._name}{options}`"

    @property
    def _vacant_s(self) -> float:
        return self._clock.age(self._vacant_since_s) if self._vacant_since_s is not None else 0.0

    @property
    def is_fresh(self) -> bool:
        since_s = self._clock.monotonic() - self._started_s
        return not self.is_proved and since_s < _FRESH_LEASES * self._lease_s
