"""The partitions of a table: rows are divided by fields, and by transforms of fields.

    day                          _day=2026-01-31                     the day of the store time, which is the default
    hour                         _hour=2026-01-31-05                 of the store time, too
    country, month(paid)         country=DE/paid_month=2026-01
    bucket(16, id)               id_bucket=7
    truncate(2, zip)             zip_trunc=10
    none                         one partition, of which the path is empty

Transforms, their names and their results are those of Iceberg's specification. A partition is known by its path, as
Hive and Spark name folders. Other modules get paths from here, and never ask what a table is divided by.

A null, or a field that is missing, has the value of Hive for that. In a folder, and in Delta's log, an empty text is
the same as a null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.errors import ConfigError

DAY: Final = "_day"  # a column of each row: the day of the store time
STORE_TIME: Final = "_mq.storeTimestamp"
IDENTITY: Final = "identity"
TIME_TRANSFORMS: Final = ("year", "month", "day", "hour")
NULL: Final = "__HIVE_DEFAULT_PARTITION__"

_COLUMN_SUFFIXES: Final = {"bucket": "bucket", "truncate": "trunc", **{time: time for time in TIME_TRANSFORMS}}
_MAX_WIDTHS: Final = {"bucket": 10_000, "truncate": (1 << 31) - 1}
_RESERVED_WORDS: Final = ("none", IDENTITY, *_MAX_WIDTHS)
# Spark's and Trino's names of the same transforms.
_ALIASES: Final = {"date": "day", "date_hour": "hour", **{f"{time}s": time for time in TIME_TRANSFORMS}}
_MAX_FIELDS: Final = 4  # the names of files on S3 have 1,024 bytes at most
# Of the name and the value of a field, as files have them: 255 are the limit of most systems.
_MAX_SEGMENT_BYTES: Final = 200
_FIELD_OR_TRANSFORM: Final = re.compile(r"\s*(?:(\w+)\s*\(([^()]*)\)|([^(),]+?))\s*(?:,|$)")
_FIELD: Final = re.compile(r"[\w-]{1,100}")
_NUMBER: Final = re.compile(r"[0-9]+")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9=/._-]")
_ESCAPED_CHARACTERS: Final = re.compile(r'[\x00-\x1f"#%\'*/:=?\\{\[\]^\x7f]')  # what Spark writes as % and two digits
_EXAMPLE: Final = "write fields and transforms, as `country, bucket(16, id)`"


@dataclass(frozen=True)
class PartitionField:
    """One field by which a table is divided. `source`: the column. `width`: of `bucket` and `truncate`."""

    transform: str
    source: str
    width: int = 0

    @property
    def name(self) -> str:
        """The name of the partition column, as Iceberg names it."""
        if self.transform == IDENTITY:
            return self.source
        return (
            f"_{self.transform}" if self.source == STORE_TIME else f"{self.source}_{_COLUMN_SUFFIXES[self.transform]}"
        )

    def __str__(self) -> str:
        if self.source in (DAY, STORE_TIME):
            return "day" if self.source == DAY else self.transform
        is_word = _NUMBER.fullmatch(self.source) or self.source.lower() in (*_RESERVED_WORDS, *TIME_TRANSFORMS)
        source = f"`{self.source}`" if is_word else self.source
        if self.transform == IDENTITY:
            return source
        return f"{self.transform}({f'{self.width}, ' if self.width else ''}{source})"

    @property
    def is_of_store_time(self) -> bool:
        return self.source in (DAY, STORE_TIME)

    @property
    def unit(self) -> str:
        """The length of a period of the store time: year, month, day or hour."""
        return "day" if self.source == DAY else self.transform

    def period_text(self, time: date) -> str:
        return time_text(self.unit, time)

    def last_text(self, day: date) -> str:
        return self.period_text(datetime(day.year, day.month, day.day, 23))

    def column_type(self, source: pa.DataType) -> pa.DataType:
        """The type of the partition column."""
        match self.transform:
            case "bucket" | "year":
                return pa.int32()
            case "month" | "hour":
                return pa.string()
            case "day":
                return pa.date32()
        return source

    def texts(self, values: pa.Array) -> tuple[list[str | None], pa.Array]:
        """Return the distinct partition values as text, and the index of the value of each row; null for a null."""
        if self.transform in TIME_TRANSFORMS and pa.types.is_timestamp(values.type):
            values = pc.floor_temporal(values, unit=self.transform)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        encoded = values.dictionary_encode()
        text = self._text_function(values.type)
        return [None if value is None else text(value) for value in encoded.dictionary.to_pylist()], encoded.indices

    def _text_function(self, kind: pa.DataType) -> Callable[[Any], str]:
        match self.transform:
            case "bucket":
                bucket_for = _bucket_function(kind, self.width)
                return lambda value: str(bucket_for(value))
            case "truncate":
                return lambda value: partition_text(_truncate(value, self.width))
            case "identity":
                return partition_text
        return lambda value: time_text(self.transform, value)

    def segment(self, text: str | None) -> str:
        return f"{self.name}={NULL if text is None else escape_text(text)}"


@dataclass(frozen=True)
class Partitioning:
    """The fields by which a table is divided; without fields it has one partition."""

    fields: tuple[PartitionField, ...]

    @classmethod
    def parse(cls, text: str) -> Partitioning:
        """Read `country, bucket(16, id)`. Raises: ConfigError, with what is wrong and what to write."""
        return _parse_partitioning(text)

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields)) or "none"

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @cached_property
    def derived_names(self) -> tuple[str, ...]:
        """The partition columns that rows do not have; no field of a body has one of these names."""
        return tuple(field.name for field in self.fields if field.transform != IDENTITY)

    @cached_property
    def body_fields(self) -> tuple[PartitionField, ...]:
        return tuple(field for field in self.fields if not field.is_of_store_time)

    def columns(self, rows: pa.Schema) -> pa.Schema:
        """Return the columns of rows with the partition columns that they lack."""
        for field in self.fields:
            if field.name in self.derived_names:
                index = rows.get_field_index(field.source)
                kind = field.column_type(pa.null() if index < 0 else rows.field(index).type)
                rows = rows.append(pa.field(field.name, kind))
        return rows

    def paths(self, rows: pa.RecordBatch, *, empty_is_null: bool) -> pa.Array:
        if not self.fields:
            return pa.repeat(pa.scalar(""), rows.num_rows)
        parts = [self._segments(field, rows, empty_is_null) for field in self.fields]
        return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "/")

    def _segments(self, field: PartitionField, rows: pa.RecordBatch, empty_is_null: bool) -> pa.Array:
        null_segment = field.segment(None)
        values = _source_column(rows, field.source)
        if values is None:
            return pa.repeat(pa.scalar(null_segment), rows.num_rows)
        texts, indices = field.texts(values)
        segments = pa.array(
            [field.segment(None if empty_is_null and not text else text) for text in texts], pa.string()
        )
        return pc.fill_null(segments.take(indices), null_segment)

    def too_long_reasons(self, column: Callable[[PartitionField], pa.Array | None]) -> pa.Array | None:
        """Return for each row why no partition can hold it; None if all rows fit."""
        reasons = None
        for field in self.body_fields:
            values = column(field) if field.transform in (IDENTITY, "truncate") else None
            if values is None or not pa.types.is_string(values.type):
                continue
            texts, indices = field.texts(values)
            is_long = [text is not None and len(field.segment(text).encode()) > _MAX_SEGMENT_BYTES for text in texts]
            if any(is_long):
                reason = f"{field.source} is too long for a partition"
                field_reasons = pa.array(
                    [reason if row_is_long else None for row_is_long in is_long], pa.string()
                ).take(indices)
                reasons = field_reasons if reasons is None else pc.coalesce(reasons, field_reasons)
        return reasons

    def values(self, path: str) -> dict[str, str | None]:
        """Return the values of a partition as text, by column; null is None."""
        parts = (part.partition("=")[2] for part in path.split("/")[-len(self.fields) :] if self.fields)
        return {name: None if text == NULL else unquote(text) for name, text in zip(self.names, parts, strict=True)}

    def path_for(self, values: Mapping[str, str | None]) -> str:
        return "/".join(field.segment(values[field.name]) for field in self.fields)

    def partition_of_file(self, file: str) -> str:
        folders = file.split("/")[:-1]
        return "/".join(folders[len(folders) - len(self.fields) :])

    @property
    def pattern(self) -> str:
        """The glob pattern of the files, below the folder of a table."""
        return "/".join([*(f"{name}=*" for name in self.names), "*.parquet"])

    @cached_property
    def time_field(self) -> PartitionField | None:
        return next((field for field in self.fields if field.is_of_store_time), None)

    def first_day(self, path: str) -> date | None:
        """Return the day on which a partition begins; None if the table is not divided by the store time."""
        if self.time_field is None:
            return None
        text = self.values(path)[self.time_field.name]
        return date.fromisoformat(f"{text}-01-01"[:10])

    def starts_before(self, path: str, before: date) -> bool:
        """Whether a partition may have messages from before a day."""
        first = self.first_day(path)
        return first is None or first < before

    def period_start(self, before: date) -> date:
        """The first day of the period that a day is in: earlier periods have ended before. Raises: ConfigError."""
        if self.time_field is None:
            with_day = ", ".join([*map(str, self.fields), "day"])
            raise ConfigError(
                f"a table with the partition {self} has no old days to take out, as its files have messages of all "
                f"days; leave keep_days out, or begin a table with the partition {with_day}"
            )
        return date.fromisoformat(f"{self.time_field.period_text(before)}-01-01"[:10])

    def sql_before(self, limit: date) -> str:
        """Return the SQL condition for the partitions before a day."""
        assert self.time_field is not None
        text = self.time_field.period_text(datetime(limit.year, limit.month, limit.day))
        match self.time_field.unit:
            case "day":
                return f"{self.time_field.name} < CAST('{text}' AS DATE)"
            case "year":
                return f"{self.time_field.name} < {text}"
        return f"{self.time_field.name} < '{text}'"


@dataclass(frozen=True)
class Layout:
    """The files of a table.

    With `keeps_columns`, files have the columns by which they are divided, and not only their paths or a log. With
    `has_log`, a log says which partition a file is of, so that its name is free.
    """

    partitioning: Partitioning
    keeps_columns: bool
    has_log: bool = True

    def name(self, partition: str, stem: str) -> str:
        """Return the name of a file. Libraries differ about spaces and % in names, so names in logs have neither."""
        folder = _NOT_IN_NAMES.sub("_", partition) if self.has_log else partition
        return f"{folder}/{stem}.parquet" if folder else f"{stem}.parquet"

    def file_schema(self, rows: pa.Schema) -> pa.Schema:
        return pa.schema([field for field in rows if field.name not in self.path_only_columns])

    @cached_property
    def path_only_columns(self) -> tuple[str, ...]:
        fields = () if self.keeps_columns else self.partitioning.fields
        return tuple(field.source for field in fields if field.transform == IDENTITY)

    def split_rows(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of each partition, in the order of paths, with the columns that files have."""
        if not rows.num_rows:
            return
        file_rows = rows.drop_columns([name for name in self.path_only_columns if name in rows.schema.names])
        partitions = self.partitioning.paths(rows, empty_is_null=not self.keeps_columns).dictionary_encode()
        if len(partitions.dictionary) == 1:
            yield partitions.dictionary[0].as_py(), file_rows
            return
        order = pc.sort_indices(partitions.dictionary).to_pylist()
        rank = pa.array(sorted(range(len(order)), key=order.__getitem__), pa.int32())
        ranks = rank.take(partitions.indices)
        by_rank, begin = file_rows.take(pc.sort_indices(ranks)), 0
        counts = {count["values"]: count["counts"] for count in pc.value_counts(ranks).to_pylist()}
        for position, index in enumerate(order):
            yield partitions.dictionary[index].as_py(), by_rank.slice(begin, counts[position])
            begin += counts[position]

    def add_path_columns(self, rows: pa.Table, path: str, schema: pa.Schema) -> pa.Table:
        """Add the columns that only the path of a file has; `schema` has their types."""
        values = self.partitioning.values(path)
        for name in self.path_only_columns:
            if name not in rows.schema.names:
                value = pa.scalar(values[name]).cast(schema.field(name).type)
                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        return rows


def escape_text(text: str) -> str:
    """Escape a value for folder names; a text that looks like Hive's null stays a text."""
    if text == NULL:
        return text.replace("_", "%5F")
    return _ESCAPED_CHARACTERS.sub(lambda match: f"%{ord(match[0]):02X}", text)


def partition_text(value: Any) -> str:
    """Return a value as Delta's log has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)


def time_text(unit: str, value: date) -> str:
    """Return a time as Iceberg writes it for people: 2026, 2026-01, 2026-01-31, 2026-01-31-05."""
    whole = f"{value.year:04}-{value.month:02}-{value.day:02}"
    if isinstance(value, datetime):
        whole += f"-{value.hour:02}"
    return whole[: {"year": 4, "month": 7, "day": 10, "hour": 13}[unit]]


def _truncate(value: Any, width: int) -> Any:
    if isinstance(value, str):
        return value[:width]
    if isinstance(value, Decimal):
        exponent = int(value.as_tuple().exponent)
        unscaled = int(value.scaleb(-exponent))
        return Decimal(unscaled - unscaled % width).scaleb(exponent)
    return value - value % width


def _bucket_function(kind: pa.DataType, count: int) -> Callable[[Any], int]:
    """Return Iceberg's hash function. Raises: ConfigError, pyiceberg is not installed."""
    try:
        from pyiceberg import transforms, types
    except ImportError as error:
        raise ConfigError("bucket needs the package pyiceberg: pip install 'sparrowmq[lake]'") from error
    source_type: Any = types.LongType()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        source_type = types.StringType()
    elif pa.types.is_decimal(kind):
        source_type = types.DecimalType(kind.precision, kind.scale)
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        source_type = types.DateType() if pa.types.is_date(kind) else types.TimestampType()
    bucket: Any = transforms.BucketTransform(count).transform(source_type)
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return lambda value: int(bucket(value))
    number = pa.int32() if pa.types.is_date(kind) else pa.int64()
    return lambda value: int(bucket(pa.scalar(value, kind).cast(number).as_py()))


def _source_column(rows: pa.RecordBatch, source: str) -> pa.Array | None:
    if source == STORE_TIME:
        column, _, field = STORE_TIME.partition(".")
        return pc.struct_field(rows.column(column), field)
    return rows.column(source) if source in rows.schema.names else None


@lru_cache(maxsize=1000)
def _parse_partitioning(text: str) -> Partitioning:
    if text.strip().lower() == "none":
        return Partitioning(())
    fields, position = list[PartitionField](), 0
    while position < len(text) or not fields:
        item = _FIELD_OR_TRANSFORM.match(text, position)
        if item is None:
            raise ConfigError(f"the partition {text!r} cannot be read from {text[position:]!r} on; {_EXAMPLE}")
        transform, arguments, field = item.groups()
        fields.append(_parse_word(field, text) if field else _parse_transform(transform, arguments, text))
        position = item.end()
    _check_distinct(fields, text)
    return Partitioning(tuple(fields))


def _parse_word(word: str, text: str) -> PartitionField:
    name = word.strip().lower()
    if name in TIME_TRANSFORMS:
        return PartitionField(IDENTITY, DAY) if name == "day" else PartitionField(name, STORE_TIME)
    if name == "none":
        raise ConfigError(f"the partition {text!r} has none beside others; write none alone, or leave it out")
    if name in _RESERVED_WORDS:
        raise ConfigError(f"the partition {text!r} lacks the field of {name}; {_EXAMPLE}")
    return PartitionField(IDENTITY, _parse_field(word, text))


def _parse_transform(word: str, arguments: str, text: str) -> PartitionField:
    transform = _ALIASES.get(word.lower(), word.lower())
    parts = [part.strip() for part in arguments.split(",")]
    if transform in _MAX_WIDTHS:
        numbers = [part for part in parts if _NUMBER.fullmatch(part)]
        if len(parts) != 2 or len(numbers) != 1:
            raise ConfigError(
                f"the partition {text!r} has {transform} without a number and a field; write {transform}(16, id)"
            )
        width = _parse_width(transform, numbers[0], text)
        (field,) = (part for part in parts if part != numbers[0])
        return PartitionField(transform, _parse_field(field, text), width)
    if transform not in (*TIME_TRANSFORMS, IDENTITY):
        transforms = ", ".join([IDENTITY, *_MAX_WIDTHS, *TIME_TRANSFORMS])
        raise ConfigError(f"the partition {text!r} has {word}, which is none of {transforms}; {_EXAMPLE}")
    if len(parts) != 1 or not parts[0]:
        raise ConfigError(f"the partition {text!r} has {word} without one field; write {word}(paid)")
    field = _parse_field(parts[0], text)
    if field == DAY and transform not in (IDENTITY, "day"):
        raise ConfigError(f"the partition {text!r} has {word}({DAY}); write {transform} for the store time")
    return PartitionField(IDENTITY if field == DAY else transform, field)


def _parse_width(transform: str, number: str, text: str) -> int:
    max_width = _MAX_WIDTHS[transform]
    width = int(number) if len(number) <= len(str(max_width)) else max_width + 1
    if not 1 <= width <= max_width:
        raise ConfigError(f"the partition {text!r} has {transform} of {number[:20]}; write 1 to {max_width:,}")
    return width


def _parse_field(word: str, text: str) -> str:
    name = word.strip()
    is_quoted = len(name) > 2 and name[0] == name[-1] == "`"
    name = name[1:-1] if is_quoted else name
    if "." in name:
        raise ConfigError(
            f"the partition {text!r} has the nested field {name}; choose a field of the body itself, or leave it out"
        )
    if not _FIELD.fullmatch(name) or (_NUMBER.fullmatch(name) and not is_quoted):
        raise ConfigError(f"the partition {text!r} has {word!r}, which is no name of a field; {_EXAMPLE}")
    if name.lower() == "_mq" or (name.lower() == DAY and name != DAY):
        raise ConfigError(f"the partition {text!r} has {name}, a column that each table has itself; write day")
    return name


def _check_distinct(fields: Sequence[PartitionField], text: str) -> None:
    if len(fields) > _MAX_FIELDS:
        raise ConfigError(f"the partition {text!r} has {len(fields)} fields; write at most {_MAX_FIELDS}")
    for kind, names in (
        ("name", [field.name.lower() for field in fields]),
        ("time", [_time_source(field) for field in fields]),
    ):
        if twice := _first_duplicate(name for name in names if name):
            raise ConfigError(f"the partition {text!r} has two fields of the {kind} {twice}; leave one of them out")


def _time_source(field: PartitionField) -> str:
    if field.is_of_store_time:
        return "of storing"
    return field.source if field.transform in TIME_TRANSFORMS else ""


def _first_duplicate(names: Iterable[str]) -> str:
    checked = set[str]()
    for name in names:
        if name in checked:
            return name
        checked.add(name)
    return ""


BY_DAY: Final = Partitioning.parse("day")
