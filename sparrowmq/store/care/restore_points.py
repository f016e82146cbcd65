"""A backup folder: several copies of one store, each of a moment, which share the files that have not changed.

    backup/
      20261122T034500Z/        a restore point: a whole copy with its manifest, named after the time when it was begun
      20261123T034500Z/        the next one: full files of the log, the queues and the index are links to those above
      20261124T034500Z.unfinished/     grows, or was left by a process that was killed: the next backup deletes it

Each point can be restored, checked and deleted by itself. A backup changes no file of an earlier point.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from sparrowmq.errors import BadStore
from sparrowmq.store.care import manifest as manifests
from sparrowmq.store.care.backup import backup
from sparrowmq.store.care.copying import UNFINISHED, Earlier, remove
from sparrowmq.store.progress_vfs import Watch
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import File, Vfs

log = logging.getLogger(__name__)

_TIME: Final = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class Added:
    """A new restore point."""

    path: str  # its folder
    end: int  # the offset at which its log ends
    linked: int  # the number of files that it shares with the point before
    copied: int  # the number of files that are its own
    dropped: list[str]  # the names of older points that were deleted


class RestorePoints:
    def __init__(self, vfs: Vfs, folder: Path | str) -> None:
        self._vfs = vfs
        self._folder = str(folder)

    def names(self) -> list[str]:
        names = self._vfs.list_folder(self._folder)
        return [name for name in names if _is_point(name) and self._has_manifest(name)]

    def path(self, name: str | None = None) -> str:
        """Return the folder of a point; of the newest one without a name. Raises: BadStore, there is no such point."""
        names = self.names()
        if name is None and names:
            return os.path.join(self._folder, names[-1])
        if name is None or name not in names:
            wanted = f" {name}" if name is not None else ""
            raise BadStore(f"{self._folder} has no restore point{wanted}; it has {', '.join(names) or 'none'}")
        return os.path.join(self._folder, name)

    def add(
        self,
        settings: StoreSettings,
        now_ms: int,
        *,
        keep: int | None = None,
        is_checked: bool = False,
        watch: Watch | None = None,
    ) -> Added:
        """Copy a store to a new point. Files that the newest point has already are linked.

        Args:
            keep: so many points stay; the oldest ones are deleted once the new one is whole.
            is_checked: read the files that are linked, and copy those again that are damaged.
        Raises:
            BadStore: there is no store, the folder has something else than restore points, or another backup into it
                is under way.
            CorruptRecord, DiskFull: as `backup`.
        """
        vfs = self._vfs
        self._demand_own()
        vfs.make_folder(self._folder)
        lock = self._locked()
        try:
            self._clean()
            names = self.names()
            name = _following(names[-1] if names else None, now_ms)
            earlier = self._earlier(names, is_checked)
            to = os.path.join(self._folder, name)
            end = backup(settings, to, vfs, watch, earlier)
            dropped = names[: max(len(names) + 1 - keep, 0)] if keep is not None else []
            for each in dropped:
                self._drop(each)
        finally:
            vfs.close(lock)
        files = manifests.load(vfs, to)
        count = len(files.files) if files is not None else 0
        linked = earlier.linked if earlier is not None else 0
        return Added(to, end, linked, count - linked, dropped)

    def _demand_own(self) -> None:
        """Check that a new point may be put into the folder. Raises: BadStore."""
        if os.path.isfile(self._folder):
            raise BadStore(f"{self._folder} is a file; choose a folder")
        others = [name for name in self._vfs.list_folder(self._folder) if not _is_ours(name)]
        if others:
            raise BadStore(
                f"{self._folder} holds {others[0]}, which is no restore point; choose a new folder, or one that only "
                "`store backup` uses"
            )

    def _locked(self) -> File:
        lock = self._vfs.lock_folder(self._folder)
        if lock is None:
            raise BadStore(f"another backup into {self._folder} is under way; try again after its end")
        return lock

    def _clean(self) -> None:
        """Delete what earlier backups left that were killed."""
        for name in self._vfs.list_folder(self._folder):
            if name.endswith(UNFINISHED):
                log.warning("%s is deleted: it is of a backup that was not finished", name)
                remove(self._vfs, os.path.join(self._folder, name))

    def _drop(self, name: str) -> None:
        """Delete a point. It is renamed first, so that half a point never looks like a whole one."""
        path = os.path.join(self._folder, name)
        self._vfs.rename(path, path + UNFINISHED)
        self._vfs.sync_folder(self._folder)
        remove(self._vfs, path + UNFINISHED)

    def _earlier(self, names: list[str], is_checked: bool) -> Earlier | None:
        """The newest point, for links; None without one, or if its manifest is damaged."""
        if not names:
            return None
        folder = os.path.join(self._folder, names[-1])
        try:
            manifest = manifests.load(self._vfs, folder)
        except BadStore as bad:
            log.warning("all files are copied again: %s", bad)
            return None
        assert manifest is not None
        return Earlier(folder, manifest.by_path(), is_checked=is_checked)

    def _has_manifest(self, name: str) -> bool:
        return self._vfs.exists(os.path.join(self._folder, name, manifests.NAME))


def _following(newest: str | None, now_ms: int) -> str:
    """The name of a point that is made now. It comes after the newest one even if the clock was set back."""
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    before = _time_of(newest) if newest is not None else None
    if before is not None and now <= before:
        now = before + timedelta(seconds=1)
    return now.strftime(_TIME)


def _is_point(name: str) -> bool:
    return not name.endswith(UNFINISHED) and _time_of(name) is not None


def _is_ours(name: str) -> bool:
    """Whether a name may be in a backup folder; a disk's own folder may have a few more."""
    return _time_of(name) is not None or name == "lost+found" or name.startswith(".")


def _time_of(name: str) -> datetime | None:
    try:
        return datetime.strptime(name.removesuffix(UNFINISHED), _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
