"""The manifest of a copy of a store: each of its files, with size and digest. It says whether the copy is whole.

    {"version":1,"made_ms":...,"begin":0,"end":4972,"files":[
      {"path":"checkpoint","size":4096,"digest":"...","source":null},
      {"path":"commitlog/00000000000000000000","size":1073741824,"digest":"...","source":[1073741824,...,...]}
    ],"digest":"..."}

    begin, end      the offsets of the copy's log
    digest          of a file: SHA-256 over its parts of 1 MiB that are not all zeros, each after its number in 8 bytes.
                    So holes cost nothing, and do not matter. Of the manifest: SHA-256 over all bytes before it
    source          the stamp of the file that was copied, if that one is full. Its content never changes then, and the
                    next backup can link the copy instead of copying the file again

The manifest is written last, once all files are on disk. Files that it does not name are no part of the copy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from sparrowmq.core import snapshot
from sparrowmq.errors import BadStore
from sparrowmq.protocol.wire import json
from sparrowmq.store.care.check import verify
from sparrowmq.store.care.progress import Watch
from sparrowmq.store.layout import Layout
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import File, Stamp, Vfs, closing, content_of

NAME: Final = "manifest.json"
_VERSION: Final = 1
_PART_BYTES: Final = 1 << 20
_ZEROS: Final = bytes(_PART_BYTES)
_DIGEST_AT_END: Final = re.compile(rb',"digest":"([0-9a-f]{64})"}\n$')


class Copied(msgspec.Struct, frozen=True):
    """A file of a copy; its path is below the folder of the copy."""

    path: str
    size: int
    digest: str
    source: Stamp | None = None


class Manifest(msgspec.Struct, frozen=True):
    made_ms: int
    begin: int
    end: int
    files: list[Copied]
    version: int = _VERSION

    def by_path(self) -> dict[str, Copied]:
        return {file.path: file for file in self.files}


def save(vfs: Vfs, folder: str, manifest: Manifest) -> None:
    """Write the manifest of a copy whose files are on disk, and return once it is on disk. Raises: DiskFull."""
    head = msgspec.json.encode(manifest)[:-1]
    content = b'%s,"digest":"%s"}\n' % (head, sha256(head).hexdigest().encode())
    with closing(vfs, vfs.create(os.path.join(folder, NAME), len(content), allocate=False)) as file:
        vfs.write(file, 0, content)
        vfs.sync(file)
    vfs.sync_folder(folder)


def load(vfs: Vfs, folder: str) -> Manifest | None:
    """Return the manifest of a copy; None if there is none. Raises: BadStore, it is damaged, or of a later version."""
    path = os.path.join(folder, NAME)
    try:
        content = content_of(vfs, path)
    except FileNotFoundError:
        return None
    seal = _DIGEST_AT_END.search(content)
    if seal is None or sha256(content[: seal.start()]).hexdigest().encode() != seal[1]:
        raise BadStore(f"{path} is damaged: its digest does not match its content")
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError as error:
        raise BadStore(f"{path} is damaged: {error}") from error
    if manifest.version != _VERSION:
        raise BadStore(f"{path} is of version {manifest.version}, which a later SparrowMQ wrote: use that SparrowMQ")
    return manifest


def digest(vfs: Vfs, path: str) -> str:
    hash_of_parts = sha256()
    with closing(vfs, vfs.open(path, writable=False)) as file:
        for number in _used_parts(vfs, file):
            part = vfs.read(file, number * _PART_BYTES, _PART_BYTES)
            if part != _ZEROS[: len(part)]:
                hash_of_parts.update(number.to_bytes(8, "big"))
                hash_of_parts.update(part)
    return hash_of_parts.hexdigest()


def _used_parts(vfs: Vfs, file: File) -> Iterator[int]:
    following = 0
    for begin, end in vfs.used_parts(file, 0):
        for number in range(max(begin // _PART_BYTES, following), -(-end // _PART_BYTES)):
            following = number + 1
            yield number


def problem(vfs: Vfs, folder: str, expected: Copied) -> str:
    """Return what is wrong with a file of a copy; "" if nothing is."""
    path = os.path.join(folder, expected.path)
    try:
        size = vfs.size(path)
        if size != expected.size:
            return f"{path} has {size} bytes, the manifest says {expected.size}"
        if digest(vfs, path) != expected.digest:
            return f"{path} is damaged: its digest is not that of the manifest"
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return ""


def copy_problems(settings: StoreSettings, vfs: Vfs, watch: Watch | None = None) -> Iterator[str]:
    """Yield each problem of the copy at the path of the settings. It reads all of it, and changes nothing.

        manifest     it is sound; each of its files is there, with its size and its digest
        config       each JSON file can be read, without help of the older content beside it
        the store    every record by its checksums, shape and place, and the queues against the log (check.py)

    A copy of an older SparrowMQ has no manifest: then only its config and its store are checked.
    """
    settings = replace(settings, commit_log_path=None)
    root = settings.layout.root
    yield from file_problems(vfs, root, watch or (lambda *_: None))
    yield from config_problems(root)
    yield from verify(settings, vfs, watch, reads_index=False)


def is_copy(vfs: Vfs, root: str) -> bool:
    """Whether a folder has a copy that a backup made and finished, of any version."""
    layout = Layout.of(root)
    if has_manifest(vfs, root):
        return True
    return vfs.exists(layout.commit_log) and vfs.exists(layout.checkpoint) and not vfs.exists(layout.abort)


def has_manifest(vfs: Vfs, root: str) -> bool:
    return vfs.exists(os.path.join(root, NAME))


def file_problems(vfs: Vfs, root: str, watch: Watch) -> Iterator[str]:
    try:
        manifest = load(vfs, root)
    except BadStore as bad:
        yield str(bad)
        return
    if manifest is None:
        return
    done_bytes, total = 0, sum(file.size for file in manifest.files)
    for file in manifest.files:
        watch("comparing digests", done_bytes, total)
        if file_problem := problem(vfs, root, file):
            yield file_problem
        done_bytes += file.size


def config_problems(root: str) -> Iterator[str]:
    folder = Path(root, "config")
    for path in sorted(folder.glob("*.json")):
        problems: list[str] = []
        try:
            snapshot.load(path, dict, decode=decode_any_json, report=problems.append)
        except BadStore as bad:
            problems.append(str(bad))
        yield from problems


def decode_any_json(content: bytes, _kind: type[dict[Any, Any]]) -> dict[Any, Any]:
    value = json.loads(content)
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value
