"""Replace a file with secrets: whole or not at all, and never readable for more users than before.

    write plain_acl.yml.tmp, with the mode of plain_acl.yml from its first byte on; sync it
    rename plain_acl.yml.tmp to plain_acl.yml; sync the folder

At any moment the old file or the new one has the name that a start reads. In snapshot.py there is
a moment without both: its `load` also reads `.tmp` and `.bak`, which do not exist here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparrowmq.core.snapshot import sync

_OWNERS_ALONE: Final = 0o600
_ANEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def replace(path: Path, content: bytes) -> None:
    """Replace a file's content. A symbolic link stays a link. Only the owner can read a new file.

    Raises:
        OSError: the file has its old content. Only if the sync of its folder failed, it has the new content, which a
            power cut may undo.
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
        sync(target.parent)
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
        os.fchmod(file.fileno(), mode)  # while it is still empty; open() applies the umask
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
