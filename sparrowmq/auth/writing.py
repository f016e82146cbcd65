"""Replaces a file that holds secrets: whole or not at all, and never for other eyes than before.

    write plain_acl.yml.tmp, with the mode of plain_acl.yml from its first byte on; sync it
    rename plain_acl.yml.tmp to plain_acl.yml; sync the folder

At any moment there is the old file or the new one under the name that a start reads. snapshot.py has a moment with
neither, since its `load` knows of `.tmp` and `.bak`; nobody looks for copies of this one.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_OWNERS_ALONE: Final = 0o600
_ANEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def replace(path: Path, content: bytes) -> None:
    """Give a file another content; behind a link, which stays. One that is not there yet is its owner's alone.

    Raises:
        OSError: it names the file, whose old content is still there; but if its folder could not be synced, the new
            one is, until a power cut perhaps.
    """
    target = path.resolve()
    written = target.with_name(target.name + ".tmp")
    try:
        try:
            _write_synced(written, content, _mode(target))
            os.replace(written, target)
        except BaseException:
            with suppress(OSError):
                written.unlink()
            raise
        _sync_folder(target.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return _OWNERS_ALONE


def _write_synced(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)  # a killed process may have left it, with another mode
    with open(os.open(path, _ANEW, _OWNERS_ALONE), "wb") as file:
        os.fchmod(file.fileno(), mode)  # before there is anything in it; open() goes by the umask
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
