"""Keeps the times of Iceberg tables in order, also if the clock of this machine is set back.

    clock          10:00   11:00   10:10         10:20
    commits        10:00   11:00   11:00 + 1 ms  11:00 + 2 ms

Iceberg's Java refuses to read a table whose snapshots, or versions of metadata, go back by more than a minute.
pyiceberg writes the time of the clock. So if the clock is behind the last commit, the next one gets a time behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import CommitTableResponse, StagedTable, Table


class OrderedCatalog(SqlCatalog):
    """A catalog in a database, without the times of commits that go back."""

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: tuple[str, ...],
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        last_ms = 0 if current_table is None else current_table.metadata.last_updated_ms
        later = tuple(_behind(last_ms, updates))
        staged = super()._update_and_stage_table(current_table, table_identifier, requirements, later)
        time_ms = max(staged.metadata.last_updated_ms, last_ms)  # of a commit without a snapshot
        staged.metadata = staged.metadata.model_copy(update={"last_updated_ms": time_ms})
        return staged


def ordered(catalog: Catalog) -> Catalog:
    """Let the snapshots of any catalog be in order; servers of catalogs refuse others."""
    commit = catalog.commit_table

    def commit_table(
        table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        return commit(table, requirements, tuple(_behind(table.metadata.last_updated_ms, updates)))

    catalog.commit_table = commit_table  # type: ignore[method-assign]
    return catalog


def _behind(time_ms: int, updates: Iterable[TableUpdate]) -> Iterator[TableUpdate]:
    """Updates of which each snapshot is from behind a time, and behind an earlier snapshot."""
    for update in updates:
        if isinstance(update, AddSnapshotUpdate):
            time_ms = max(time_ms + 1, update.snapshot.timestamp_ms)
            snapshot = update.snapshot.model_copy(update={"timestamp_ms": time_ms})
            update = update.model_copy(update={"snapshot": snapshot})
        yield update
