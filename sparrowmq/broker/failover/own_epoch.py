"""A member's record of itself, independent of etcd: the last epoch that its log was part of, and its store's mark.

`epoch` means: when this was written, this log was the beginning of the log of that epoch's master. A follower raises it
before it appends the first byte of that epoch, a master before it accepts one.

`acknowledged` is what a master records when its epoch ends: the offset up to which all members in sync had the log. If
a successor's epoch begins before that offset, the successor has lost messages, and this log is not cut for it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sparrowmq import snapshot


class _Saved(msgspec.Struct):
    epoch: int = 0
    line: str = ""
    store: str = ""
    acknowledged: int = 0


@dataclass(slots=True)
class OwnEpoch:
    """The record; `load` reads it.

    Attributes:
        epoch: 0 if the log was never part of one.
        line: the mark of the line of epochs (group_state.py).
        store: a mark that no other store has.
        acknowledged: the offset that the other members had when this master's epoch ended; 0 once it follows another.
    """

    path: Path
    epoch: int
    line: str
    store: str
    acknowledged: int = 0

    @classmethod
    def load(cls, folder: Path) -> OwnEpoch:
        """Read the record from the folder of a broker's configuration. Raises: BadStore, OSError."""
        path = folder / "epoch.json"
        saved = snapshot.load(path, _Saved) or _Saved()
        own = cls(path, saved.epoch, saved.line, saved.store or os.urandom(8).hex(), saved.acknowledged)
        if not saved.store:
            own.save(saved.epoch, saved.line)
        return own

    def save(self, epoch: int, line: str, acknowledged: int = 0) -> None:
        """Record that the log is part of this epoch; on disk when this returns. Raises: OSError."""
        snapshot.save(self.path, _Saved(epoch, line, self.store, acknowledged))
        self.epoch, self.line, self.acknowledged = epoch, line, acknowledged
