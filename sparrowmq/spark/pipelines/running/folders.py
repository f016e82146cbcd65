"""Folders of pipelines: one process works in a folder at a time, and no run writes into a folder of somebody else."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from sparrowmq.core.snapshot import sync, with_checksum, without_checksum
from sparrowmq.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows has no such locks; there runs are not kept apart.
    fcntl = None  # type: ignore[assignment]

_SCHEME: Final = re.compile("([A-Za-z][A-Za-z0-9+.-]+):/")  # a pathlib.Path leaves one slash


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a folder, made if needed; a killed process releases it. Raises: ConfigError, another run holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as file:
        lock_file(file, folder)
        yield


def lock_file(file: IO[str], path: Path) -> None:
    """Lock a file until it is closed; the error names `path`. Raises: ConfigError, another run holds it."""
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"another run is at work in {path}; wait for its end, or stop it") from None


def replace_file(path: Path, text: str, *, is_safe: bool = False) -> None:
    """Write the whole file or nothing, in a folder that is made if needed; `is_safe`: also if the power fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp")
    with open(temporary, "w") as file:
        file.write(text)
        if is_safe:
            file.flush()
            os.fsync(file.fileno())
    temporary.rename(path)


def write_sealed(path: Path, value: Mapping[str, Any], indent: int | None = None) -> None:
    """Write an object in JSON with its checksum, the whole file or nothing, also if the power fails."""
    replace_file(path, with_checksum(json.dumps(value, indent=indent).encode()).decode(), is_safe=True)


def read_sealed(path: Path) -> Any:
    """Return what `write_sealed` wrote, or JSON without a checksum. Raises: OSError; ValueError, it is damaged."""
    return json.loads(without_checksum(path.read_bytes()))


def move_file(source: str | Path, target: Path) -> None:
    """Move a file, perhaps to another disk, so that no reader sees a part. Raises: OSError; it is where it was then."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            shutil.copyfile(source, temporary)
            sync(temporary)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        os.unlink(source)


def scheme_of(folder: str | Path) -> str | None:
    """Return the scheme of an address, such as `s3`; None for a path."""
    match = _SCHEME.match(str(folder))
    return match[1].lower() if match else None


def local_path(folder: str | Path) -> Path:
    """Return the absolute path of a folder on this machine. Raises: ConfigError, it is an address, or blank."""
    if not str(folder).strip():
        raise ConfigError("the path of a folder is blank; write it, as /lake/orders")
    if (scheme := scheme_of(folder)) is not None:
        raise ConfigError(
            f"{folder} is an address with the scheme {scheme}, and this must be a folder: write the path of "
            "one on this machine, or of a file system that is mounted here and at all workers"
        )
    return Path(os.path.abspath(folder))


def check_absent(to: str | Path) -> None:
    """Check before the work that its result can be written. Raises: ConfigError, the folder exists; OSError."""
    folder = local_path(to)
    if folder.exists():
        raise ConfigError(f"{to} is there already; name another folder")
    try:
        with tempfile.TemporaryFile(dir=next(parent for parent in folder.parents if parent.exists())):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from None


@contextmanager
def new_folder(to: str | Path) -> Iterator[Path]:
    """Yield a folder for files, which becomes `to` when all are in it. Raises: ConfigError, `to` exists."""
    check_absent(to)
    target = local_path(to)
    unfinished = target.with_name(f".{target.name}.begun")
    with lock_folder(unfinished):
        check_absent(to)  # another run may have ended since
        files = unfinished / "files"
        shutil.rmtree(files, ignore_errors=True)
        yield files
        for path in files.rglob("*"):  # a power cut would leave a folder with its name and without its rows
            sync(path)
        files.rename(target)
        shutil.rmtree(unfinished)


def check_same(owner: str, before: Mapping[str, object], now: Mapping[str, object]) -> None:
    """Raises: ConfigError, the first start of `owner` had other settings."""
    for name, value in now.items():
        if before.get(name) != value:
            raise ConfigError(f"{owner} was begun with {name} {before.get(name)!r}, not {value!r}; name another folder")
