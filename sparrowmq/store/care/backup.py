"""A consistent copy of a store while its broker runs.

A copy takes time, and the broker goes on working meanwhile. So the copy is like a store after a crash, and is recovered
like one. The order of copying makes this possible:

    config       the consumer offsets of groups: never ahead of the log, which is copied later
    checkpoint   the offsets up to which queues, index and log are on disk: files that are copied later have more
    queues, index, timers
    the log      up to its end, perhaps in the middle of a record, which is a torn tail
    recovery     of the copy, as of a store whose broker was killed
    a check      of each record of the copy's log: recovery checks only the log's end, and messages that no client has
                 read for years may have bit rot; an unchecked, damaged copy could replace one that was whole
    manifest     of all files, with their digests (manifest.py)

Files that are deleted meanwhile are the oldest of the log or of a queue, or all of a deleted topic. The copies before
such a hole are deleted too. With an earlier copy, files that are full and have not changed since are linked instead
(copier.py), and not checked again.

The failover state of a broker (`config/epoch.json`, group_state.py) is not copied. With it, the copy would take the
lease of the broker that it was copied from, though it lacks messages a moment later.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, cast

from sparrowmq.errors import BadStore, CorruptRecord
from sparrowmq.loop.clock import SystemClock
from sparrowmq.store.care import manifest as manifests
from sparrowmq.store.care.copier import UNFINISHED, Copy, CopyOnWriteDisk, EarlierCopy, growing_folder, remove
from sparrowmq.store.care.manifest import Copied, Manifest
from sparrowmq.store.care.progress import Watch
from sparrowmq.store.layout import Layout
from sparrowmq.store.log.scrub import check_records
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import CorruptPolicy, StoreSettings
from sparrowmq.store.vfs import Stamp, Vfs

log = logging.getLogger(__name__)

_FILES_NOT_COPIED: Final = ("lock", manifests.NAME)
_TIME_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_GROWING_FOLDERS: Final = ("commitlog", "consumequeue", "index")  # only the last file of a folder in them changes


def backup(
    settings: StoreSettings, to: Path | str, vfs: Vfs, watch: Watch | None = None, earlier: EarlierCopy | None = None
) -> int:
    """Copy a store to a new folder, and return the end of the copy's log. The store's broker may be running. With
    corruptPolicy=quarantine damaged records are copied as they are. `earlier` is a copy on the same disk, for files
    that have not changed.

    Raises: BadStore, there is no store, or `to` is not empty; CorruptRecord, bytes anywhere in the log are damaged:
    repair the store first; DiskFull.
    """
    layout, watch = settings.layout, watch or (lambda *_: None)
    if not vfs.exists(layout.commit_log):
        raise BadStore(f"there is no store at {settings.path}: {layout.commit_log} is missing")
    with growing_folder(vfs, str(to)) as growing:
        copy_layout = Layout.of(growing)
        copy = Copy(vfs, settings, growing, earlier)
        config, queues, index, timers, log_folders = zip(sources(layout), sources(copy_layout), strict=True)
        copy.copy_tree(*config)
        copy.checkpoint(layout.checkpoint, copy_layout.checkpoint)
        copy.copy_queues(*queues)
        copy.copy_tree(*index)
        copy.copy_tree(*timers)
        copy.copy_row(*log_folders, settings.commit_log_file_size)
        vfs.close(vfs.create(copy_layout.abort, 0, allocate=False))
        linked = {os.path.join(growing, path) for path in copy.linked}
        copy_disk = CopyOnWriteDisk(vfs, set(linked))
        copy_settings = replace(settings, path=growing, commit_log_path=None)
        with MessageStore.open(copy_settings, vfs=cast("Vfs", copy_disk)) as store:
            _check_log(store, layout, linked - copy_disk.written, watch)
            begin, end = store.begin, store.end
        if vfs.exists(copy_layout.abort):
            raise BadStore(f"the copy in {growing} could not be closed in order; the log says why")
        unchanged = {path: file for path, file in copy.linked.items() if _is_unchanged(growing, path, copy_disk)}
        stamps = {path: stamp for path, stamp in copy.stamps.items() if _is_unchanged(growing, path, copy_disk)}
        files = list(_describe_files(vfs, growing, unchanged, stamps, watch))
        manifests.save(vfs, growing, Manifest(SystemClock().now_ms(), begin, end, files))
    return end


def _is_unchanged(root: str, path: str, copy_disk: CopyOnWriteDisk) -> bool:
    return os.path.join(root, path) not in copy_disk.written


def _describe_files(
    vfs: Vfs, root: str, linked: Mapping[str, Copied], stamps: Mapping[str, Stamp], watch: Watch
) -> Iterator[Copied]:
    """Yield all files of a copy, with the digests of those that were copied."""
    folders = defaultdict(list)
    for path in paths(vfs, root):
        folders[os.path.dirname(path)].append(path)
    sizes = {path: vfs.size(os.path.join(root, path)) for folder_paths in folders.values() for path in folder_paths}
    done_bytes, total = 0, sum(size for path, size in sizes.items() if path not in linked)
    for folder, names in folders.items():
        is_growing = folder.partition(os.sep)[0] in _GROWING_FOLDERS
        for path in names:
            source = stamps.get(path) if is_growing and path != names[-1] else None
            if path in linked:
                yield Copied(path, sizes[path], linked[path].digest, source)
                continue
            watch("noting the digests", done_bytes, total)
            yield Copied(path, sizes[path], manifests.digest(vfs, os.path.join(root, path)), source)
            done_bytes += sizes[path]


def paths(vfs: Vfs, root: str, below: str = "") -> Iterator[str]:
    """Yield the paths of all files of a copy, from its folder on, in the order of their names."""
    for name in vfs.list_folder(os.path.join(root, below)):
        path = os.path.join(below, name)
        if os.path.isdir(os.path.join(root, path)):
            yield from paths(vfs, root, path)
        elif path not in _FILES_NOT_COPIED:
            yield path


def _check_log(store: MessageStore, source: Layout, linked: set[str], watch: Watch) -> None:
    """Compare each record of a copy with its checksums, except those of linked files. Raises: CorruptRecord, of the
    source.
    """
    copied = store.scrubber.log
    at = copied.begin
    while at < copied.written:
        watch("checking the copy", at - copied.begin, copied.written - copied.begin)
        file = copied.row.find(at)
        if file is not None and at == file.begin and file.path in linked:
            at = file.end
            continue
        at, problem = check_records(copied, at)
        if problem is None:
            continue
        name = os.path.basename(file.path) if file is not None else ""
        damage = CorruptRecord(os.path.join(source.commit_log, name), at, problem)
        if store.settings.corrupt_policy is not CorruptPolicy.QUARANTINE:
            damage.expected += (
                "; it is not copied; stop the broker and take what is missing from a slave: `sparrowmq store repair "
                "FOLDER --from HOST:PORT`; without one that fences the damage off. corruptPolicy=quarantine copies it"
            )
            raise damage
        log.warning("%s; it is copied as it is", damage)
        at = copied.next_sound(at, copied.written) or copied.written


def sources(layout: Layout) -> list[str]:
    config = os.path.join(layout.root, "config")
    return [config, layout.consume_queue, layout.index, layout.timers, layout.commit_log]


@dataclass(frozen=True, slots=True)
class NewPoint:
    path: str  # its folder
    end: int  # the offset at which its log ends
    linked_count: int  # the number of files that it shares with the point before
    copied_count: int  # the number of files that are its own
    dropped_names: list[str]  # the names of older points that were deleted


class RestorePoints:
    """A backup folder: several copies of one store, each of a moment, which share the files that have not changed.

        backup/
            20261122T034500Z/       a restore point: a whole copy with its manifest, named after the time of its start
            20261123T034500Z/       the next one: full files of log, queues and index are links to those above
            20261124T034500Z.unfinished/    grows, or was left by a killed process: the next backup deletes it

    Each point can be restored, checked and deleted by itself. A backup changes no file of an earlier point.
    """

    def __init__(self, vfs: Vfs, folder: Path | str) -> None:
        self._vfs = vfs
        self._folder = str(folder)

    def names(self) -> list[str]:
        names = self._vfs.list_folder(self._folder)
        return [
            name
            for name in names
            if not name.endswith(UNFINISHED)
            and _time_of(name) is not None
            and self._vfs.exists(os.path.join(self._folder, name, manifests.NAME))
        ]

    def path(self, name: str | None = None) -> str:
        """Return the folder of a point; of the newest one without a name. Raises: BadStore."""
        names = self.names()
        if name is None and names:
            return os.path.join(self._folder, names[-1])
        if name is None or name not in names:
            wanted_name = f" {name}" if name is not None else ""
            raise BadStore(f"{self._folder} has no restore point{wanted_name}; it has {', '.join(names) or 'none'}")
        return os.path.join(self._folder, name)

    def add(
        self,
        settings: StoreSettings,
        now_ms: int,
        *,
        keep: int | None = None,
        is_checked: bool = False,
        watch: Watch | None = None,
    ) -> NewPoint:
        """Copy a store to a new point. Files that the newest point has already are linked; with `is_checked` they are
        read, and copied again if damaged. `keep` so many points; the oldest ones are deleted at the end.

        Raises: BadStore, also if the folder has something else than restore points, or another backup into it is under
        way; CorruptRecord, DiskFull, as `backup`.
        """
        vfs = self._vfs
        self._check_folder()
        vfs.make_folder(self._folder)
        lock = vfs.lock_folder(self._folder)
        if lock is None:
            raise BadStore(f"another backup into {self._folder} is under way; try again after its end")
        try:
            for file_name in vfs.list_folder(self._folder):
                if file_name.endswith(UNFINISHED):
                    log.warning("%s of an unfinished backup is deleted", file_name)
                    remove(vfs, os.path.join(self._folder, file_name))
            names = self.names()
            name = _next_name(names[-1] if names else None, now_ms)
            earlier = self._earlier(names, is_checked)
            to = os.path.join(self._folder, name)
            end = backup(settings, to, vfs, watch, earlier)
            dropped = names[: max(len(names) + 1 - keep, 0)] if keep is not None else []
            for dropped_name in dropped:
                self._drop(dropped_name)
        finally:
            vfs.close(lock)
        files = manifests.load(vfs, to)
        count = len(files.files) if files is not None else 0
        linked = earlier.linked if earlier is not None else 0
        return NewPoint(to, end, linked, count - linked, dropped)

    def _check_folder(self) -> None:
        if os.path.isfile(self._folder):
            raise BadStore(f"{self._folder} is a file; choose a folder")
        other_names = [
            name
            for name in self._vfs.list_folder(self._folder)
            if _time_of(name) is None and name != "lost+found" and not name.startswith(".")  # a disk's own folder
        ]
        if other_names:
            raise BadStore(
                f"{self._folder} contains {other_names[0]}, which is not a restore point; choose a new folder, or one "
                "that only `store backup` uses"
            )

    def _drop(self, name: str) -> None:
        """Delete a point. It is renamed first, so that half a point never looks like a whole one."""
        path = os.path.join(self._folder, name)
        self._vfs.rename(path, path + UNFINISHED)
        self._vfs.sync_folder(self._folder)
        remove(self._vfs, path + UNFINISHED)

    def _earlier(self, names: list[str], is_checked: bool) -> EarlierCopy | None:
        if not names:
            return None
        folder = os.path.join(self._folder, names[-1])
        try:
            manifest = manifests.load(self._vfs, folder)
        except BadStore as bad:
            log.warning("all files are copied again: %s", bad)
            return None
        assert manifest is not None
        return EarlierCopy(folder, manifest.by_path(), is_checked=is_checked)


def _next_name(newest: str | None, now_ms: int) -> str:
    """The name of a point that is made now. It comes after the newest one even if the clock was set back."""
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    newest_time = _time_of(newest) if newest is not None else None
    if newest_time is not None and now <= newest_time:
        now = newest_time + timedelta(seconds=1)
    return now.strftime(_TIME_FORMAT)


def _time_of(name: str) -> datetime | None:
    try:
        return datetime.strptime(name.removesuffix(UNFINISHED), _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
