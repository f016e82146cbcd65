"""The presence of a member in etcd: its address, and how far its log goes while there is no master.

    PREFIX/CLUSTER/NAME/member/ID    address, store, epoch and end of the log    ends with the member's lease

A member whose recovery cut or fenced off bytes may lack acknowledged messages. It is not elected before its log has
been compared with the logs of other members (`compare_first`). Damaged records are taken from the addresses here
(replication/peer_repair.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from sparrowmq.broker.failover.group_state import GroupState
from sparrowmq.broker.failover.lease import Granting
from sparrowmq.broker.failover.own_epoch import OwnEpoch
from sparrowmq.errors import EtcdFailed

FOLDER: Final = "member/"
UNKNOWN: Final = -1
LEASES: Final = 2  # the lease times for which a member that ended is still seen


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """One member that runs.

    Attributes:
        store: the mark of its store (own_epoch.py).
        address: its address for clients.
        epoch, line: the last epoch that its log was part of.
        end: the end of its log; UNKNOWN while there is a master.
        problem: why it cannot lead; "" if it can.
        is_proved: a master has checked since its start that its log lacks nothing. An older version, which does not say
            this, counts as proved.
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
    def of(cls, member: int, own: OwnEpoch, address: str, end: int, problem: str, *, is_proved: bool) -> Present:
        return cls(
            member=member,
            store=own.store,
            address=address,
            epoch=own.epoch,
            line=own.line,
            end=end,
            problem=problem,
            is_proved=is_proved,
        )

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class Keeping(Granting, Protocol):
    """The requests to etcd that presence needs; they raise EtcdFailed."""

    async def change(
        self,
        versions: Mapping[str, int],
        puts: Mapping[str, bytes],
        *,
        leased: Mapping[str, int] | None = None,
    ) -> bool:
        """Put keys."""


class Presence:
    """Keeps the entry of one member in etcd.

    Args:
        key: of the entry.
        lease_s: the lease time of a master; the entry lasts `LEASES` times as long.
    """

    def __init__(self, etcd: Keeping, key: str, lease_s: int) -> None:
        self._etcd = etcd
        self._key = key
        self._ttl_s = LEASES * lease_s
        self._lease = 0
        self._shown = b""

    async def show(self, present: Present) -> None:
        """Let etcd have this entry, for some more time. Raises: EtcdFailed."""
        content = present.encode()
        if self._lease and not await self._etcd.keep_alive(self._lease):
            self._lease = 0
        if self._lease and content == self._shown:
            return
        self._lease = self._lease or await self._etcd.grant(self._ttl_s)
        self._shown = b""
        await self._etcd.change({}, {self._key: content}, leased={self._key: self._lease})
        self._shown = content

    async def end(self) -> None:
        """Remove the entry, if etcd answers."""
        if self._lease:
            with suppress(EtcdFailed):  # it ends by its time
                await self._etcd.revoke(self._lease)


def decoded(content: bytes) -> Present | None:
    """Return the member that an entry describes; None if it is not one of ours."""
    try:
        return msgspec.json.decode(content, type=Present)
    except msgspec.DecodeError:
        return None


def compare_first(own: OwnEpoch, end: int, state: GroupState, others: Iterable[Present]) -> str:
    """Return why this store must first be compared with others before it leads; "" if it may lead.

    A member that was not yet proved to be in sync since its start lets a member in sync with a longer log go first. A
    member in doubt needs at least one other member in sync to be compared with, and then the longest log of all.

    Args:
        own: the member's own record, with the doubt in its store.
        end: the end of its log.
        others: the other members that run.
    """
    alike = _comparable(state, others)
    in_sync = [each for each in alike if each.member in state.in_sync]
    able = alike if own.doubt else [each for each in in_sync if not each.problem]
    longest = max(able, key=lambda each: each.end, default=None)
    if longest is not None and longest.end > end:
        return f"the log of member {longest.member} ends at {longest.end}, and ours at {end}" + (
            f"; {own.doubt}" if own.doubt else ""
        )
    if own.doubt and not in_sync and len(state.in_sync) > 1:
        return f"{own.doubt}, and no other member in sync runs, whose log could be compared"
    return ""


def none_can_have_more(member: int, end: int, state: GroupState, others: Iterable[Present]) -> bool:
    """Return whether all other members in sync run, and none can have more than this store.

    A log ends where its entry says or earlier: the entry was written after the last epoch whose messages were
    acknowledged, and a log only loses bytes until the next epoch. So nothing more can come. A member that is proved to
    lack nothing goes first, as a longer log can be that of an epoch without acknowledgements.
    """
    shorter = {each.member for each in _comparable(state, others) if each.end <= end and not each.is_proved}
    return {*state.in_sync} <= {member, *shorter}


def _comparable(state: GroupState, others: Iterable[Present]) -> list[Present]:
    """Return the members whose logs can be compared: they were part of the last epoch that was settled."""
    return [
        each for each in others if each.end != UNKNOWN and each.line == state.line and each.epoch >= state.proved_epoch
    ]
