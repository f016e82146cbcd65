"""An Iceberg table, written without Spark's jar for Iceberg: by the package pyiceberg.

Its catalog is a file of the table's state (SQLite). A batch is one snapshot that says, in its summary, which batch of
which writer it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.transforms import IdentityTransform

from sparrowmq.spark.pipelines.lake.lake import Place, added
from sparrowmq.spark.pipelines.lake.staged import DAY, take_over

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

    from sparrowmq.spark.pipelines.lake.staged import Staged

_NAMESPACE: Final = "sparrowmq"
_WRITER: Final = "sparrowmq.writer"
_BATCH: Final = "sparrowmq.batch"


class Iceberg:
    """The table."""

    keeps_day = True

    def __init__(self, place: Place) -> None:
        self._place = place
        place.state.mkdir(parents=True, exist_ok=True)
        self._catalog = SqlCatalog(
            _NAMESPACE, uri=f"sqlite:///{place.state / 'catalog.db'}", warehouse=f"file://{place.path.parent}"
        )
        self._name = (_NAMESPACE, place.path.name)
        self._table: Table | None = None
        try:
            self._table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            self._catalog.create_namespace_if_not_exists(_NAMESPACE)

    def last_batch(self) -> int:
        snapshots = self._table.snapshots() if self._table else []
        summaries = [snapshot.summary for snapshot in snapshots if snapshot.summary is not None]
        return max(
            (int(told[_BATCH] or -1) for told in summaries if told.get(_WRITER) == self._place.writer),
            default=-1,
        )

    def columns(self) -> list[str]:
        return [field.name for field in self._table.schema().fields] if self._table else []

    def commit(self, batch: int, staged: Staged) -> None:
        place = self._place
        table = self._table or self._create(staged.schema)
        if added(staged.schema, self.columns()):
            with table.update_schema() as update:
                update.union_by_name(staged.schema)
        data = place.path / "data"
        take_over(staged, data, f"{place.writer}-{batch:09}")
        table.add_files(
            [f"file://{data / file.name}" for file in staged.files],
            snapshot_properties={_WRITER: place.writer, _BATCH: str(batch)},
        )

    def _create(self, schema: pa.Schema) -> Table:
        table = self._catalog.create_table(self._name, schema, location=f"file://{self._place.path}")
        with table.update_spec() as update:
            update.add_field(DAY, IdentityTransform(), DAY)
        self._table = table
        return table
