"""The keys of a group in etcd: the lease of its master, and the entry of each member that runs.

    PREFIX/CLUSTER/NAME/leader       the master                                  ends with the master's lease
    PREFIX/CLUSTER/NAME/state        the state of the group (group_state.py)
    PREFIX/CLUSTER/NAME/member/ID    address, store, epoch and end of the log    ends with the member's lease

The master may rely on its lease until a deadline:

    request     ├── masterLeaseTime ──────────────────────┤     etcd's time, from the arrival of the request
    deadline    ├───────────────────────────┤ margin            the master's, from before the request, by a steady clock

So the lease ends first at the master: no other broker is elected while this one still acts as the master. The margin
covers clocks of different speed, and work that is under way during the check. Acknowledgements that wait for the
members in sync need no clock, because only one of those members can be the next master (in_sync.py).

A live lease does not prove that its key still exists: an operator may have deleted it, or a copy of our store may own
it. So each renewal also checks the key.

A member whose recovery cut or fenced off bytes may lack acknowledged messages. It is not elected before its log has
been compared with the logs of other members (`compare_first`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

import msgspec

from sparrowmq.broker.failover.etcd import EtcdValue
from sparrowmq.broker.failover.group_state import GroupState, Leader, OwnEpoch
from sparrowmq.errors import EtcdFailed
from sparrowmq.loop.clock import Clock

log = logging.getLogger(__name__)

_MARGIN: Final = 0.125  # a part of the lease time
_RENEWALS: Final = 4  # per lease time
_RETRY_S: Final = 0.25
FOLDER: Final = "member/"
UNKNOWN: Final = -1
LEASES: Final = 2  # the lease times for which a member that ended is still seen


class Granting(Protocol):
    async def grant(self, ttl_s: int) -> int:
        """Return a new lease."""

    async def keep_alive(self, lease: int) -> int:
        """Extend a lease; return its time from now in seconds, 0 if it has ended."""

    async def revoke(self, lease: int) -> None:
        """End a lease."""


async def _always_ours() -> bool:
    return True


class Lease:
    """One lease: `begin` it, then `renew` it while it is needed. The master relies on it until `deadline`."""

    def __init__(self, etcd: Granting, clock: Clock, ttl_s: int) -> None:
        self.number = 0
        self.deadline = 0.0
        self._etcd = etcd
        self._clock = clock
        self._ttl_s = ttl_s
        self._is_over = False

    @property
    def is_valid(self) -> bool:
        return self._clock.monotonic() < self.deadline

    async def begin(self) -> None:
        requested_s = self._clock.monotonic()
        self.number = await self._etcd.grant(self._ttl_s)
        self._extend_deadline(requested_s, self._ttl_s)

    async def renew(self, is_key_ours: Callable[[], Awaitable[bool]] = _always_ours) -> None:
        """Renew the lease until it has ended, at etcd or here, or until its key is no longer ours."""
        while self.is_valid:
            requested_s = self._clock.monotonic()
            try:
                ttl_s = await self._etcd.keep_alive(self.number)
                is_ours = await is_key_ours()
            except EtcdFailed as error:
                log.warning("the lease cannot be renewed now: %s", error)
                await self._pause(_RETRY_S)
                continue
            if not ttl_s or not is_ours:
                reason = "its key belongs to another member" if ttl_s else "etcd does not know it"
                log.error("the lease has ended: %s", reason)
                self.deadline = 0.0
                return
            self._extend_deadline(requested_s, ttl_s)
            await self._pause(self._ttl_s / _RENEWALS)
        if self.deadline:  # otherwise this member has given the lead up
            log.error("the lease was not renewed in time")

    async def end(self) -> None:
        """End the lease, at once if etcd answers. The answer to a renewal that comes later does not change that."""
        self._is_over = True
        self.deadline = 0.0
        if self.number:
            try:
                await self._etcd.revoke(self.number)
            except EtcdFailed as error:
                log.warning("the lease ends by its time: %s", error)

    def _extend_deadline(self, requested_s: float, ttl_s: float) -> None:
        self.deadline = 0.0 if self._is_over else requested_s + ttl_s * (1 - _MARGIN)

    async def _pause(self, pause_s: float) -> None:
        await self._clock.sleep(max(0.0, min(pause_s, self.deadline - self._clock.monotonic())))


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """One member that runs. Its `end` is UNKNOWN while there is a master. `is_proved`: a master has checked since its
    start that its log lacks nothing; an older version, which does not say this, counts as proved.
    """

    member: int
    store: str
    address: str
    epoch: int
    line: str
    end: int = UNKNOWN
    problem: str = ""
    is_proved: bool = True

    @classmethod
    def of(cls, member: int, own_record: OwnEpoch, address: str, end: int, problem: str, *, is_proved: bool) -> Present:
        return cls(
            member=member,
            store=own_record.store,
            address=address,
            epoch=own_record.epoch,
            line=own_record.line,
            end=end,
            problem=problem,
            is_proved=is_proved,
        )

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class Keeping(Granting, Protocol):
    """The requests to etcd that presence needs; they raise EtcdFailed."""

    async def change(
        self, versions: Mapping[str, int], puts: Mapping[str, bytes], *, leased: Mapping[str, int] | None = None
    ) -> bool:
        """Put keys."""


class Presence:
    """Keeps the entry of one member in etcd, for `LEASES` times the lease time of a master."""

    def __init__(self, etcd: Keeping, key: str, lease_s: int) -> None:
        self._etcd = etcd
        self._key = key
        self._ttl_s = LEASES * lease_s
        self._lease = 0
        self._stored_entry = b""

    async def show(self, present: Present) -> None:
        content = present.encode()
        if self._lease and not await self._etcd.keep_alive(self._lease):
            self._lease = 0
        if self._lease and content == self._stored_entry:
            return
        self._lease = self._lease or await self._etcd.grant(self._ttl_s)
        self._stored_entry = b""
        await self._etcd.change({}, {self._key: content}, leased={self._key: self._lease})
        self._stored_entry = content

    async def end(self) -> None:
        if self._lease:
            with suppress(EtcdFailed):  # it ends by its time
                await self._etcd.revoke(self._lease)


def decoded(content: bytes) -> Present | None:
    try:
        return msgspec.json.decode(content, type=Present)
    except msgspec.DecodeError:
        return None


def compare_first(own_record: OwnEpoch, end: int, state: GroupState, others: Iterable[Present]) -> str:
    """Return why this store must first be compared with others before it leads; "" if it may lead.

    One that is not proved to be in sync lets longer logs go first; one in doubt needs another one to compare with.
    """
    comparable = _comparable(state, others)
    in_sync = [member for member in comparable if member.member in state.in_sync]
    candidates = comparable if own_record.doubt else [member for member in in_sync if not member.problem]
    longest = max(candidates, key=lambda member: member.end, default=None)
    if longest is not None and longest.end > end:
        return f"the log of member {longest.member} ends at {longest.end}, and ours at {end}" + (
            f"; {own_record.doubt}" if own_record.doubt else ""
        )
    if own_record.doubt and not in_sync and len(state.in_sync) > 1:
        return f"{own_record.doubt}, and no other member in sync runs, whose log could be compared"
    return ""


def none_can_have_more(member: int, end: int, state: GroupState, others: Iterable[Present]) -> bool:
    """Return whether all other members in sync run, and none can have more than this store.

    A log ends where its entry says or earlier, so nothing more can come. A member that is proved to lack nothing goes
    first, as a longer log can be that of an epoch without acknowledgements.
    """
    shorter = {other.member for other in _comparable(state, others) if other.end <= end and not other.is_proved}
    return {*state.in_sync} <= {member, *shorter}


def _comparable(state: GroupState, others: Iterable[Present]) -> list[Present]:
    """Return the members whose logs can be compared: they were part of the last epoch that was settled."""
    return [
        member
        for member in others
        if member.end != UNKNOWN and member.line == state.line and member.epoch >= state.proved_epoch
    ]


class EtcdGroup(NamedTuple):
    """The state of the group in etcd; `is_read` says that etcd has answered. A version of 0: the key does not exist."""

    leader: Leader | None = None
    leader_version: int = 0
    state: GroupState | None = None
    state_version: int = 0
    others: tuple[Present, ...] = ()
    is_read: bool = False

    @property
    def is_vacant(self) -> bool:
        return self.is_read and self.leader is None

    @property
    def expected(self) -> frozenset[int]:
        """The members that should follow the next master soon: those in sync and those that run, but not its master."""
        if self.state is None:
            return frozenset()
        return frozenset((*self.state.in_sync, *(member.member for member in self.others))) - self.state.away


def read_group(values: Mapping[str, EtcdValue], keys: str, own_member: int) -> EtcdGroup:
    """Return what these keys say; `keys` is the beginning of their names. Raises: EtcdFailed, they are not ours."""
    leader, state = values.get(keys + "leader"), values.get(keys + "state")
    entries = [decoded(member.value) for key, member in values.items() if key.startswith(keys + FOLDER)]
    try:
        return EtcdGroup(
            Leader.decode(leader.value) if leader else None,
            leader.version if leader else 0,
            GroupState.decode(state.value) if state else None,
            state.version if state else 0,
            tuple(member for member in entries if member and member.member != own_member),
            is_read=True,
        )
    except msgspec.DecodeError as error:
        raise EtcdFailed(f"what etcd has below {keys} is not ours ({error}); set another etcdPrefix") from error
