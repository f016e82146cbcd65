"""The columns of bodies that can be a table's key or divide it: their types, and values that no partition can have.

A column that divides a table keeps its type, because a commit cannot move all rows to other partitions. In mode `json`
it has the type of its first values: text, a whole number or a boolean. It is text if the first messages lack it, or
have other values, and a timestamp for year, month, day and hour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.partitioning import IDENTITY, TIME_TRANSFORMS, PartitionField, Partitioning
from sparrowmq.spark.pipelines.tables.ddl import ddl_of, type_of
from sparrowmq.spark.pipelines.tables.json_bodies import Reader

_NOT_FOR_KEYS: Final = (t.FractionalType, t.ArrayType, t.MapType, t.StructType)
_EXACT_TYPES: Final = (t.IntegralType, t.StringType, t.DecimalType)
_TYPES_OF_TRANSFORM: Final[dict[str, tuple[type[t.DataType], ...]]] = {
    IDENTITY: (*_EXACT_TYPES, t.BooleanType, t.DateType),
    "bucket": (*_EXACT_TYPES, t.DateType, t.TimestampType, t.TimestampNTZType),
    "truncate": _EXACT_TYPES,
    **dict.fromkeys(TIME_TRANSFORMS, (t.DateType, t.TimestampType, t.TimestampNTZType)),
    "hour": (t.TimestampType, t.TimestampNTZType),
}
_RAW_TEXTS: Final = ("keys", "tags")
_MAX_RAW_CHARS: Final = 32  # characters of a text that may have any length, so that all of them are in a path


def key_fault(key: str, kind: t.DataType) -> str:
    """Return why a column cannot be the key, with a remedy; "" if it can."""
    if isinstance(kind, _NOT_FOR_KEYS) and not isinstance(kind, t.DecimalType):
        return f"the key {key} has the type {kind.simpleString()}; choose a column of integers or texts"
    return ""


def partition_fault(field: PartitionField, kind: t.DataType) -> str:
    """Return why a column of a type cannot divide a table, with a remedy; "" if it can."""
    if isinstance(kind, _TYPES_OF_TRANSFORM[field.transform]):
        return ""
    needed_types = {IDENTITY: "text, whole numbers, decimals, booleans or dates", "hour": "timestamps"}
    needed = needed_types.get(
        field.transform, "dates or timestamps" if field.transform in TIME_TRANSFORMS else "text or whole numbers"
    )
    return f"the partition {field} needs a column of {needed}, and {field.source} is {kind.simpleString()}"


def partition_column_types(partitioning: Partitioning, fields: Mapping[str, str]) -> dict[str, t.DataType]:
    """Return the types of the partition columns; `fields`: the columns of bodies, as DDL."""
    types = dict[str, t.DataType]()
    for field in partitioning.fields:
        match field.transform:
            case "bucket" | "year":
                types[field.name] = t.IntegerType()
            case "day":
                types[field.name] = t.DateType()
            case "month" | "hour":
                types[field.name] = t.StringType()
            case _ if field.is_of_store_time:
                types[field.name] = t.DateType()
            case _:
                types[field.name] = type_of(fields.get(field.source, "string"))
    return types


def check_partition_columns(
    partitioning: Partitioning, mode: str, names: Collection[str] | None, key: str | None = None
) -> None:
    """Raises: ConfigError, a table of a mode cannot be divided like this; `names` is None if bodies say the columns."""
    if mode == "raw":
        _check_raw(partitioning)
        return
    for field in partitioning.body_fields:
        if field.source == key and field.transform == IDENTITY:
            raise ConfigError(
                f"the partition {field} has one row for each value, as that is the key; write bucket(16, {key})"
            )
        if names is not None and field.source not in names:
            similar = next((name for name in names if name.lower() == field.source.lower()), "")
            hint = f"did you mean {similar}?" if similar else f"it has {', '.join(list(names)[:20])}"
            raise ConfigError(f"the partition {field} is of no column of the schema; {hint}")
    for name in names or ():
        if name.lower() in map(str.lower, partitioning.derived_names):
            raise ConfigError(
                f"the schema has the column {name}, which is also the name of a partition; name the column otherwise"
            )


def check_partition_types(partitioning: Partitioning, kinds: Mapping[str, t.DataType]) -> None:
    """Raises: ConfigError, the type of a column cannot divide a table."""
    for field in partitioning.body_fields:
        if field.source in kinds and (fault := partition_fault(field, kinds[field.source])):
            raise ConfigError(f"{fault}; choose another column")


def _check_raw(partitioning: Partitioning) -> None:
    for field in partitioning.body_fields:
        if field.source not in _RAW_TEXTS or field.transform in TIME_TRANSFORMS:
            raise ConfigError(
                f"the partition {field} is of no text that a table of mode raw has; it has {' and '.join(_RAW_TEXTS)}, "
                "and a table of mode json has the fields of bodies"
            )
        if field.transform == IDENTITY or (field.transform == "truncate" and field.width > _MAX_RAW_CHARS):
            raise ConfigError(
                f"{field.source} can be longer than a partition; write truncate({_MAX_RAW_CHARS}, {field.source}) or "
                f"bucket(16, {field.source})"
            )


def pin_types(partitioning: Partitioning, old_fields: Mapping[str, str], fields: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of a table, also those by which it is divided, with the types that they had before."""
    pinned = dict(fields)
    for field in partitioning.body_fields:
        kind = old_fields.get(field.source) or pinned.get(field.source)
        if kind is None or partition_fault(field, type_of(kind)):
            kind = ddl_of(t.TimestampType() if field.transform in TIME_TRANSFORMS else t.StringType())
        lower_name = field.source.lower()
        pinned = {name: ddl for name, ddl in pinned.items() if name.lower() != lower_name or name == field.source}
        pinned[field.source] = kind
    return pinned


@dataclass(frozen=True)
class PartitionCheck:
    """A function for `mapInArrow`: it adds the reasons of rows that no partition can have, to those of `read`."""

    read: Reader
    partitioning: Partitioning
    names: Sequence[str]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in self.read(batches):
            yield self._with_reasons(rows)

    def _with_reasons(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        first = rows.num_columns - len(self.names)

        def column(field: PartitionField) -> pa.Array | None:
            return rows.column(first + self.names.index(field.source)) if field.source in self.names else None

        reasons = self.partitioning.too_long_reasons(column)
        if reasons is None:
            return rows
        reason_field = rows.schema.field(first - 1)
        return rows.set_column(first - 1, reason_field, pc.coalesce(rows.column(first - 1), reasons))
