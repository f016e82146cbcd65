"""Spark's checkpoint of a pipeline: brought to the disk before each batch, and repaired at each start.

    checkpoint/metadata       the id of the query, which no pipeline uses
    checkpoint/offsets/7      the plan of batch 7: its end in each queue
    checkpoint/commits/7      batch 7 is done

Spark writes each file under another name and renames it, but does not sync it. So a killed driver leaves whole files,
and a power cut can leave empty ones. A pipeline syncs the plan of a batch before it begins the batch. So a power cut
damages only a plan of which no message was handled, and the next start removes that plan: Spark then makes a new one.
A damaged plan of a begun batch comes from elsewhere, such as a bad disk. Each pipeline says whether such a batch may
have other messages than before.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final
from zlib import crc32

from sparrowmq.core.digits import whole_number
from sparrowmq.core.snapshot import sync
from sparrowmq.errors import BadStore
from sparrowmq.spark.pipelines.running.report import Say

# Says whether a batch may be planned again with other messages.
MayPlanAgain = Callable[[int], bool]

_METADATA: Final = "metadata"
_PLANS, _COMMITS = "offsets", "commits"
_VERSION: Final = re.compile(r"v[0-9]+")
_KNOWN_VERSION: Final = "v1"
_NO_OFFSET: Final = "-"  # Spark's mark for a source without an offset
_CHECKSUM_HEADER: Final = b"crc\0"  # of Hadoop's checksums; the bytes of each follow, and the checksums


def is_planned(checkpoint: Path) -> bool:
    """Whether a stream has ever had a batch; of those Spark keeps the last hundred."""
    return bool(list_batches(checkpoint / _PLANS))


def check_planned(checkpoint: Path) -> None:
    """Raises: BadStore, the checkpoint of a stream that has had a batch is gone: Spark would begin another stream."""
    if not (is_planned(checkpoint) and (checkpoint / _METADATA).exists()):
        raise _unrepairable(checkpoint / _PLANS)


def sync_plan(checkpoint: Path, batch: int) -> None:
    """Sync the plan of a batch, and the files that Spark needs to find the plan. Raises: OSError; BadStore."""
    check_planned(checkpoint)
    files = checkpoint / _METADATA, checkpoint / _PLANS / str(batch), checkpoint / _COMMITS / str(batch - 1)
    folders = *(file.parent for file in files), checkpoint.parent
    for path in (*files, *map(_checksum_file, files), *folders):
        if path.exists():
            sync(path)


def last_done_batch(checkpoint: Path) -> int:
    """Return the number of the last batch that is done; -1 before the first."""
    return max(list_batches(checkpoint / _COMMITS), default=-1)


def repeat_batch(checkpoint: Path, batch: int) -> None:
    """Let Spark do the last batch again with the same messages; the batch behind it is planned again."""
    for folder, first in ((_PLANS, batch + 1), (_COMMITS, batch)):
        for number in list_batches(checkpoint / folder):
            if number >= first:
                _remove(checkpoint / folder / str(number))


def repair(checkpoint: Path, may_plan_again: MayPlanAgain, say: Say) -> None:
    """Remove damaged files that Spark can make again, and say so. Raises: BadStore, the stream's place is not known."""
    if not checkpoint.is_dir():
        return
    for file in _damaged_at_end(checkpoint / _COMMITS):
        _remove(file)
        say(f"{file} was damaged, and is removed: its batch is done again, which changes nothing")
    for file in _lost_plans(checkpoint):
        if not may_plan_again(int(file.name)):
            raise _unrepairable(file)
        _remove(checkpoint / _COMMITS / file.name)
        _remove(file)
        say(f"{file} was damaged or gone; its batch is planned again")
    _check_before_last(checkpoint / _PLANS)
    if is_planned(checkpoint):
        _restore_metadata(checkpoint / _METADATA, say)
    else:
        _remove_first_plan(checkpoint)


def _check_before_last(plans: Path) -> None:
    """Raises: BadStore, the plan before the last one is damaged or gone: Spark takes the begin of a batch from it."""
    for previous, last in list(pairwise((-1, *list_batches(plans))))[-1:]:
        file = plans / str(last - 1)
        if last and (previous != last - 1 or not _is_whole(file)):
            raise _unrepairable(file)


def _restore_metadata(file: Path, say: Say) -> None:
    """Write the query's id where that is lost: Spark goes on with no plan without it."""
    if _is_whole(file):
        return
    _remove(file)
    temporary = file.with_name(f"{file.name}.tmp")
    temporary.write_text(json.dumps({"id": str(uuid.uuid4())}))
    sync(temporary)
    temporary.rename(file)
    say(f"{file} was damaged or gone, and is replaced: it contains only the id of the query")


def _remove_first_plan(checkpoint: Path) -> None:
    """Remove the files of a driver that died in its first plan: Spark 4.2 begins in empty folders only."""
    for folder in (_PLANS, _COMMITS):
        for unfinished in (checkpoint / folder).glob(".*"):
            unfinished.unlink()
    if not _is_whole(checkpoint / _METADATA):
        _remove(checkpoint / _METADATA)


def _unrepairable(file: Path) -> BadStore:
    return BadStore(
        f"{file} is damaged or gone, so it is not known where the stream is; restore {file.parent.parent} from a "
        "backup, or see `A damaged checkpoint` in docs/use/pipelines.md"
    )


def list_batches(folder: Path) -> list[int]:
    """Return the batches that have a file in a folder of a checkpoint, rising."""
    numbers = (whole_number(path.name) for path in folder.glob("[0-9]*"))
    return sorted(number for number in numbers if number is not None)


def _damaged_at_end(folder: Path) -> Iterator[Path]:
    for number in reversed(list_batches(folder)):
        file = folder / str(number)
        if _is_whole(file):
            return
        yield file


def _lost_plans(checkpoint: Path) -> list[Path]:
    """The plans behind the last whole one, the newest first: damaged ones, and those of done batches that are gone."""
    plans = checkpoint / _PLANS
    damaged = [int(file.name) for file in _damaged_at_end(plans)]
    last = max({-1, *list_batches(plans)} - set(damaged))
    missing = {number for number in list_batches(checkpoint / _COMMITS) if number > last}
    return [plans / str(number) for number in sorted(missing.union(damaged), reverse=True)]


def _remove(file: Path) -> None:
    """Remove a file, and before that its checksums: those of another content would spoil the next file of the name."""
    _checksum_file(file).unlink(missing_ok=True)
    file.unlink(missing_ok=True)


def _checksum_file(file: Path) -> Path:
    return file.with_name(f".{file.name}.crc")


def _is_whole(file: Path) -> bool:
    try:
        content = file.read_bytes()
        lines = content.decode().splitlines()
        is_complete = _is_complete(lines, file)
    except (FileNotFoundError, ValueError):
        return False
    return is_complete and _matches_checksums(content, _checksum_file(file))


def _is_complete(lines: Sequence[str], file: Path) -> bool:
    """Whether a file has all its lines. Raises: ValueError, one of them is cut off."""
    if file.name == _METADATA:
        return isinstance(json.loads("".join(lines)), dict)
    if not lines or not _VERSION.fullmatch(lines[0]):
        return False
    if lines[0] != _KNOWN_VERSION:
        return True
    for line in lines[1:]:
        if line != _NO_OFFSET:
            json.loads(line)
    return len(lines) >= (2 if file.parent.name == _COMMITS else 3)


def _matches_checksums(content: bytes, checksums: Path) -> bool:
    """Whether Hadoop takes a content for undamaged. It ignores checksums that are gone, or have no header."""
    stored = checksums.read_bytes() if checksums.exists() else b""
    if len(stored) < len(_CHECKSUM_HEADER) + 4 or not stored.startswith(_CHECKSUM_HEADER):
        return True
    size = max(int.from_bytes(stored[4:8], "big"), 1)
    parts = (content[begin : begin + size] for begin in range(0, len(content), size))
    return stored[8:] == b"".join(crc32(part).to_bytes(4, "big") for part in parts)
