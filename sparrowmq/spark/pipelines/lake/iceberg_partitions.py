"""The partitions of an Iceberg table: real partition transforms of its specification.

Spark, Trino and pyiceberg skip files by conditions on the columns themselves: there are no columns of partitions. The
store time is the field `_mq.storeTimestamp`. A data file gets the values of its partition from its path, as bounds in a
file's footer do not say which bucket it is.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pyiceberg import types
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.utils.datetime import days_to_date, micros_to_timestamp

from sparrowmq.spark.pipelines.lake.partitioning import (
    TIMES,
    PartitionField,
    Partitioning,
    plain,
    time_text,
)

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

_EPOCH: Final = datetime(1970, 1, 1)
_HOUR_US: Final = 3_600_000_000
_PARTITION: Final = 3  # the place of the partition among the fields of a data file


class IcebergPartitions:
    """The partitions of one table."""

    def __init__(self, partitioning: Partitioning) -> None:
        self._partitioning = partitioning

    def divide(self, table: Table) -> None:
        """Give a new table its partitions."""
        if self._partitioning.fields and not table.spec().fields:
            with table.update_spec() as update:
                for field in self._partitioning.fields:
                    update.add_field(field.source, _transform(field), field.name)

    def found(self, table: Table) -> str:
        """The partitions of a table, as its metadata has them, in words."""
        schema = table.schema()
        expected = [(field.source, str(_transform(field))) for field in self._partitioning.fields]
        spec = [(schema.find_column_name(field.source_id), str(field.transform)) for field in table.spec().fields]
        if spec == expected:
            return str(self._partitioning)
        return ", ".join(f"{transform} of {source}" for source, transform in spec) or "none"

    def described(self, io: FileIO, metadata: TableMetadata, path: str, partition: str | Record) -> DataFile:
        """A Parquet file as a manifest has it; `partition`: its path, or that of another file's entry."""
        whole = metadata.model_copy(update={"partition_specs": [UNPARTITIONED_PARTITION_SPEC], "default_spec_id": 0})
        file = parquet_file_to_data_file(io, whole, path)
        file[_PARTITION] = self.record(metadata, partition) if isinstance(partition, str) else partition
        file.spec_id = metadata.default_spec_id
        return file

    def record(self, metadata: TableMetadata, path: str) -> Record:
        """The values of a partition, as manifests have them."""
        texts = self._partitioning.values(path)
        kinds = _kinds(self._partitioning, metadata)
        return Record(
            *(
                None if (text := texts[field.name]) is None else _value(field, kind, text)
                for field, kind in zip(self._partitioning.fields, kinds, strict=True)
            )
        )

    def path(self, metadata: TableMetadata, partition: Record) -> str:
        """The path of a partition with these values."""
        kinds = _kinds(self._partitioning, metadata)
        return self._partitioning.path_of(
            {
                field.name: None if (value := partition[at]) is None else _text(field, kinds[at], value)
                for at, field in enumerate(self._partitioning.fields)
            }
        )


def _transform(field: PartitionField) -> Transform[Any, Any]:
    match field.transform:
        case "identity":
            return IdentityTransform()
        case "bucket":
            return BucketTransform(field.width)
        case "truncate":
            return TruncateTransform(field.width)
        case "year":
            return YearTransform()
        case "month":
            return MonthTransform()
        case "day":
            return DayTransform()
    return HourTransform()


def _kinds(partitioning: Partitioning, metadata: TableMetadata) -> list[types.IcebergType]:
    """The types of the columns by which a table is divided."""
    schema = metadata.schema()
    return [schema.find_field(field.source).field_type for field in partitioning.fields]


def _value(field: PartitionField, kind: types.IcebergType, text: str) -> Any:
    if field.transform == "bucket":
        return int(text)
    if field.transform in TIMES:
        return _ordinal(field.transform, text)
    match kind:
        case types.StringType():
            return text
        case types.DateType():
            return (date.fromisoformat(text) - _EPOCH.date()).days
        case types.BooleanType():
            return text == "true"
        case types.DecimalType():
            return Decimal(text)
    return int(text)


def _ordinal(unit: str, text: str) -> int:
    """The years, months, days or hours from 1970 to a time."""
    parts = [int(part) for part in text.split("-")]
    if unit == "year":
        return parts[0] - 1970
    if unit == "month":
        return (parts[0] - 1970) * 12 + parts[1] - 1
    days = (date(*parts[:3]) - _EPOCH.date()).days
    return days if unit == "day" else days * 24 + parts[3]


def _text(field: PartitionField, kind: types.IcebergType, value: Any) -> str:
    """A value of a manifest, as paths have it."""
    match field.transform:
        case "year":
            return f"{1970 + value:04}"
        case "month":
            return f"{1970 + value // 12:04}-{value % 12 + 1:02}"
        case "day":
            kind = types.DateType()
        case "hour":
            return time_text("hour", micros_to_timestamp(value * _HOUR_US))
    is_days = isinstance(kind, types.DateType) and isinstance(value, int) and field.transform != "bucket"
    return plain(days_to_date(value) if is_days else value)
