"""The rows of one batch as Parquet files that no reader sees yet, and how they get to their places."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

DAY: Final = "_day"  # the column that tables are partitioned by


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file with rows of one day; `name` is where it belongs, relative to the table's folder."""

    path: Path
    name: str
    day: str
    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Staged:
    """The rows of one batch. `record`: what its commit says about it (`progress.py`)."""

    files: Sequence[StagedFile]
    schema: pa.Schema
    record: str = ""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def take_over(staged: Staged, folder: Path, prefix: str, *, may_have_left: bool) -> None:
    """Move the files to where they belong below `folder`.

    Args:
        may_have_left: an earlier attempt may have left files with this prefix; they go. It takes a look at all files.
    """
    names = {file.name for file in staged.files}
    for left in folder.glob(f"{DAY}=*/{prefix}-*.parquet") if may_have_left else ():
        if str(left.relative_to(folder)) not in names:
            left.unlink()
    for file in staged.files:
        target = folder / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file.path, target)
