"""A member's record of itself, independent of etcd: the last epoch that its log was part of, and its store's mark.

`epoch` means: when this was written, this log was the beginning of the log of that epoch's master. A follower raises it
before it appends the first byte of that epoch, a master before it accepts one. `epochs` are the earlier ones, too. They
show that this store is the one that was in sync in an epoch, although it follows a later one now (`GroupState.doubt`).

`acknowledged` is what a master records when its epoch ends: the offset up to which all members in sync had the log. If
a successor's epoch begins before that offset, the successor has lost messages, and this log is not cut for it.

`doubt` says why the store may lack acknowledged messages, until it was compared with those of other members
(member_presence.py):

    the store was not closed in order    RECOVERING, written before recovery may cut anything
    recovery has cut or fenced off       how much, and where
    it was killed during recovery        the next start finds RECOVERING, and cannot know what was cut
    a master took it in, or it leads     ""
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from sparrowmq.core import snapshot

RECOVERING: Final = "its last recovery did not end"
_MOST: Final = 100  # epochs


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

    Attributes:
        epoch: 0 if the log was never part of one.
        line: the mark of the line of epochs (group_state.py).
        store: a mark that no other store has.
        acknowledged: the offset that the other members had when this master's epoch ended; 0 once it follows another.
        doubt: why the store may lack acknowledged messages; "" if nothing says so.
        epochs: the epochs of the line that the log was part of, up to `epoch`; the newest ones.
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
        epochs = saved.epochs or _later((), saved.epoch)  # an older version wrote the last one only
        own = cls(path, saved.epoch, saved.line, mark, saved.acknowledged, saved.doubt, epochs)
        if not saved.store:
            own.save(saved.epoch, saved.line)
        return own

    def save(self, epoch: int, line: str, acknowledged: int = 0) -> None:
        """Record that the log is part of this epoch; on disk when this returns. Raises: OSError."""
        epochs = _later(self.epochs if line == self.line else (), epoch)
        snapshot.save(self.path, _Saved(epoch, line, self.store, acknowledged, self.doubt, epochs))
        self.epoch, self.line, self.acknowledged, self.epochs = epoch, line, acknowledged, epochs

    def note_doubt(self, doubt: str) -> None:
        """Record why the store may lack acknowledged messages; on disk when this returns. Raises: OSError."""
        if doubt != self.doubt:
            self.doubt = doubt
            self.save(self.epoch, self.line, self.acknowledged)


def _later(epochs: tuple[int, ...], epoch: int) -> tuple[int, ...]:
    """Return the epochs with another one; 0 is none."""
    return (*(each for each in epochs if each != epoch), *([epoch] if epoch else []))[-_MOST:]
