"""A store made from a copy, once all of the copy is known to be sound.

    copy        each file to `STORE.unfinished`, and compare the digest of what arrived with the manifest
    check       config, every record, each queue against the log (check.py)
    rename      to STORE

So a damaged copy leaves no store. `salvage` makes a store of it nevertheless, and says what is missing:

    a log file that is missing, or too short    zeros in its place
    damaged files of queues, all of an index    deleted, and built again from the log
    a JSON file that cannot be read             its older content, if that can be read; else it is deleted
    damaged records                             fenced off, as `store repair` does; consumers pass over them
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from sparrowmq.core import snapshot
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import BadStore
from sparrowmq.store.care import manifest as manifests
from sparrowmq.store.care.backup import paths
from sparrowmq.store.care.check import verify
from sparrowmq.store.care.copier import copy_file, growing_folder, remove
from sparrowmq.store.care.manifest import Manifest, config_problems, decode_any_json, is_copy
from sparrowmq.store.care.progress import Watch
from sparrowmq.store.care.repair import repair
from sparrowmq.store.layout import Layout, parse_offset_name
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.log.set_aside import LOST, set_aside_ranges
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import StoreLock, Vfs

_LOG: Final = "commitlog"


def restore(
    source: Path | str,
    settings: StoreSettings,
    vfs: Vfs,
    watch: Watch | None = None,
    *,
    report: Callable[[str], object] = lambda _: None,
    salvage: bool = False,
) -> None:
    """Create the store of a stopped broker from a copy that `backup` made. With `salvage`, make one of a damaged copy
    too. `report` is called with each problem, and with what is missing of the store.

    Raises: BadStore, there is no such copy, it is damaged, or the folder of the new store is not empty; DiskFull.
    """
    root = str(source)
    if settings.commit_log_path is not None:
        raise BadStore("storePathCommitLog is set: restore without it, and move commitlog there afterwards")
    if not is_copy(vfs, root):
        raise BadStore(f"{source} is not a finished copy of `store backup`")
    lock = StoreLock(vfs, Layout.of(root))
    try:
        with growing_folder(vfs, settings.layout.root) as growing:
            of_new = replace(settings, path=growing)
            work = _Restore(root, of_new, vfs, watch, report)
            work.copy()
            work.check()
            if work.problems and not salvage:
                problems = counted(work.problems, "problem")
                raise BadStore(
                    f"{source} is damaged ({problems}), so no store was created: restore another backup, or take the "
                    "store of a slave; --salvage restores what is sound"
                )
            if work.problems:
                work.salvage()
    finally:
        lock.close()


class _Restore:
    """One restore into a folder that grows."""

    def __init__(
        self, source: str, of_new: StoreSettings, vfs: Vfs, watch: Watch | None, report: Callable[[str], object]
    ) -> None:
        self.problems = 0  # the number of problems that were found
        self._source = source
        self._settings = of_new
        self._vfs = vfs
        self._watch = watch
        self._report = report
        self._manifest: Manifest | None = None
        self._damaged: set[str] = set()

    def copy(self) -> None:
        vfs = self._vfs
        try:
            self._manifest = manifests.load(vfs, self._source)
        except BadStore as bad:
            self._note(str(bad))
        files = self._manifest.by_path() if self._manifest is not None else {}
        for path in sorted(files) or paths(vfs, self._source):
            if os.path.basename(path).startswith("epoch.json"):  # the mark of another store
                continue
            to = os.path.join(self._settings.layout.root, path)
            vfs.make_folder(os.path.dirname(to))
            problem = ""
            try:
                copy_file(vfs, os.path.join(self._source, path), to)
            except FileNotFoundError:
                problem = f"{os.path.join(self._source, path)} is missing"
            except OSError as error:
                problem = f"{os.path.join(self._source, path)} cannot be read: {error.strerror}"
            if path in files and not problem:
                problem = manifests.problem(vfs, self._settings.layout.root, files[path])
                problem = problem.replace(self._settings.layout.root, self._source, 1)
            if problem:
                self._damaged.add(path)
                self._note(problem)
        self._sync_folders(self._settings.layout.root)

    def check(self) -> None:
        root = self._settings.layout.root
        for problem in [*config_problems(root), *verify(self._settings, self._vfs, self._watch, reads_index=False)]:
            self._note(problem.replace(root, self._source))

    def salvage(self) -> None:
        """Make a sound store of what was copied. Raises: BadStore, that is not possible."""
        vfs, layout = self._vfs, self._settings.layout
        self._fill_log()
        for path in self._damaged:
            part = path.partition(os.sep)[0]
            if part not in (_LOG, "config"):
                remove(vfs, os.path.join(layout.root, part if part == "index" else path))
        for config_file in Path(layout.root, "config").glob("*.json"):
            self._drop_unreadable(config_file)
        if self._repair() is not None:
            for folder in (layout.consume_queue, layout.index):
                remove(vfs, folder)
            remaining_problem = self._repair()
            if remaining_problem is not None:
                raise BadStore(f"{self._source} cannot be restored: {remaining_problem}")
        for begin, end in [*set_aside_ranges(vfs, layout, "damaged"), *set_aside_ranges(vfs, layout, LOST)]:
            self._report(f"missing: the messages from offset {begin} to {end} of the log")
        self._report_ends()

    def _repair(self) -> str | None:
        """Fence damaged records off; return a problem that is left, if any."""
        repair(self._settings, self._vfs)
        return next(verify(self._settings, self._vfs, self._watch), None)

    def _report_ends(self) -> None:
        """Say what is missing at both ends of the log."""
        if self._manifest is None:
            return
        settings, manifest = self._settings, self._manifest
        log = LogReader.open(settings, self._vfs)
        begin, end = log.begin, log.last_used_byte(log.begin)
        log.close()
        if begin > manifest.begin:
            self._report(f"missing: the messages from offset {manifest.begin} to {begin} of the log, its begin")
        if end < manifest.end:
            self._report(f"missing: the messages from offset {end} to {manifest.end} of the log, its end")

    def _fill_log(self) -> None:
        """Put zeros in place of what log files lack, if an earlier one is there."""
        vfs, size = self._vfs, self._settings.commit_log_file_size
        folder = self._settings.layout.commit_log
        damaged_names = {path.rpartition(os.sep)[2] for path in self._damaged if path.startswith(_LOG + os.sep)}
        existing = vfs.list_folder(folder)
        for name in sorted(damaged_names.union(existing)):
            path = os.path.join(folder, name)
            if parse_offset_name(name) is None or name < min(existing, default=name):
                continue
            file = vfs.open(path, True) if name in existing else vfs.create(path, size, allocate=False)
            if file.size != size:
                vfs.truncate(file, size)
            vfs.close(file)

    def _drop_unreadable(self, path: Path) -> None:
        try:
            snapshot.load(path, decode=decode_any_json)
        except BadStore:
            for copy in Path(path.parent).glob(f"{path.name}*"):
                self._vfs.unlink(str(copy))
            self._report(f"missing: {path.name}, with its content")

    def _note(self, problem: str) -> None:
        self.problems += 1
        self._report(problem)

    def _sync_folders(self, folder: str) -> None:
        for name in self._vfs.list_folder(folder):
            if os.path.isdir(path := os.path.join(folder, name)):
                self._sync_folders(path)
        self._vfs.sync_folder(folder)
