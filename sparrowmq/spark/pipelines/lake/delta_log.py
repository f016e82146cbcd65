"""The files of a Delta table's log in a folder, after a power cut or a fault of the disk.

    _delta_log/00000000000000000007.json                 version 7
    _delta_log/00000000000000000019.checkpoint.parquet   all that versions 0 to 19 say; readers begin here

Readers take an empty version for one that changes nothing, so they leave out its rows and say nothing.

    the last versions are empty      a power cut took them before their batch counted: they become versions without rows
    a version before others is       its rows are hidden, and no start can bring them back: refused
    the newest checkpoint is not whole      it is removed, if the versions since the one before are there
"""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Final

from sparrowmq.errors import BadStore
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.running.folders import replace_file

LOG: Final = "_delta_log"
_FILE: Final = re.compile(r"([0-9]{20})\.(json|checkpoint\.parquet)")
_LAST: Final = "_last_checkpoint"
_PARQUET: Final = b"PAR1"


def demand_whole(table: Path | Address) -> None:
    """Raises: BadStore, a version that readers in a folder need is empty, and a later one is not."""
    if not isinstance(table, Path):
        return
    versions, checkpoints = _files(table / LOG)
    first = max(checkpoints, default=-1)
    empty = _empty(versions, first)
    if empty and empty[0] not in _last(versions, empty):
        raise BadStore(
            f"{versions[empty[0]]} is empty, so readers of the table lack its rows, and do not notice; restore this "
            "file from a backup, or the whole table: then what that lacks is read again"
        )


def mend(table: Path) -> None:
    """Repair what a power cut has emptied before it counted. Raises: OSError, it cannot be written."""
    log = table / LOG
    versions, checkpoints = _files(log)
    _drop_torn(log, versions, checkpoints)
    empty = _empty(versions, -1)
    if len(empty) == len(versions) and not checkpoints:
        is_new = next(table.rglob("*.parquet"), None) is None
        for version in reversed(empty if is_new else []):
            versions[version].unlink()
        return
    for version in _last(versions, empty):
        said = {"timestamp": int(time.time() * 1000), "operation": "WRITE", "sparrowmq.emptied": "true"}
        replace_file(versions[version], json.dumps({"commitInfo": said}) + "\n", is_safe=True)


def _files(log: Path) -> tuple[dict[int, Path], dict[int, Path]]:
    """The files of versions, and of checkpoints."""
    found: dict[str, dict[int, Path]] = {"json": {}, "checkpoint.parquet": {}}
    for name in os.listdir(log) if log.is_dir() else ():
        if match := _FILE.fullmatch(name):
            found[match[2]][int(match[1])] = log / name
    return found["json"], found["checkpoint.parquet"]


def _empty(versions: dict[int, Path], behind: int) -> list[int]:
    return sorted(each for each, path in versions.items() if each > behind and not path.stat().st_size)


def _last(versions: dict[int, Path], empty: list[int]) -> list[int]:
    """The empty versions behind all others."""
    newest = max(versions.keys() - set(empty), default=-1)
    return [each for each in empty if each > newest]


def _drop_torn(log: Path, versions: dict[int, Path], checkpoints: dict[int, Path]) -> None:
    """Remove the newest checkpoint if it is damaged and not needed; readers could not open the table."""
    torn = max(checkpoints, default=-1)
    if torn < 0 or _is_parquet(checkpoints[torn]):
        return
    before = max((each for each in checkpoints if each < torn), default=-1)
    if versions.keys() >= set(range(before + 1, torn + 1)):
        (log / _LAST).unlink(missing_ok=True)
        checkpoints.pop(torn).unlink()


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        if file.read(len(_PARQUET)) != _PARQUET:
            return False
        file.seek(-len(_PARQUET), os.SEEK_END)
        return file.read() == _PARQUET
