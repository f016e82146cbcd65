"""A table that is a folder of Parquet files, `_day=2026-01-31/…`, which everything reads.

    state/commits/000000007.json           which files batch 7 has: written first, and that is the commit
    table/_day=…/…-000000007-*.parquet     then each is moved to its place, and the list is emptied

A crash in between leaves files to be moved; the next start does it. Spark's own sink keeps a log of files that only
Spark reads, so all other readers of its folders see a batch twice that was written again.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from sparrowmq.spark.pipelines.lake.lake import Place
from sparrowmq.spark.pipelines.lake.merging import groups, merge
from sparrowmq.spark.pipelines.lake.uncommitted_files import DAY

if TYPE_CHECKING:
    from sparrowmq.spark.pipelines.lake.uncommitted_files import Staged

_KEPT_COMMITS: Final = 10
_COMPACTED: Final = "compacted-"


class Folder:
    """The folder, and what was committed to it."""

    keeps_day = False

    def __init__(self, place: Place) -> None:
        self._place = place
        self._commits = place.state / f"commits{place.lane}"
        self._merges = place.state / "merge.json"
        if not place.only_looked_at:
            self._finish()
            self._finish_merge()

    def last_batch(self) -> int:
        return max((int(path.stem) for path in self._commits.glob("*.json")), default=-1)

    def columns(self) -> dict[str, pa.DataType]:
        """As the newest file of a batch has them; files that were put together may lack newer columns."""
        files = sorted(self.paths(), key=os.path.getmtime)
        newest = [file for file in files if not file.name.startswith(_COMPACTED)][-1:] or files
        found = {field.name: field.type for file in newest for field in pq.read_schema(file)}
        return {DAY: pa.date32(), **found} if found else {}

    def commit(self, batch: int, staged: Staged) -> None:
        place = self._place
        moves = {str(file.path): str(place.path / file.name) for file in staged.files}
        self._commits.mkdir(parents=True, exist_ok=True)
        self._write(self._commits / f"{batch:09}.json", moves)
        self._finish()
        for old in sorted(self._commits.glob("*.json"))[:-_KEPT_COMMITS]:
            old.unlink()

    def paths(self) -> list[Path]:
        return sorted(self._place.path.glob(f"{DAY}=*/*.parquet"))

    def rewrite(self, staged: Staged) -> None:
        """Each file is replaced by the one of its name, so no reader misses a row or sees it twice."""
        moves = {str(file.path): str(self._place.path / file.name) for file in staged.files}
        gone = {str(path) for path in self.paths()} - set(moves.values())
        self._write(self._merges, {"moves": moves, "gone": sorted(gone)})
        self._finish_merge()

    def compact(self, before: date) -> None:
        """A reader at that very moment may miss the rows of some files, or see them twice."""
        for folder in self._days(before):
            for group in groups(sorted(folder.glob("*.parquet"))):
                merged = self._place.state / "compacted" / f"{_COMPACTED}{uuid.uuid4().hex}.parquet"
                merge(group, merged)
                moves = {str(merged): str(folder / merged.name)}
                self._write(self._merges, {"moves": moves, "gone": [str(file) for file in group]})
                self._finish_merge()

    def expire(self, before: date) -> int:
        days = self._days(before)
        for folder in days:
            shutil.rmtree(folder)
        return len(days)

    def _days(self, before: date) -> list[Path]:
        folders = sorted(self._place.path.glob(f"{DAY}=*"))
        return [folder for folder in folders if folder.name.partition("=")[2] < before.isoformat()]

    def _finish_merge(self) -> None:
        """Put the merged file in the place of what it was made of; a crash in between is finished by the next start."""
        if not self._merges.exists():
            return
        begun = json.loads(self._merges.read_text())
        _move(begun["moves"])
        for file in begun["gone"]:
            Path(file).unlink(missing_ok=True)
        self._merges.unlink()

    def _finish(self) -> None:
        """Move what the last commit has not moved yet."""
        for commit in sorted(self._commits.glob("*.json"))[-1:]:
            moves = json.loads(commit.read_text())
            _move(moves)
            if moves:
                self._write(commit, {})

    def _write(self, commit: Path, moves: Mapping[str, Any]) -> None:
        """Write the whole commit or nothing, also if the power fails."""
        new = commit.with_suffix(".tmp")
        with open(new, "w") as file:
            json.dump(moves, file)
            file.flush()
            os.fsync(file.fileno())
        new.rename(commit)


def _move(moves: Mapping[str, str]) -> None:
    for staged, target in moves.items():
        if os.path.exists(staged):
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staged, target)
