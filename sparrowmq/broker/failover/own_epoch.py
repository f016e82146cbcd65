"""What a member knows of itself without etcd: of which epoch its log was last part, and the mark of its store.

`epoch` means: this log is the beginning of that of the master of this epoch, or was when it was written down. It is
raised before the first byte of that epoch is appended (a follower's), or taken (a master's).

`acknowledged` is what a master knows at its end: all that were in sync had the log up to there. So a successor whose
epoch begins before that has lost messages, and nothing is cut for it.
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
    """`load` it.

    Attributes:
        epoch: 0 if the log never was part of one.
        line: the mark of the line of epochs (group_state.py).
        store: a mark that no other store has.
        acknowledged: up to where others had the log when its time as a master ended; 0 once another one is followed.
    """

    path: Path
    epoch: int
    line: str
    store: str
    acknowledged: int = 0

    @classmethod
    def load(cls, folder: Path) -> OwnEpoch:
        """What the folder of a broker's configuration has. Raises: BadStore, OSError."""
        path = folder / "epoch.json"
        saved = snapshot.load(path, _Saved) or _Saved()
        own = cls(path, saved.epoch, saved.line, saved.store or os.urandom(8).hex(), saved.acknowledged)
        if not saved.store:
            own.save(saved.epoch, saved.line)
        return own

    def save(self, epoch: int, line: str, acknowledged: int = 0) -> None:
        """It is part of this epoch now; on disk once this returns. Raises: OSError."""
        snapshot.save(self.path, _Saved(epoch, line, self.store, acknowledged))
        self.epoch, self.line, self.acknowledged = epoch, line, acknowledged
