"""The statistics of a Parquet file as Delta's log has them: of each column the least and the greatest value, and nulls.

Readers skip files by them. They come from the file's footer. A text may be long: its first 32 characters are a lower
bound, and with the last character of Unicode behind them an upper one.

deltalake 1.6 hides the rows of a file from filters of a column, if the column is among those with statistics and the
file has none of it. So the columns are fixed (`statistics_columns`), and a file has the statistics of all or none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

_COLUMNS: Final = 32  # Delta's own default
_CHARACTERS: Final = 32
_LAST: Final = "\U0010ffff"
_PLAIN: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")  # names that need no quotes
_JSON: Final = msgspec.json.Encoder(decimal_format="number")


def statistics_columns(schema: Iterable[pa.Field]) -> str:
    """The columns that get statistics, as the property delta.dataSkippingStatsColumns has them."""
    found = [".".join(path) for path, kind in _leaves(schema) if _is_ordered(kind) and all(map(_PLAIN.fullmatch, path))]
    return ",".join(found[:_COLUMNS])


def delta_statistics(footer: pq.FileMetaData, columns: str) -> str:
    """Return the statistics of these columns as JSON; without bounds, if the footer lacks some of one column."""
    said = {"numRecords": footer.num_rows}
    bounds = _bounds_of(footer, {name for name in columns.split(",") if name})
    return _JSON.encode(said if bounds is None else said | bounds).decode()


def _bounds_of(footer: pq.FileMetaData, columns: set[str]) -> dict[str, Any] | None:
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for name in columns:  # a file may lack a column
        _put(nulls, name.split("."), footer.num_rows)
    leaves = list(_leaves(footer.schema.to_arrow_schema()))
    for index, (path, _) in enumerate(leaves):
        if ".".join(path) not in columns or not all(map(_PLAIN.fullmatch, path)):
            continue
        found = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
        if any(each is None or not each.has_null_count for each in found):
            return None
        _put(nulls, path, sum(each.null_count for each in found))
        filled = [each for each in found if each.num_values]
        if not filled:
            continue
        if not all(each.has_min_max for each in filled):
            return None
        lower, upper = _lower(min(each.min for each in filled)), _upper(max(each.max for each in filled))
        if lower is None or upper is None:
            return None
        _put(least, path, lower)
        _put(greatest, path, upper)
    return {"minValues": least, "maxValues": greatest, "nullCount": nulls}


def _leaves(fields: Iterable[pa.Field], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """The columns that a file has for these fields, in its order; those inside of lists and maps have null types."""
    for field in fields:
        kind, path = field.type, (*above, field.name)
        if pa.types.is_struct(kind):
            yield from _leaves(kind, path)
        elif pa.types.is_nested(kind):
            yield from (((), pa.null()) for _ in range(_count(kind)))
        else:
            yield path, kind


def _is_ordered(kind: pa.DataType) -> bool:
    known = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_string,
        pa.types.is_date,
        pa.types.is_timestamp,
    )
    return any(each(kind) for each in known)


def _count(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_count(kind.field(index).type) for index in range(kind.num_fields))


def _put(into: dict[str, Any], path: Sequence[str], value: object) -> None:
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = value


def _lower(value: object) -> object:
    """A bound as JSON has it; None if it has none."""
    match value:
        case str():
            return value[:_CHARACTERS]
        case datetime():
            return _time(value - timedelta(microseconds=value.microsecond % 1000))
    return _plain(value)


def _upper(value: object) -> object:
    match value:
        case str() if len(value) > _CHARACTERS:
            return None if value[_CHARACTERS] == _LAST else value[:_CHARACTERS] + _LAST
        case datetime():
            above = timedelta(microseconds=-value.microsecond % 1000)
            return _time(value + above) if value.replace(tzinfo=None) <= datetime.max - above else None
    return _plain(value)


def _plain(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case datetime() | date():
            return value.isoformat()
        case int() | str() | Decimal():
            return value
    return None


def _time(value: datetime) -> str:
    """Milliseconds; a time with a zone in UTC."""
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
