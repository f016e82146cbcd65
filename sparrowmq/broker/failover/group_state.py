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
If a begin is no longer known, nothing is cut, and the slave compares bytes (ha_slave.py). If etcd loses its memory,
epochs begin again in a new line of epochs; those of the old line prove nothing.

A member is in sync if it has every acknowledged message. The master adds a member only when it has them all, and from
then on acknowledges nothing without it. It removes the member before it acknowledges without it again. So each member
in sync can be the next master, with the store that it had then.

    elected             the members in sync stay those of the epoch before: nothing is acknowledged or shown yet
    epoch settled       the master has named the members that really follow; from then on it acknowledges
                        ... at the first message or read that waits for it, or once all members follow (in_sync.py)

So a master that dies, or cannot start, before its epoch is settled takes no member's right to lead. A member that leads
without having been part of the last of such epochs may have other bytes behind its begin. Its own epoch then begins
there (`elected`), so no proof covers those bytes.

A member that returns with another store, because its disk was replaced or is missing, has none of the messages. Its own
record shows this (`doubt`), because a member notes each epoch in that record before it takes a byte of the epoch. A
member in sync was part of the epoch that was settled last. Another store cannot become part of that epoch while etcd
has the member in sync (`InSync.may_connect`).

The record of a member (`OwnEpoch`) has the last epoch that its log was part of, and its store's mark. `epoch` means:
when this was written, this log was the beginning of the log of that epoch's master. A follower raises it before it
appends the first byte of that epoch, a master before it accepts one. `epochs` are the earlier ones, too: they show that
this store is the one that was in sync in an epoch (`GroupState.doubt`).

`acknowledged` is what a master records when its epoch ends: the offset up to which all members in sync had the log. If
a successor's epoch begins before that offset, the successor has lost messages, and this log is not cut for it.

`doubt` says why the store may lack acknowledged messages, until it was compared with those of other members
(group_keys.py). RECOVERING is written before recovery may cut anything: if the process is killed then, the next start
cannot know what was cut.

Source: the idea of Kafka's KIP-101 and KIP-279, and of ReplicasInfoManager and EpochFileCache, Java 5.3.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from sparrowmq.core import snapshot

RECOVERING: Final = "its last recovery did not end"
MOST_EPOCHS: Final = 100


class _Saved(msgspec.Struct):
    epoch: int = 0
    line: str = ""
    store: str = ""
    acknowledged: int = 0
    doubt: str = ""
    epochs: tuple[int, ...] = ()


@dataclass(slots=True)
class OwnEpoch:
    """The record; `load` reads it.

    `line` is the mark of the line of epochs, and `store` a mark that no other store has. `epochs` are the newest ones,
    up to `epoch`.
    """

    path: Path
    epoch: int
    line: str
    store: str
    acknowledged: int = 0
    doubt: str = ""
    epochs: tuple[int, ...] = ()

    @classmethod
    def load(cls, folder: Path) -> OwnEpoch:
        """Read the record from the folder of a broker's configuration. Raises: BadStore, OSError."""
        path = folder / "epoch.json"
        saved = snapshot.load(path, _Saved) or _Saved()
        mark = saved.store or os.urandom(8).hex()
        epochs = saved.epochs or _with_epoch((), saved.epoch)  # an older version wrote the last one only
        own_record = cls(path, saved.epoch, saved.line, mark, saved.acknowledged, saved.doubt, epochs)
        if not saved.store:
            own_record.save(saved.epoch, saved.line)
        return own_record

    def save(self, epoch: int, line: str, acknowledged: int = 0) -> None:
        """Record that the log is part of this epoch; on disk when this returns. Raises: OSError."""
        epochs = _with_epoch(self.epochs if line == self.line else (), epoch)
        snapshot.save(self.path, _Saved(epoch, line, self.store, acknowledged, self.doubt, epochs))
        self.epoch, self.line, self.acknowledged, self.epochs = epoch, line, acknowledged, epochs

    def note_doubt(self, doubt: str) -> None:
        """Record why the store may lack acknowledged messages; on disk when this returns. Raises: OSError."""
        if doubt != self.doubt:
            self.doubt = doubt
            self.save(self.epoch, self.line, self.acknowledged)


def _with_epoch(epochs: tuple[int, ...], epoch: int) -> tuple[int, ...]:
    return (*(known_epoch for known_epoch in epochs if known_epoch != epoch), *([epoch] if epoch else []))[
        -MOST_EPOCHS:
    ]


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """The master. `store` is the mark of its store: if it equals our own, it is an earlier process of ours."""

    member: int
    epoch: int
    store: str
    address: str
    shipping: str
    tells_shown: bool = False

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, content: bytes) -> Leader:
        return msgspec.json.decode(content, type=cls)


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """The last epoch.

    Attributes:
        line: the mark of the line of epochs that contains this one.
        leader: the brokerId of its master.
        in_sync: the members that have every acknowledged message, and may lead; including the leader.
        begins: the newest epochs and the log offsets where they began.
        store: the mark of the leader's store; "" if written by a version without marks.
        settled: the last epoch whose master has named `in_sync`; 0 if none of this line has. An older version, which
            wrote None, settled each epoch with its election.
        successor: the member that the master has handed the lead over to; 0 if it has not.
        stays: whether the master that handed over goes on as a slave.
    """

    epoch: int
    line: str
    leader: int
    in_sync: tuple[int, ...]
    begins: tuple[tuple[int, int], ...]
    store: str = ""
    settled: int | None = None
    successor: int = 0
    stays: bool = False

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, content: bytes) -> GroupState:
        return msgspec.json.decode(content, type=cls)

    @property
    def proved_epoch(self) -> int:
        """The last epoch whose master has checked that the members in sync lack nothing."""
        return self.epoch if self.settled is None else self.settled

    @property
    def is_settled(self) -> bool:
        return self.proved_epoch == self.epoch

    @property
    def away(self) -> frozenset[int]:
        """The members that will not follow soon after the end of this epoch: its master, unless it goes on."""
        return frozenset() if self.stays else frozenset({self.leader})

    def may_lead(self, member: int, is_fresh: bool) -> bool:
        """Whether a member can be the next master. If it `is_fresh`, another one in sync goes first."""
        return member in self.in_sync and not (is_fresh and len(self.in_sync) > 1)

    def doubt(self, member: int, own_record: OwnEpoch, end: int) -> str | None:
        """Return why an in-sync member's store cannot be the store that was in sync; None if it can be.

        An elected member may have crashed before it wrote its epoch down. For it, the mark of its store is enough.
        """
        was_elected = self.settled != self.epoch and member == self.leader and own_record.store == self.store
        proved = self.proved_epoch
        was_part = proved in own_record.epochs or own_record.epoch > self.epoch  # etcd was restored from an older copy
        if not was_elected and (own_record.line != self.line or not was_part):
            last_part = f"was last part of epoch {own_record.epoch}" if own_record.epoch else "never was part of one"
            return f"its log {last_part}, by its own record"
        begin = dict(self.begins).get(self.epoch if was_elected else proved, 0)
        return f"its log ends at {end}, and that epoch began at {begin}" if end < begin else None

    def shared_end(self, epoch: int, line: str) -> int | None:
        """Return the offset up to which a log, last part of `epoch`, equals the master's; None without a proof."""
        later = [begin for number, begin in self.begins if number > epoch]
        is_known = line == self.line and epoch >= self.begins[0][0]
        return min(later) if later and is_known else None


def elected(last_state: GroupState | None, member: int, own_record: OwnEpoch, end: int) -> GroupState:
    """Return the state after the election of a member whose log ends at `end`; `last_state` is that in etcd."""
    if last_state is None:
        return new_line(member, own_record, end)
    # Only the log before the begins of epochs that it was no part of is known to be the same as theirs.
    begin = min([end, *(begin for number, begin in last_state.begins if number > own_record.epoch)])
    epoch = max(last_state.epoch, own_record.epoch) + 1
    return GroupState(
        epoch=epoch,
        line=last_state.line,
        leader=member,
        in_sync=last_state.in_sync,
        begins=_needed_begins((*last_state.begins, (epoch, begin)), last_state.proved_epoch),
        store=own_record.store,
        settled=last_state.proved_epoch,
    )


def new_line(member: int, own_record: OwnEpoch, end: int, epoch: int = 0) -> GroupState:
    """Return the state of a new line of epochs, which proves nothing of the line before, with the last `epoch`."""
    epoch, line = max(epoch, own_record.epoch) + 1, os.urandom(8).hex()
    begins = ((epoch, end),)
    return GroupState(
        epoch=epoch, line=line, leader=member, in_sync=(member,), begins=begins, store=own_record.store, settled=0
    )


def with_in_sync(state: GroupState, members: set[int]) -> GroupState:
    in_sync = tuple(sorted(members))
    return msgspec.structs.replace(state, in_sync=in_sync, settled=state.epoch, successor=0, stays=False)


def with_successor(state: GroupState, successor: int, stays: bool) -> GroupState:
    return msgspec.structs.replace(state, successor=successor, stays=stays)


def _needed_begins(begins: tuple[tuple[int, int], ...], proved: int) -> tuple[tuple[int, int], ...]:
    """Return the newest begins, without those that prove nothing because a later epoch began at or before them.

    So elections in which nothing is appended do not push out the begins that are needed.
    """
    lowest, needed = begins[-1][1], [begins[-1]]
    for number, begin in reversed(begins[:-1]):
        if begin < lowest or number in (proved, begins[0][0]):
            needed.append((number, begin))
        lowest = min(lowest, begin)
    return tuple(reversed(needed))[-MOST_EPOCHS:]
