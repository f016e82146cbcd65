"""The state in etcd of the brokers of one name, and pure functions on it, so that each broker decides the same.

    PREFIX/CLUSTER/NAME/leader    the master, its epoch and its addresses                ends with the master's lease
    PREFIX/CLUSTER/NAME/state     the last epoch, the members in sync, begins of epochs  stays

An epoch is the time of one master. Its number is one above that of the epoch before. A master begins its epoch at the
end of its log, and is the only broker that appends until the next epoch begins. Two brokers that followed the master of
epoch 7, or were that master, compare as follows:

    epoch 7 begins          epoch 8 begins, at the end of its master's log
    ──────────────●──────────────────●────────────
    bytes before this point ─────────┘ are the same in both logs; later bytes of epoch 7 belong to no master's log

By this proof a log may be cut (`shared_end`). The proof needs the begin of every epoch since the last one of that log.
If a begin is no longer known, nothing is cut, and the slave compares bytes (upstream.py). If etcd loses its memory,
epochs begin again in a new line of epochs; those of the old line prove nothing.

A member is in sync if it has every acknowledged message. The master adds a member only when it has them all, and from
then on acknowledges nothing without it. It removes the member before it acknowledges without it again. So each member
in sync can be the next master, with the store that it had then. A member that returns with another store, because its
disk was replaced or is missing, has none of those messages. Its own record shows this (`doubt`), because a member
raises the epoch in that record before it takes a byte of the epoch.
Source: the idea of Kafka's KIP-101 and KIP-279, and of ReplicasInfoManager and EpochFileCache, Java 5.3.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from sparrowmq.broker.failover.own_epoch import OwnEpoch

MOST_EPOCHS: Final = 100


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """The master.

    Attributes:
        member: its brokerId among the members; clients see the master as brokerId 0.
        store: the mark of its store (own_epoch.py). If it equals our own, the leader is an earlier process of ours.
        address: its address for clients.
        shipping: its address for slaves.
    """

    member: int
    epoch: int
    store: str
    address: str
    shipping: str

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, content: bytes) -> Leader:
        """Raises: msgspec.DecodeError."""
        return msgspec.json.decode(content, type=cls)


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """The last epoch.

    Attributes:
        line: the mark of the line of epochs that contains this one.
        leader: the brokerId of its master.
        in_sync: the members that have every message acknowledged in it, including the leader.
        begins: the newest epochs and the log offsets where they began, rising.
        store: the mark of the leader's store; "" if written by a version without marks.
    """

    epoch: int
    line: str
    leader: int
    in_sync: tuple[int, ...]
    begins: tuple[tuple[int, int], ...]
    store: str = ""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, content: bytes) -> GroupState:
        """Raises: msgspec.DecodeError."""
        return msgspec.json.decode(content, type=cls)

    def may_lead(self, member: int, is_fresh: bool) -> bool:
        """Whether a member can be the next master.

        Args:
            is_fresh: the member has just started and may lack messages that it acknowledged, as after a power cut.
                Then another member in sync goes first.
        """
        return member in self.in_sync and not (is_fresh and len(self.in_sync) > 1)

    def doubt(self, member: int, own: OwnEpoch, end: int) -> str | None:
        """Return why an in-sync member's store cannot be the store that was in sync; None if it can be.

        An elected member may have crashed before it wrote its epoch down. For it, the mark of its store is enough.

        Args:
            own: the member's own record.
            end: the end of its log.
        """
        was_elected = member == self.leader and own.store == self.store
        if not was_elected and (own.line != self.line or own.epoch < self.epoch):
            last = f"was last part of epoch {own.epoch}" if own.epoch else "never was part of one"
            return f"its log {last}, by its own record"
        _, begin = self.begins[-1]
        return f"its log ends at {end}, and that epoch began at {begin}" if end < begin else None

    def shared_end(self, epoch: int, line: str) -> int | None:
        """Return the offset up to which a log, last part of `epoch`, equals the master's; None without a proof.

        The offset may be past that log's end: then the whole log is equal.
        """
        later = [begin for number, begin in self.begins if number > epoch]
        is_known = line == self.line and epoch >= self.begins[0][0]
        return min(later) if later and is_known else None


def elected(last: GroupState | None, member: int, own: OwnEpoch, end: int) -> GroupState:
    """Return the state after the election of a member whose log ends at `end`.

    Args:
        last: the state in etcd; None if etcd does not know these brokers.
        own: the member's own record. Its epoch keeps numbers from coming again if etcd lost its memory.
    """
    epoch = max(last.epoch if last else 0, own.epoch) + 1
    begins = (*(last.begins if last else ()), (epoch, end))[-MOST_EPOCHS:]
    line = last.line if last else os.urandom(8).hex()
    return GroupState(
        epoch=epoch, line=line, leader=member, in_sync=(member,), begins=begins, store=own.store
    )


def with_in_sync(state: GroupState, members: set[int]) -> GroupState:
    """Return the state of the same epoch with other members in sync."""
    return msgspec.structs.replace(state, in_sync=tuple(sorted(members)))
