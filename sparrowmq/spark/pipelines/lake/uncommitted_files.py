"""The rows of one batch as Parquet files that no reader sees yet, and how they get to their places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.core.snapshot import sync
from sparrowmq.spark.pipelines.running.folders import move_file

if TYPE_CHECKING:
    import pyarrow as pa

    from sparrowmq.spark.pipelines.lake.address import Address
    from sparrowmq.spark.pipelines.lake.partitioning import Layout


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A Parquet file with rows of one partition; `name` is where it belongs, relative to the table's folder.

    Attributes:
        path: where it is; None if it was written where it belongs, under a name that no other has.
        partition: its path.
    """

    path: Path | None
    name: str
    partition: str
    rows: int
    size: int

    def named(self, stem: str, layout: Layout) -> StagedFile:
        """The same file, which belongs into its partition under a name."""
        return replace(self, name=layout.name(self.partition, stem))


@dataclass(frozen=True, slots=True)
class Staged:
    """The rows of one batch.

    Attributes:
        record: what its commit says about it (`progress.py`). folder: where they were written, behind an address.
        removed: files of the table that the same commit takes out.
    """

    files: Sequence[StagedFile]
    schema: pa.Schema
    record: str = ""
    folder: str | None = None
    removed: Sequence[Path] = ()

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


def take_over(staged: Staged, folder: Path | Address, prefix: str, *, may_have_left: bool) -> None:
    """Move the files to where they belong below `folder`. At an address they are there already.

    Args:
        may_have_left: an earlier attempt may have left files with this prefix; they go. It takes a look at all files.
    """
    if not isinstance(folder, Path):
        return
    names = {file.name for file in staged.files}
    for left in folder.rglob(f"{prefix}-*.parquet") if may_have_left else ():
        if str(left.relative_to(folder)) not in names:
            left.unlink()
    for file in staged.files:
        assert file.path is not None
        sync(file.path)  # before a commit names it: neither Spark nor pyarrow does
        move_file(file.path, folder / file.name)
