"""Bodies as JSON objects, and JSON values as values of a column's Spark type: exactly, or not at all.

Objects are read strictly (RFC 8259): input that two readers could understand differently is refused. Numbers keep their
text: a number with a point or an exponent is a `Real`, others are int. So nothing is rounded while reading. msgspec
reads nearly all bodies, in a seventh of the time. It neither reports a repeated field nor says what is wrong, so the
standard library reads bodies that may repeat a field, and those that msgspec refuses.

boolean                      true, false
tinyint ... bigint, decimal  numbers that the type holds exactly
float, double                numbers; one with a point may be rounded, others must fit exactly
string                       text; anything else as JSON
date, timestamp              ISO 8601; a number is seconds since 1970; a time without a zone is in UTC
binary                       base64
array, map, struct           lists, objects; a struct ignores the fields that it does not name
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from math import isinf
from typing import Any, Final, NoReturn, TypeAlias

import msgspec
from pyspark.sql import types as t

from sparrowmq.errors import ConfigError

_SPACED_NAME: Final = re.compile(rb'"[ \t\r\n]+:')
_INTEGER_RANGES: Final[Mapping[type[t.DataType], range]] = {
    kind: range(-(1 << bits - 1), 1 << bits - 1)
    for kind, bits in ((t.ByteType, 8), (t.ShortType, 16), (t.IntegerType, 32), (t.LongType, 64))
}
_MAX_TYPE_CHARS: Final = 100  # characters of a type in a reason
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FLOAT: Final = struct.Struct("<f")
_DECIMAL_CONTEXT: Final = Context(prec=1000, traps=[InvalidOperation, Inexact])
MISFITS: Final = (ValueError, OverflowError, TypeError, InvalidOperation, Inexact)


Object: TypeAlias = dict[str, Any]


class NoRow(Exception):
    """A body does not become a row; the text is the reason."""


class Real(str):
    """A number with a point or an exponent, as it is written."""

    __slots__ = ()


def read_object(body: bytes | None) -> Object:
    """Return the object in a body. Raises: NoRow."""
    if not body:
        raise NoRow("the body is empty")
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        fields = _FAST_DECODER.decode(body)
        if type(fields) is dict and _has_no_repeats(body, fields):
            return fields
    return _read_slowly(body)


def _has_no_repeats(body: bytes, value: Object) -> bool:
    """Whether no object has a name twice: then there are as many `":` as names. False if texts have some as well."""
    return body.count(b'":') == _count_names(value) and _SPACED_NAME.search(body) is None


def _count_names(value: Any) -> int:
    if type(value) is dict:
        return len(value) + sum(_count_names(item) for item in value.values() if type(item) in (dict, list))
    return sum(_count_names(item) for item in value if type(item) in (dict, list))


def _read_slowly(body: bytes) -> Object:
    """Return the object in a body. Raises: NoRow, with the reason."""
    try:
        fields = _STRICT_DECODER.decode(body.decode())
    except UnicodeDecodeError:
        raise NoRow("the body is not UTF-8") from None
    except RecursionError:
        raise NoRow("the body is nested too deeply") from None
    except json.JSONDecodeError:
        raise NoRow("the body is not JSON") from None
    except ValueError:
        raise NoRow("a number has too many digits") from None
    if not isinstance(fields, dict):
        raise NoRow("the body is JSON, but no object")
    return fields


def to_json_text(value: object) -> str:
    """Return a value as JSON, with its numbers as they were written."""
    if isinstance(value, Real):
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{to_json_text(name)}:{to_json_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(to_json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _without_repeats(pairs: list[tuple[str, Any]]) -> Object:
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    names = set()
    for name, _ in pairs:
        if name in names:
            raise NoRow(f"the field {name} is there twice")
        names.add(name)
    raise AssertionError("one of them is there twice")


def _refuse_constant(name: str) -> NoReturn:
    raise NoRow(f"{name} is not JSON")


_FAST_DECODER: Final = msgspec.json.Decoder(float_hook=Real)
_STRICT_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_without_repeats, parse_float=Real, parse_constant=_refuse_constant
)


Convert: TypeAlias = Callable[[Any], Any]


class Misfit(Exception):
    """A value does not fit: `path` is that of the part that does not, as `.lines[3].price`, and `kind` its type."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(path, kind)
        self.path = path
        self.kind = kind


def converter(kind: t.DataType) -> Convert:
    """Return a function that converts JSON values, but null, or raises Misfit. Raises: ConfigError, an unknown type."""
    convert, type_name = _exact_converter(kind), kind.simpleString()
    if len(type_name) > _MAX_TYPE_CHARS:
        type_name = kind.typeName()

    def convert_value(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except MISFITS:
            raise Misfit("", type_name) from None

    return convert_value


def _exact_converter(kind: t.DataType) -> Convert:
    """Return a function for values that are not null; it raises one of MISFITS."""
    match kind:
        case t.BooleanType():
            return _convert_boolean
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return integer(kind)
        case t.FloatType():
            return lambda value: _nearest_float(value, _round_to_float)
        case t.DoubleType():
            return lambda value: _nearest_float(value, float)
        case t.DecimalType():
            return lambda value: exact_decimal(_require_number(value), kind)
        case t.StringType():
            return _convert_text
        case t.DateType():
            return lambda value: date.fromisoformat(_require_text(value))
        case t.TimestampType():
            return _convert_timestamp
        case t.TimestampNTZType():
            return lambda value: _require_no_zone(datetime.fromisoformat(_require_text(value)))
        case t.BinaryType():
            return lambda value: base64.b64decode(_require_text(value), validate=True)
        case t.ArrayType():
            return array(converter(kind.elementType))
        case t.MapType(keyType=t.StringType()):
            return pairs(_convert_text, converter(kind.valueType))
        case t.StructType():
            return struct_of({field.name: converter(field.dataType) for field in kind.fields})
    raise ConfigError(f"{kind.simpleString()} is no type for JSON; write the column as string, and cast it later")


def _convert_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _require_number(value: Any) -> int | Real:
    if type(value) is not int and not isinstance(value, Real):
        raise TypeError
    return value


def _nearest_float(value: Any, rounded: Callable[[float], float]) -> float:
    number = rounded(float(_require_number(value)))
    if isinf(number) or (type(value) is int and int(number) != value):
        raise OverflowError
    return number


def _round_to_float(value: float) -> float:
    (number,) = _FLOAT.unpack(_FLOAT.pack(value))
    assert isinstance(number, float)
    return number


def _convert_text(value: Any) -> str:
    text = _require_text(value) if type(value) is str else to_json_text(value)
    text.encode()  # half of a surrogate pair is no character
    return text


def _require_text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value


def _convert_timestamp(value: Any) -> datetime:
    if type(value) is int:
        return _EPOCH + timedelta(seconds=value)
    time = datetime.fromisoformat(_require_text(value))
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _require_no_zone(time: datetime) -> datetime:
    if time.tzinfo is not None:
        raise ValueError
    return time


def integer(kind: t.IntegralType) -> Convert:
    values = _INTEGER_RANGES[type(kind)]

    def convert(value: Any) -> int:
        if type(value) is not int or value not in values:
            raise TypeError
        return value

    return convert


def exact_decimal(value: int | str | Decimal, kind: t.DecimalType) -> Decimal:
    """A number with at most `scale` digits behind the point, and `precision` in all; zeros at its end do not count."""
    number = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), context=_DECIMAL_CONTEXT)
    if len(number.as_tuple().digits) > kind.precision:
        raise OverflowError
    return number


def array(convert: Convert) -> Convert:
    def convert_list(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise TypeError
        return [_convert_part(convert, item, f"[{index}]") for index, item in enumerate(value)]

    return convert_list


def pairs(key: Convert, value: Convert) -> Convert:
    def convert_pairs(entries: Any) -> list[tuple[Any, Any]]:
        if not isinstance(entries, dict):
            raise TypeError
        return [
            (_convert_part(key, name, f"[{name!r}]"), _convert_part(value, item, f"[{name!r}]"))
            for name, item in entries.items()
        ]

    return convert_pairs


def struct_of(converts: Mapping[str, Convert]) -> Convert:
    def convert_object(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise TypeError
        return {name: _convert_part(convert, value.get(name), f".{name}") for name, convert in converts.items()}

    return convert_object


def _convert_part(convert: Convert, value: Any, path: str) -> Any:
    try:
        return convert(value)
    except Misfit as misfit:
        raise Misfit(path + misfit.path, misfit.kind) from None
