"""Values of Avro and Protobuf bodies as values of a column's Spark type: exactly, or not at all.

A column keeps its type, and a later schema may have another one for its field. So it is the value that has to fit:
5 of a long fits an int, and text fits bytes. A column of text takes anything: text as it is, other values as JSON.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from pyspark.sql import types as t

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.tables.json_values import (
    MISFITS,
    Convert,
    Misfit,
    array,
    exact_decimal,
    integer,
    pairs,
    struct_of,
)

# Each value of the Python type fits the column as it is.
_PLAIN: Final[Mapping[type[t.DataType], type]] = {
    t.BooleanType: bool,
    t.DoubleType: float,
    t.StringType: str,
    t.BinaryType: bytes,
    t.DateType: date,
}


def fitting(kind: t.DataType) -> Convert:
    """Return a function that makes a decoded value one of a type, and raises Misfit; null stays null.

    Raises: ConfigError, no decoded value becomes this type.
    """
    convert, shown, plain = _exact(kind), kind.simpleString(), _PLAIN.get(type(kind))

    def run(value: Any) -> Any:
        if value is None or type(value) is plain:
            return value
        try:
            return convert(value)
        except MISFITS:
            raise Misfit("", shown) from None

    return run


def _exact(kind: t.DataType) -> Convert:
    """Return a function for values that are not null; it raises errors of values and types."""
    match kind:
        case t.BooleanType():
            return _boolean
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return integer(kind)
        case t.FloatType() | t.DoubleType():
            return _double
        case t.DecimalType():
            return lambda value: exact_decimal(_only(value, type(value) in (int, Decimal)), kind)
        case t.StringType():
            return _string
        case t.BinaryType():
            return _binary
        case t.DateType():
            return lambda value: _only(value, type(value) is date)
        case t.TimestampType():
            return lambda value: _only(value, isinstance(value, datetime) and value.tzinfo is not None)
        case t.TimestampNTZType():
            return lambda value: _only(value, isinstance(value, datetime) and value.tzinfo is None)
        case t.ArrayType():
            return array(fitting(kind.elementType))
        case t.MapType():
            return pairs(fitting(kind.keyType), fitting(kind.valueType))
        case t.StructType():
            return _struct({field.name: fitting(field.dataType) for field in kind.fields})
    raise ConfigError(f"{kind.simpleString()} is no type for Avro and Protobuf; use another table")


def _only(value: Any, fits: bool) -> Any:
    if not fits:
        raise TypeError
    return value


def _boolean(value: Any) -> bool:
    """A record without fields is true: it is there."""
    return bool(_only(value is True or value == {}, isinstance(value, bool) or value == {}))


def _double(value: Any) -> float:
    found = float(_only(value, type(value) in (int, float)))
    if type(value) is int and int(found) != value:
        raise OverflowError
    return found


def _string(value: Any) -> str:
    match value:
        case str():
            return value
        case bytes():
            return value.decode()
        case bool() | int() | float() | dict() | list():
            return json.dumps(value, ensure_ascii=False, default=_plain)
    return _plain(value)


def _plain(value: Any) -> str:
    """A value that JSON has no type for, as text."""
    match value:
        case Decimal():
            return f"{value:f}"
        case datetime() | date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
    raise TypeError


def _binary(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(_only(value, isinstance(value, bytes)))


def _struct(converts: Mapping[str, Convert]) -> Convert:
    """A struct that takes no field which its column lacks."""
    struct = struct_of(converts)

    def run(value: Any) -> dict[str, Any]:
        for name, each in _only(value, isinstance(value, dict)).items():
            if name not in converts and each is not None:
                raise Misfit(f".{name}", "field of its column")
        found: dict[str, Any] = struct(value)
        return found

    return run
