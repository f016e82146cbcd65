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

Files that are deleted meanwhile are the oldest of the log or of a queue, or all of a deleted topic. The files that were
copied before such a hole are deleted from the copy too.

With an earlier copy, files that are full and have not changed since are linked instead (copying.py). Their records were
checked when they were copied, and are not read again.

The failover state of a broker is not copied (`config/epoch.json`, own_epoch.py). It has the mark of that store, and
says what the store's log is part of. A copy is another store, and lacks messages a moment later. With the mark, it
would take the lease of the broker that it was copied from.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

from sparrowmq.errors import BadStore, CorruptRecord
from sparrowmq.loop.clock import SystemClock
from sparrowmq.store.care import manifest as manifests
from sparrowmq.store.care.copying import Copy, Earlier, OwnFiles, unfinished
from sparrowmq.store.care.manifest import Copied, Manifest
from sparrowmq.store.layout import Layout
from sparrowmq.store.log.scrub import look
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.progress_vfs import Watch
from sparrowmq.store.store_settings import CorruptPolicy, StoreSettings
from sparrowmq.store.vfs import Stamp, Vfs

log = logging.getLogger(__name__)

_NOT_OF_COPY: Final = ("lock", manifests.NAME)
_GROWING: Final = ("commitlog", "consumequeue", "index")  # only the last file of a folder in them changes


def backup(
    settings: StoreSettings,
    to: Path | str,
    vfs: Vfs,
    watch: Watch | None = None,
    earlier: Earlier | None = None,
) -> int:
    """Copy a store to a new folder, and return the end of the copy's log. The store's broker may be running.

    With corruptPolicy=quarantine damaged records are copied as they are, and a warning is logged.

    Args:
        watch: called with the progress of the checks.
        earlier: a copy of the same store on the same disk, for files that have not changed.
    Raises:
        BadStore: there is no store, or `to` is not empty.
        CorruptRecord: bytes that had been on disk are damaged, anywhere in the log; repair the store first.
        DiskFull: there is no room for the copy.
    """
    layout, watch = settings.layout, watch or (lambda *_: None)
    if not vfs.exists(layout.commit_log):
        raise BadStore(f"there is no store at {settings.path}: {layout.commit_log} is not there")
    with unfinished(vfs, str(to)) as growing:
        made = Layout.of(growing)
        copy = Copy(vfs, settings, growing, earlier)
        config, queues, index, timers, of_log = zip(sources(layout), sources(made), strict=True)
        copy.tree(*config)
        copy.checkpoint(layout.checkpoint, made.checkpoint)
        copy.queues(*queues)
        copy.tree(*index)
        copy.tree(*timers)
        copy.row(*of_log, settings.commit_log_file_size)
        vfs.close(vfs.create(made.abort, 0, allocate=False))
        linked = {os.path.join(growing, path) for path in copy.linked}
        own = OwnFiles(vfs, set(linked))
        of_copy = replace(settings, path=growing, commit_log_path=None)
        with MessageStore.open(of_copy, vfs=cast("Vfs", own)) as store:
            _look(store, layout, linked - own.written, watch)
            begin, end = store.begin, store.end
        if vfs.exists(made.abort):
            raise BadStore(f"the copy in {growing} could not be closed in order; the log says why")
        unchanged = {path: file for path, file in copy.linked.items() if _is_kept(growing, path, own)}
        stamps = {path: stamp for path, stamp in copy.stamps.items() if _is_kept(growing, path, own)}
        files = list(_files(vfs, growing, unchanged, stamps, watch))
        manifests.save(vfs, growing, Manifest(SystemClock().now_ms(), begin, end, files))
    return end


def _is_kept(root: str, path: str, own: OwnFiles) -> bool:
    """Whether a file of the copy still has the content of its source."""
    return os.path.join(root, path) not in own.written


def _files(
    vfs: Vfs, root: str, linked: Mapping[str, Copied], stamps: Mapping[str, Stamp], watch: Watch
) -> Iterator[Copied]:
    """Yield all files of a copy, with the digests of those that were copied."""
    folders = defaultdict(list)
    for path in paths(vfs, root):
        folders[os.path.dirname(path)].append(path)
    fresh = {path: vfs.size(os.path.join(root, path)) for each in folders.values() for path in each}
    done, total = 0, sum(size for path, size in fresh.items() if path not in linked)
    for folder, names in folders.items():
        is_growing = folder.partition(os.sep)[0] in _GROWING
        for path in names:
            source = stamps.get(path) if is_growing and path != names[-1] else None
            if path in linked:
                yield Copied(path, fresh[path], linked[path].digest, source)
                continue
            watch("noting the digests", done, total)
            yield Copied(path, fresh[path], manifests.digest(vfs, os.path.join(root, path)), source)
            done += fresh[path]


def paths(vfs: Vfs, root: str, below: str = "") -> Iterator[str]:
    """Yield the paths of all files of a copy, from its folder on, in the order of their names."""
    for name in vfs.list_folder(os.path.join(root, below)):
        path = os.path.join(below, name)
        if os.path.isdir(os.path.join(root, path)):
            yield from paths(vfs, root, path)
        elif path not in _NOT_OF_COPY:
            yield path


def _look(store: MessageStore, source: Layout, linked: set[str], watch: Watch) -> None:
    """Compare each record of a copy with its checksums, except those of linked files.

    Raises: CorruptRecord, names the file of the source.
    """
    copied = store.scrubber.log
    at = copied.begin
    while at < copied.written:
        watch("checking the copy", at - copied.begin, copied.written - copied.begin)
        file = copied.row.find(at)
        if file is not None and at == file.begin and file.path in linked:
            at = file.end
            continue
        at, problem = look(copied, at)
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
    """The folders that a backup copies, in their order."""
    config = os.path.join(layout.root, "config")
    return [config, layout.consume_queue, layout.index, layout.timers, layout.commit_log]
