"""What etcd keeps of the brokers of one name, and what follows from it: pure, so that each of them sees the same.

    PREFIX/CLUSTER/NAME/leader    who is the master, since which epoch, where it is      goes with the master's lease
    PREFIX/CLUSTER/NAME/state     the last epoch, who is in sync, where epochs began     stays

An epoch is the time of one master; each has a number of its own, one above the last. A master begins its epoch where
its log ends at that moment, and is the only one that appends until the next epoch begins. So, of two brokers that
followed or were the master of epoch 7:

    epoch 7 begins          epoch 8 begins, at the end of the log of its master
    ──────────────●──────────────────●────────────
    what lies before that ───────────┘ both have the same of it; what one has behind it is of epoch 7, and nobody's

That is the proof by which a log is cut (`shared_end`). It needs the begin of each epoch since the one that the log was
last part of; where that is not known any more nothing is cut, and what follows compares bytes (upstream.py). Should
etcd lose its memory, epochs begin anew in another line of them, and those of the line before prove nothing.

In sync are those that have all that was acknowledged: the master adds one only when it has it all, from then on
acknowledges nothing without it, and takes it out before it does again. So each of them can be the next master, with the
store that it had then: one that comes back with another, because its disk was replaced or is not there, has nothing of
what its number stands for. Its own record tells (`doubt`), for that is raised before a byte of an epoch is taken.
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
        member: its brokerId among the members; as a master it is 0 to everybody else.
        store: the mark of its store (own_epoch.py); an own one with the same is an earlier life of ours.
        address: where clients come.
        shipping: where its slaves come.
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
        line: the mark of the line of epochs that this one is in.
        leader: whose it is, by brokerId.
        in_sync: who has all that was acknowledged in it, the leader among them.
        begins: epochs and the offsets of the log at which they began, rising; the newest ones.
        store: the mark of the leader's store; "" if a version that knew none wrote this.
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
            is_fresh: it was started a moment ago, perhaps with less than it had acknowledged, as after a power cut; so
                another one that is in sync goes first.
        """
        return member in self.in_sync and not (is_fresh and len(self.in_sync) > 1)

    def doubt(self, member: int, own: OwnEpoch, end: int) -> str | None:
        """Why the store of a member that is in sync cannot be the one that was; None if it can be.

        Who was elected may have died before it wrote that down, so for that one the mark of its store is enough.

        Args:
            own: what it has written down of itself.
            end: of its log.
        """
        was_elected = member == self.leader and own.store == self.store
        if not was_elected and (own.line != self.line or own.epoch < self.epoch):
            last = f"was last part of epoch {own.epoch}" if own.epoch else "never was part of one"
            return f"its log {last}, by its own record"
        _, begin = self.begins[-1]
        return f"its log ends at {end}, and that epoch began at {begin}" if end < begin else None

    def shared_end(self, epoch: int, line: str) -> int | None:
        """Up to where a log that was last part of `epoch` is the master's, too; None if nothing proves it.

        It may be behind that log's end: then all of it is.
        """
        later = [begin for number, begin in self.begins if number > epoch]
        is_known = line == self.line and epoch >= self.begins[0][0]
        return min(later) if later and is_known else None


def elected(last: GroupState | None, member: int, own: OwnEpoch, end: int) -> GroupState:
    """The state when a member becomes the master whose log ends at `end`.

    Args:
        last: what etcd has; None if that knows nothing of these brokers.
        own: has the last epoch that the member knows of, lest one comes again if etcd lost its memory.
    """
    epoch = max(last.epoch if last else 0, own.epoch) + 1
    begins = (*(last.begins if last else ()), (epoch, end))[-MOST_EPOCHS:]
    line = last.line if last else os.urandom(8).hex()
    return GroupState(
        epoch=epoch, line=line, leader=member, in_sync=(member,), begins=begins, store=own.store
    )


def with_in_sync(state: GroupState, members: set[int]) -> GroupState:
    """The same epoch, with others in sync."""
    return msgspec.structs.replace(state, in_sync=tuple(sorted(members)))
