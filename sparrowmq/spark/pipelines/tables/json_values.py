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

_SPACED: Final = re.compile(rb'"[ \t\r\n]+:')
_INTEGER_RANGES: Final[Mapping[type[t.DataType], range]] = {
    kind: range(-(1 << bits - 1), 1 << bits - 1)
    for kind, bits in ((t.ByteType, 8), (t.ShortType, 16), (t.IntegerType, 32), (t.LongType, 64))
}
_MAX_TYPE_CHARS: Final = 100  # characters of a type in a reason
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FLOAT: Final = struct.Struct("<f")
_WIDE: Final = Context(prec=1000, traps=[InvalidOperation, Inexact])
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
        found = _FAST.decode(body)
        if type(found) is dict and _has_no_repeats(body, found):
            return found
    return _read_slowly(body)


def _has_no_repeats(body: bytes, value: Object) -> bool:
    """Whether no object has a name twice: then there are as many `":` as names. False if texts have some as well."""
    return body.count(b'":') == _names(value) and _SPACED.search(body) is None


def _names(value: Any) -> int:
    if type(value) is dict:
        return len(value) + sum(_names(each) for each in value.values() if type(each) in (dict, list))
    return sum(_names(each) for each in value if type(each) in (dict, list))


def _read_slowly(body: bytes) -> Object:
    """Return the object in a body. Raises: NoRow, with the reason."""
    try:
        found = _DECODER.decode(body.decode())
    except UnicodeDecodeError:
        raise NoRow("the body is not UTF-8") from None
    except RecursionError:
        raise NoRow("the body is nested too deeply") from None
    except json.JSONDecodeError:
        raise NoRow("the body is not JSON") from None
    except ValueError:
        raise NoRow("a number has too many digits") from None
    if not isinstance(found, dict):
        raise NoRow("the body is JSON, but no object")
    return found


def as_json(value: object) -> str:
    """Return a value as JSON, with its numbers as they were written."""
    if isinstance(value, Real):
        return value
    if isinstance(value, dict):
        return "{" + ",".join(f"{as_json(name)}:{as_json(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _without_repeats(pairs: list[tuple[str, Any]]) -> Object:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    seen = set()
    for name, _ in pairs:
        if name in seen:
            raise NoRow(f"the field {name} is there twice")
        seen.add(name)
    raise AssertionError("one of them is there twice")


def _refuse_constant(name: str) -> NoReturn:
    raise NoRow(f"{name} is not JSON")


_FAST: Final = msgspec.json.Decoder(float_hook=Real)
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_without_repeats, parse_float=Real, parse_constant=_refuse_constant
)


Convert: TypeAlias = Callable[[Any], Any]


class Misfit(Exception):
    """A value is not of its column's type.

    Attributes:
        path: of the part that does not fit, such as `.lines[3].price`.
        kind: the type of that part.
    """

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(path, kind)
        self.path = path
        self.kind = kind


def converter(kind: t.DataType) -> Convert:
    """Return a function that makes a JSON value one of a type, and raises Misfit; null stays null.

    Raises: ConfigError, no JSON value becomes this type.
    """
    convert, shown = _exact(kind), kind.simpleString()
    if len(shown) > _MAX_TYPE_CHARS:
        shown = kind.typeName()

    def run(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except MISFITS:
            raise Misfit("", shown) from None

    return run


def _exact(kind: t.DataType) -> Convert:
    """Return a function for values that are not null; it raises one of MISFITS."""
    match kind:
        case t.BooleanType():
            return _boolean
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return integer(kind)
        case t.FloatType():
            return lambda value: _nearest(value, _as_float)
        case t.DoubleType():
            return lambda value: _nearest(value, float)
        case t.DecimalType():
            return lambda value: exact_decimal(_number(value), kind)
        case t.StringType():
            return _string
        case t.DateType():
            return lambda value: date.fromisoformat(_text(value))
        case t.TimestampType():
            return _timestamp
        case t.TimestampNTZType():
            return lambda value: _local(datetime.fromisoformat(_text(value)))
        case t.BinaryType():
            return lambda value: base64.b64decode(_text(value), validate=True)
        case t.ArrayType():
            return array(converter(kind.elementType))
        case t.MapType(keyType=t.StringType()):
            return pairs(_string, converter(kind.valueType))
        case t.StructType():
            return struct_of({field.name: converter(field.dataType) for field in kind.fields})
    raise ConfigError(f"{kind.simpleString()} is no type for JSON; write the column as string, and cast it later")


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _number(value: Any) -> int | Real:
    if type(value) is not int and not isinstance(value, Real):
        raise TypeError
    return value


def _nearest(value: Any, rounded: Callable[[float], float]) -> float:
    found = rounded(float(_number(value)))
    if isinf(found) or (type(value) is int and int(found) != value):
        raise OverflowError
    return found


def _as_float(value: float) -> float:
    (found,) = _FLOAT.unpack(_FLOAT.pack(value))
    assert isinstance(found, float)
    return found


def _string(value: Any) -> str:
    found = _text(value) if type(value) is str else as_json(value)
    found.encode()  # half of a surrogate pair is no character
    return found


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value


def _timestamp(value: Any) -> datetime:
    if type(value) is int:
        return _EPOCH + timedelta(seconds=value)
    found = datetime.fromisoformat(_text(value))
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _local(time: datetime) -> datetime:
    if time.tzinfo is not None:
        raise ValueError
    return time


# Of bodies in Avro and Protobuf, too --------------------------------------------------------------------------------


def integer(kind: t.IntegralType) -> Convert:
    held = _INTEGER_RANGES[type(kind)]

    def run(value: Any) -> int:
        if type(value) is not int or value not in held:
            raise TypeError
        return value

    return run


def exact_decimal(value: int | str | Decimal, kind: t.DecimalType) -> Decimal:
    """A number with at most `scale` digits behind the point, and `precision` in all; zeros at its end do not count."""
    found = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), context=_WIDE)
    if len(found.as_tuple().digits) > kind.precision:
        raise OverflowError
    return found


def array(convert: Convert) -> Convert:
    def run(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise TypeError
        return [_part(convert, each, f"[{at}]") for at, each in enumerate(value)]

    return run


def pairs(key: Convert, value: Convert) -> Convert:
    def run(entries: Any) -> list[tuple[Any, Any]]:
        if not isinstance(entries, dict):
            raise TypeError
        return [(_part(key, name, f"[{name!r}]"), _part(value, each, f"[{name!r}]")) for name, each in entries.items()]

    return run


def struct_of(converts: Mapping[str, Convert]) -> Convert:
    def run(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise TypeError
        return {name: _part(convert, value.get(name), f".{name}") for name, convert in converts.items()}

    return run


def _part(convert: Convert, value: Any, path: str) -> Any:
    try:
        return convert(value)
    except Misfit as misfit:
        raise Misfit(path + misfit.path, misfit.kind) from None
