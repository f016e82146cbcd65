"""Batches for tables, made without Spark, and what readers see of the tables."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from sparrowmq.spark.pipelines.lake.catalogs import open_catalog, table_identifier, without_pool
from sparrowmq.spark.pipelines.lake.lake import FORMATS, Lake, TableLocation, open_lake
from sparrowmq.spark.pipelines.lake.staged_files import Staged, StagedFile
from sparrowmq.spark.pipelines.tables.table_settings import read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = "2026-01-31"
WRITER = "writer"


def catalog_in(state: Path) -> Catalog:
    """The catalog of a pipeline, as another program opens it."""
    return without_pool(SqlCatalog("sparrowmq", uri=f"sqlite:///{state / 'catalog.db'}"))


class Table:
    """A table in `folder`; opened anew for each batch, as after a restart."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self.place = TableLocation(folder / "table", folder / "table.state", WRITER)

    def open(self) -> Lake:
        return open_lake(self.kind, self.place)

    def add(self, batch: int, *numbers: int, **more: Any) -> None:
        self.open().commit(batch, self.staged(batch, *numbers, **more))

    def staged(self, batch: int, *numbers: int, files: int = 1, **more: Any) -> Staged:
        """A column `number`, and further ones with one value in all rows; in some files."""
        columns = {"number": list(numbers)} | {name: [value] * len(numbers) for name, value in more.items()}
        rows = pa.table(columns | {"_day": [date.fromisoformat(DAY)] * len(numbers)})
        folder = self.place.state / "staged"
        folder.mkdir(parents=True, exist_ok=True)
        made = []
        for index in range(files):
            path = folder / f"{index}.parquet"
            part = rows.slice(index * len(numbers) // files, len(numbers) // files)
            pq.write_table(part if self.kind == "iceberg" else part.drop_columns("_day"), path)
            name = f"_day={DAY}/{WRITER}-{batch:09}-{index:05}.parquet"
            made.append(StagedFile(path, name, f"_day={DAY}", part.num_rows, path.stat().st_size))
        return Staged(made, rows.schema)

    def rows(self) -> list[dict[str, Any]]:
        """As readers of the format see it; an empty table where there is none."""
        found = rows_of(self.kind, self.place.folder, self.place.state)
        return sorted(found, key=lambda row: row["number"])

    def numbers(self) -> list[int]:
        return [row["number"] for row in self.rows()]


def rows_of(kind: str, path: Path, state: Path) -> list[dict[str, Any]]:
    """The rows of a table as a reader of its format sees them."""
    return list(_seen_by_its_own(kind, path, state).to_pylist())


def _seen_by_its_own(kind: str, path: Path, state: Path) -> pa.Table:
    if kind == "delta":
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(path)):
            return pa.table({"number": []})
        return DeltaTable(str(path)).to_pyarrow_dataset().to_table()
    return iceberg_rows(path, state) if kind == "iceberg" else duckdb_rows(path)


def as_all_see_it(spark: SparkSession, kind: str, path: Path, state: Path) -> dict[str, pa.Table]:
    """A table by who reads it: deltalake or pyiceberg, if it is of their format, and Spark and DuckDB."""
    if kind == "parquet":
        return {"spark": read_rows(spark, path).toArrow(), "duckdb": duckdb_rows(path)}
    own = _seen_by_its_own(kind, path, state)
    if kind == "delta":
        from deltalake import DeltaTable

        duckdbs = duckdb.from_arrow(DeltaTable(str(path)).to_pyarrow_dataset()).to_arrow_table()
    else:
        duckdbs = duckdb.from_arrow(own).to_arrow_table()
    return {"own": own, "spark": read_rows(spark, path).toArrow(), "duckdb": duckdbs}


def duckdb_rows(path: Path) -> pa.Table:
    """A folder of Parquet files, as DuckDB reads it."""
    if not list(path.rglob("*.parquet")):
        return pa.table({"number": []})
    files = f"read_parquet('{path}/**/*.parquet', union_by_name=true, hive_partitioning=true)"
    found = duckdb.sql(f"select * from {files}")
    assert found is not None
    return found.to_arrow_table()


def iceberg_rows(path: Path, state: Path) -> pa.Table:
    """An Iceberg table, as pyiceberg reads it."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return open_catalog(path, state).load_table(table_identifier(path)).scan().to_arrow()
    except NoSuchTableError:
        return pa.table({"number": []})


def take_back(kind: str, path: Path, state: Path) -> None:
    """Let a table be what it was before its last commit, as SQL of Delta and of Iceberg does."""
    if kind == "delta":
        from deltalake import DeltaTable

        delta = DeltaTable(str(path))
        delta.restore(delta.version() - 1)
    else:
        iceberg = open_catalog(path, state).load_table(table_identifier(path))
        iceberg.manage_snapshots().rollback_to_snapshot(iceberg.snapshots()[-2].snapshot_id).commit()


KINDS = list(FORMATS)
# For tests that take seconds with each format: `./run test` runs them with one, CI with all.


def _delta_first(mark: pytest.MarkDecorator) -> list[Any]:
    """All kinds; only that of Delta tables runs without the mark."""
    return ["delta", *(pytest.param(kind, marks=mark) for kind in KINDS if kind != "delta")]


KINDS_AT_LENGTH = _delta_first(pytest.mark.slow)
KINDS_AT_NIGHT = _delta_first(pytest.mark.nightly)
