"""Verify a copy of a store: yield each problem as a sentence, or nothing if the copy is whole.

    manifest     it is sound; each of its files is there, with its size and its digest
    config       each JSON file can be read, without help of the older content beside it
    the store    every record by its checksums, shape and place, and the queues against the log (agreement.py)

A copy of an older SparrowMQ has no manifest: then only its config and its store are checked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparrowmq.core import snapshot
from sparrowmq.errors import BadStore
from sparrowmq.protocol.wire import json
from sparrowmq.store.care import manifest as manifests
from sparrowmq.store.care.agreement import agree
from sparrowmq.store.care.check import verify
from sparrowmq.store.layout import Layout
from sparrowmq.store.progress_vfs import Watch
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Vfs


def copy_problems(settings: StoreSettings, vfs: Vfs, watch: Watch | None = None) -> Iterator[str]:
    """Yield each problem of the copy at the path of the settings. It reads all of it, and changes nothing."""
    settings = replace(settings, commit_log_path=None)
    root = settings.layout.root
    yield from file_problems(vfs, root, watch or (lambda *_: None))
    yield from config_problems(root)
    if not agree(settings, vfs, watch):
        yield from verify(settings, vfs, watch)


def is_copy(vfs: Vfs, root: str) -> bool:
    """Whether a folder has a copy that a backup made and finished, of any version."""
    found = Layout.of(root)
    if has_manifest(vfs, root):
        return True
    return vfs.exists(found.commit_log) and vfs.exists(found.checkpoint) and not vfs.exists(found.abort)


def has_manifest(vfs: Vfs, root: str) -> bool:
    return vfs.exists(os.path.join(root, manifests.NAME))


def file_problems(vfs: Vfs, root: str, watch: Watch) -> Iterator[str]:
    """Compare all files of a copy with its manifest, if it has one."""
    try:
        manifest = manifests.load(vfs, root)
    except BadStore as bad:
        yield str(bad)
        return
    if manifest is None:
        return
    done, total = 0, sum(file.size for file in manifest.files)
    for file in manifest.files:
        watch("comparing digests", done, total)
        if problem := manifests.problem(vfs, root, file):
            yield problem
        done += file.size


def config_problems(root: str) -> Iterator[str]:
    """Read the JSON files of a store's broker."""
    folder = Path(root, "config")
    for path in sorted(folder.glob("*.json")):
        found: list[str] = []
        try:
            snapshot.load(path, dict, decode=plain, tell=found.append)
        except BadStore as bad:
            found.append(str(bad))
        yield from found


def plain(content: bytes, _kind: type[dict[Any, Any]]) -> dict[Any, Any]:
    """Read JSON in any of its dialects. Raises: ValueError."""
    value = json.loads(content)
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return value
