"""Values of Avro and Protobuf bodies as values of a column's Spark type: exactly, or not at all.

A column keeps its type, and a later schema may have another one for its field. So it is the value that has to fit:
5 of a long fits an int, and text fits bytes. A column of text takes anything: text as it is, other values as JSON.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final, TypeAlias
from uuid import UUID

from pyspark.sql import types as t

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.tables.json_values import Misfit

Convert: TypeAlias = Callable[[Any], Any]

_BITS: Final = {t.ByteType: 8, t.ShortType: 16, t.IntegerType: 32, t.LongType: 64}
# Each value of the Python type fits the column as it is.
_PLAIN: Final[Mapping[type[t.DataType], type]] = {
    t.BooleanType: bool,
    t.DoubleType: float,
    t.StringType: str,
    t.BinaryType: bytes,
    t.DateType: date,
}
_WIDE: Final = Context(prec=1000, traps=[InvalidOperation, Inexact])


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
        except (ValueError, OverflowError, TypeError, InvalidOperation, Inexact):
            raise Misfit("", shown) from None

    return run


def _exact(kind: t.DataType) -> Convert:
    """Return a function for values that are not null; it raises errors of values and types."""
    match kind:
        case t.BooleanType():
            return _boolean
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            half = 1 << (_BITS[type(kind)] - 1)
            return _int(range(-half, half))
        case t.FloatType() | t.DoubleType():
            return _double
        case t.DecimalType():
            return lambda value: _decimal(value, kind.precision, kind.scale)
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
            return _array(fitting(kind.elementType))
        case t.MapType():
            return _map(fitting(kind.keyType), fitting(kind.valueType))
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


def _int(held: range) -> Convert:
    def run(value: Any) -> int:
        if type(value) is not int or value not in held:
            raise TypeError
        return value

    return run


def _double(value: Any) -> float:
    found = float(_only(value, type(value) in (int, float)))
    if type(value) is int and int(found) != value:
        raise OverflowError
    return found


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    found = Decimal(_only(value, type(value) in (int, Decimal))).quantize(
        Decimal(1).scaleb(-scale), context=_WIDE
    )
    if len(found.as_tuple().digits) > precision:
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


def _array(convert: Convert) -> Convert:
    def run(value: Any) -> list[Any]:
        items = _only(value, isinstance(value, list))
        return [_part(convert, each, f"[{at}]") for at, each in enumerate(items)]

    return run


def _map(key: Convert, value: Convert) -> Convert:
    def run(entries: Any) -> list[tuple[Any, Any]]:
        found = _only(entries, isinstance(entries, dict))
        return [
            (_part(key, name, f"[{name!r}]"), _part(value, each, f"[{name!r}]"))
            for name, each in found.items()
        ]

    return run


def _struct(converts: Mapping[str, Convert]) -> Convert:
    def run(value: Any) -> dict[str, Any]:
        fields = _only(value, isinstance(value, dict))
        for name, each in fields.items():
            if name not in converts and each is not None:
                raise Misfit(f".{name}", "field of its column")
        return {name: _part(convert, fields.get(name), f".{name}") for name, convert in converts.items()}

    return run


def _part(convert: Convert, value: Any, path: str) -> Any:
    try:
        return convert(value)
    except Misfit as misfit:
        raise Misfit(path + misfit.path, misfit.kind) from None
