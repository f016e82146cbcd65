"""Small JSON state on disk that survives a crash at any moment: topics, groups, offsets, a name server's KV.

    save(topics.json)    write topics.json.tmp, sync it
                         rename topics.json      to topics.json.bak
                         rename topics.json.tmp  to topics.json       sync the folder
    load(topics.json)    the first of topics.json, topics.json.tmp, topics.json.bak that is intact

An object ends with a checksum of all before it, `,"checksum":"1c291ca3"}`, which Java ignores. So a flipped digit is
damage, not another offset. Java's own files have no checksum and are accepted.

A file `spare` in the same folder only reserves room. On a full disk it shrinks by the size of the new file, in small
steps, as other programs may take the freed room. broker/saved_state.py fills it again later.

`.tmp` comes before `.bak`: a complete one is the newest, and JSON without its end never parses. Java 4.9.8 keeps the
same `.bak` (MixAll.string2File).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
from zlib import crc32

import msgspec

from sparrowmq.errors import BadStore

T = TypeVar("T")
SPARE: Final = "spare"
OWNER_ONLY: Final = 0o600
_BLOCK_BYTES: Final = 8192  # beyond the content: a file takes whole blocks
_CHECKSUM_AT_END: Final = re.compile(rb',?"checksum":"([0-9a-f]{8})"}\s*$')
_ABSENT_TEXT: Final = "it is missing or empty"
_CHECKSUM_BYTES: Final = 64
_FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)


def save(
    path: Path, value: object, *, encode: Callable[[Any], bytes] = msgspec.json.encode, is_secret: bool = False
) -> None:
    """Replace the file's content; once this returns the new content is on disk. With `is_secret`, only the owner can
    read it. Raises: OSError, the old content is still what `load` finds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    written, content, mode = _sibling(path, ".tmp"), with_checksum(encode(value)), OWNER_ONLY if is_secret else None
    try:
        write_synced(written, content, mode)
    except OSError as error:
        if error.errno not in _FULL_ERRNOS or not _shrink_spare(path.parent, len(content)):
            raise
        write_synced(written, content, mode)
    if path.exists():
        os.replace(path, _sibling(path, ".bak"))
    os.replace(written, path)
    sync(path.parent)


def load(
    path: Path,
    value_type: type[T] = dict,  # type: ignore[assignment]
    *,
    decode: Callable[[bytes, type[T]], T] | None = None,
    report: Callable[[str], object] = lambda _: None,
) -> T | None:
    """Load the last saved state; None if there is none. `decode` reads other dialects of JSON; it raises ValueError if
    it cannot. `report` is called with a message if a copy replaces a damaged file. Raises: BadStore, neither the file
    nor its copies are intact.
    """
    problems: list[str] = []
    for candidate in (path, _sibling(path, ".tmp"), _sibling(path, ".bak")):
        content = _read(candidate)
        if not content.strip(b"\0 \r\n\t"):
            if candidate is path:
                problems.append(_ABSENT_TEXT)
            continue
        try:
            state = (decode or _decode)(without_checksum(content), value_type)
        except ValueError as error:  # msgspec's and JSON's errors are ValueErrors.
            problems.append(f"{candidate.name}: {error}")
            continue
        if problems and not candidate.name.endswith(".tmp"):
            report(
                f"{path} is damaged ({'; '.join(problems)}); {candidate.name} is used instead, so the last changes may "
                "be missing: compare it, or restore the file from a backup"
            )
        return state
    if problems and problems != [_ABSENT_TEXT]:
        raise BadStore(
            f"{path} cannot be read, nor can its copies ({'; '.join(problems)}); "
            "restore it from a backup, or delete them all to start without that state"
        )
    return None


def delete(path: Path) -> None:
    """Delete the file and its copies, the newest one last. Raises: OSError."""
    for copy in (_sibling(path, ".bak"), _sibling(path, ".tmp"), path):
        copy.unlink(missing_ok=True)
    sync(path.parent)


def peek(path: Path, value_type: type[T], decode: Callable[[bytes, type[T]], T]) -> tuple[T, bool] | None:
    """Return the content of this file alone, and whether it has a checksum; None if it cannot be read."""
    try:
        content = path.read_bytes()
        state = decode(without_checksum(content), value_type)
    except (OSError, ValueError):
        return None
    return state, _CHECKSUM_AT_END.search(content, max(len(content) - _CHECKSUM_BYTES, 0)) is not None


def with_checksum(content: bytes) -> bytes:
    """Return JSON, with its checksum if it is an object."""
    head = content.rstrip()[:-1]
    if not content.rstrip().endswith(b"}"):
        return content
    comma = b"" if head.endswith(b"{") else b","
    return b"".join((head, comma, b'"checksum":"%08x"}' % crc32(head)))


def without_checksum(content: bytes) -> bytes:
    """Return the content without its checksum, if it has one. Raises: ValueError, the checksum is wrong."""
    seal = _CHECKSUM_AT_END.search(content, max(len(content) - _CHECKSUM_BYTES, 0))
    if seal is None:
        return content
    head = content[: seal.start()]
    if crc32(head) != int(seal[1], 16):
        raise ValueError("its checksum does not match its content (remove the checksum after a change by hand)")
    return head + b"}"


def _decode(content: bytes, kind: type[T]) -> T:
    return msgspec.json.decode(content, type=kind)


def _sibling(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise BadStore(f"{path} cannot be read ({error.strerror}); check its owner and permissions") from error


def write_synced(path: Path, content: bytes, mode: int | None = None) -> None:
    """Write a file to disk, with the usual permissions or those of `mode`. Raises: OSError, there is no file."""
    try:
        with open(path, "wb", opener=partial(os.open, mode=0o666 if mode is None else OWNER_ONLY)) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)  # while it is still empty
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # of a full disk
            error.filename = str(path)
        raise


def _shrink_spare(folder: Path, needed_bytes: int) -> bool:
    """Give up room that was kept back; whether there was some."""
    spare = folder / SPARE
    try:
        size = spare.stat().st_size
        os.truncate(spare, max(size - needed_bytes - _BLOCK_BYTES, 0))
    except OSError:
        return False
    return size > 0


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk: a power cut may undo a rename before. Raises: OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
