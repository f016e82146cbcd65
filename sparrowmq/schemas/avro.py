"""Avro schemas, and a reader for Avro bodies from untrusted senders.

fastavro checks a schema and resolves its names; `parse_schema` makes a tree of types of the result. A record that
contains itself appears in the tree again, as the same object.

fastavro (1.13.1) does not read the bodies. 5,000 bytes that nest a recursive record crash the process of its compiled
reader. It reads as many nulls into a list as a body claims, and takes index -1 of an enum for the last symbol. The
reader here reads each value once, in order, within limits. A body must end exactly where its value ends.

    long      zigzag, 7 bits a byte, at most 10 bytes        bytes, string    a long: the length, then as many bytes
    array     blocks: a count, elements; until a count of 0. A negative count is followed by the block's size
    union     a long: which branch, then its value           record           its fields, without anything between

Values are Python's: datetime for timestamps, Decimal for decimals, dict for records and maps.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

from sparrowmq.errors import ConfigError, InvalidBody, InvalidSchema
from sparrowmq.schemas.registry import AVRO, Schema

MAX_DEPTH: Final = 100  # of a schema's JSON, and of a value
_MAX_SCHEMA_BYTES: Final = 4 << 20
PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL_TYPES: Final = {
    "int": ("date", "time-millis"),
    "long": (
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
    ),
    "string": ("uuid",),
}
_UUID_BYTES: Final = 16
MAX_VALUES: Final = 1_000_000  # of a body: fields of its records, elements of its arrays and maps
_MAX_LONG_BYTES: Final = 10
_LONG_VALUES: Final = range(-(1 << 63), 1 << 63)
_INT_VALUES: Final = range(-(1 << 31), 1 << 31)
_MAX_DECIMAL_BYTES: Final = 128
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = datetime(1970, 1, 1)
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()
_DAY_MICROS: Final = 86_400_000_000
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_DECIMAL_CONTEXT: Final = Context(prec=1000)


@dataclass(frozen=True, slots=True)
class Primitive:
    """`logical` is a logical type that we know, or ""."""

    name: str
    logical: str = ""
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Fixed:
    name: str
    size: int
    logical: str = ""
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Enumeration:
    name: str
    symbols: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Array:
    items: AvroType


@dataclass(frozen=True, slots=True)
class Map:
    values: AvroType


@dataclass(frozen=True, slots=True)
class Union:
    branches: tuple[AvroType, ...]


@dataclass(eq=False, slots=True)
class Record:
    """`fields` are complete when the whole schema is parsed."""

    name: str
    fields: list[tuple[str, AvroType]] = field(default_factory=list)


AvroType: TypeAlias = Primitive | Fixed | Enumeration | Array | Map | Union | Record


def parse_schema(schema: Schema) -> AvroType:
    """Return the tree of a schema. Raises: InvalidSchema; ConfigError, fastavro is not installed."""
    normal, named = normal_form(schema)
    return _TreeBuilder(named).build(normal)


def normal_form(schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Return what fastavro makes of a schema, and its named types. Raises: as `parse_schema`."""
    if schema.kind != AVRO:
        raise InvalidSchema(f"the schema is of the type {schema.kind}, not {AVRO}")
    try:
        from fastavro.schema import SchemaParseException, UnknownType, parse_schema
    except ImportError:
        raise ConfigError("Avro needs the package fastavro: pip install 'sparrowmq[schemas]'") from None
    named: dict[str, Any] = {}
    normal: Any = None
    try:
        for _, text in (*schema.references, ("", schema.text)):
            normal = parse_schema(_json(text), named_schemas=named)
    except (SchemaParseException, UnknownType, TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidSchema(f"it is no Avro schema ({type(error).__name__}: {error})") from None
    return normal, named


def _json(text: str) -> Any:
    """Return the JSON of a schema; fastavro does not limit how deep it goes. Raises: ValueError."""
    if len(text) > _MAX_SCHEMA_BYTES:
        raise ValueError(f"it has more than {_MAX_SCHEMA_BYTES >> 20} MiB")
    try:
        parsed = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if any(depth > MAX_DEPTH for depth in _depths(parsed)):
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    return parsed


def _depths(value: Any) -> Iterator[int]:
    """Yield the depth of each object and list."""
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, dict | list):
            yield depth
            inner = item.values() if isinstance(item, dict) else item
            waiting += [(part, depth + 1) for part in inner]


class _TreeBuilder:
    """Makes a tree of fastavro's normal form; each named type once."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._types: dict[str, AvroType] = {}

    def build(self, normal: Any) -> AvroType:
        if isinstance(normal, str):
            return self._by_name(normal)
        if isinstance(normal, list):
            return Union(tuple(self.build(kind) for kind in normal))
        match normal["type"]:
            case "record" | "error":
                return self._record(normal)
            case "enum":
                return self._register(Enumeration(normal["name"], tuple(normal["symbols"])))
            case "fixed":
                return self._register(_fixed_type(normal))
            case "array":
                return Array(self.build(normal["items"]))
            case "map":
                return Map(self.build(normal["values"]))
            case str(name) if name in PRIMITIVES:
                return _primitive(name, normal)
            case inner:
                return self.build(inner)

    def _by_name(self, name: str) -> AvroType:
        if name in PRIMITIVES:
            return Primitive(name)
        if name not in self._types:
            self.build(self._named[name])
        return self._types[name]

    def _record(self, normal: Mapping[str, Any]) -> Record:
        record = Record(normal["name"])
        self._register(record)
        for avro_field in normal["fields"]:
            name = avro_field["name"]
            if not isinstance(name, str) or any(name == known for known, _ in record.fields):
                raise InvalidSchema(f"the record {record.name} has a field with the name {name!r}, or two of it")
            record.fields.append((name, self.build(avro_field["type"])))
        return record

    def _register(self, named_type: Fixed | Enumeration | Record) -> AvroType:
        self._types[named_type.name] = named_type
        return named_type


def _primitive(name: str, normal: Mapping[str, Any]) -> Primitive:
    logical = normal.get("logicalType", "")
    if name == "bytes" and logical == "decimal":
        return Primitive(name, logical, *_precision_and_scale(normal))
    return Primitive(name, logical if logical in _LOGICAL_TYPES.get(name, ()) else "")


def _fixed_type(normal: Mapping[str, Any]) -> Fixed:
    name, size, logical = normal["name"], normal["size"], normal.get("logicalType", "")
    if not isinstance(size, int) or size < 0:
        raise InvalidSchema(f"it is no Avro schema (the fixed {name} has the size {size!r})")
    if logical == "decimal":
        return Fixed(name, size, logical, *_precision_and_scale(normal))
    return Fixed(name, size, logical if logical == "uuid" and size == _UUID_BYTES else "")


def _precision_and_scale(normal: Mapping[str, Any]) -> tuple[int, int]:
    precision, scale = normal.get("precision"), normal.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
        raise InvalidSchema(f"it is no Avro schema (decimal with precision {precision!r}, scale {scale!r})")
    return precision, scale


def short_name(kind: AvroType) -> str:
    """Return the name of a type, as a union's branch is called by it: without a namespace."""
    match kind:
        case Array():
            return "array"
        case Map():
            return "map"
        case Union():
            return "union"
    return kind.name.rpartition(".")[2]


class _BodyError(Exception):
    """A body cannot be read; `path` grows on the way out, such as `.price`, `[3]`, `.lines`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []


class _Body:
    """The bytes, the place of the next one, and how much may follow."""

    __slots__ = ("data", "depth", "position", "values_left")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.values_left = MAX_VALUES
        self.depth = 0

    def take(self, size: int) -> bytes:
        if size < 0:
            raise _BodyError(f"invalid length {size}")
        end = self.position + size
        if end > len(self.data):
            raise _BodyError(f"a value of {size:,} bytes is cut off after {len(self.data) - self.position:,}")
        piece = self.data[self.position : end]
        self.position = end
        return piece

    def count_values(self, values: int) -> None:
        self.values_left -= values
        if self.values_left < 0:
            raise _BodyError(f"it has more than {MAX_VALUES:,} values")


_ReadValue: TypeAlias = Callable[[_Body], Any]


class AvroReader:
    """Reads the bodies of a schema; with `names_branches`, values of unions of several types become {branch: value}."""

    def __init__(self, kind: AvroType, *, names_branches: bool = False) -> None:
        self._read = _Readers(names_branches=names_branches).reader_for(kind)

    def read(self, data: bytes) -> Any:
        """Return the value of a body. Raises: InvalidBody."""
        return self.read_counted(data)[0]

    def read_counted(self, data: bytes) -> tuple[Any, int]:
        """Return the value, and how many values it has inside. Raises: InvalidBody."""
        body = _Body(data)
        try:
            value = self._read(body)
        except _BodyError as error:
            path = "".join(reversed(error.path)).removeprefix(".")
            raise InvalidBody(f"{path}: {error.reason}" if path else error.reason) from None
        except RecursionError:
            raise InvalidBody("it is nested too deeply") from None
        if body.position < len(data):
            raise InvalidBody(f"{len(data) - body.position:,} bytes follow the value")
        return value, MAX_VALUES - body.values_left


class _Readers:
    """Makes a function for each type of a schema; a record's function once, as it may contain itself."""

    def __init__(self, *, names_branches: bool) -> None:
        self._names_branches = names_branches
        self._records: dict[int, _ReadValue] = {}

    def reader_for(self, kind: AvroType) -> _ReadValue:
        match kind:
            case Primitive():
                return _LOGICAL_READERS[kind.logical](kind) if kind.logical else _PRIMITIVE_READERS[kind.name]
            case Fixed():
                return _fixed(kind)
            case Enumeration():
                return _enumeration(kind.symbols)
            case Array():
                return _array(self.reader_for(kind.items))
            case Map():
                return _map(self.reader_for(kind.values))
            case Union():
                return self._union(kind)
        return self._records.get(id(kind)) or self._record(kind)

    def _union(self, kind: Union) -> _ReadValue:
        reads = [self.reader_for(branch) for branch in kind.branches]
        if self._names_branches and len(named_branches(kind)) > 1:
            names = {id(branch): name for name, branch in named_branches(kind)}
            reads = [
                _named(names[id(branch)], read) if id(branch) in names else read
                for branch, read in zip(kind.branches, reads, strict=True)
            ]

        def read(body: _Body) -> Any:
            index = _long(body)
            if not 0 <= index < len(reads):
                raise _BodyError(f"union branch {index} is out of range (0 to {len(reads) - 1})")
            return reads[index](body)

        return read

    def _record(self, kind: Record) -> _ReadValue:
        fields: list[tuple[str, _ReadValue]] = []

        def read(body: _Body) -> dict[str, Any]:
            values: dict[str, Any] = {}
            name = ""
            if body.depth > MAX_DEPTH:
                raise _BodyError(f"it is nested deeper than {MAX_DEPTH} levels")
            body.depth += 1
            body.count_values(len(fields))
            try:
                for name, read_field in fields:
                    values[name] = read_field(body)
            except _BodyError as error:
                error.path.append(f".{name}")
                raise
            body.depth -= 1
            return values

        self._records[id(kind)] = read
        fields += [(name, self.reader_for(field_type)) for name, field_type in kind.fields]
        return read


def named_branches(kind: Union) -> list[tuple[str, AvroType]]:
    """Return the branches of a union other than null, each with a unique name."""
    branches_by_name: dict[str, AvroType] = {}
    for branch in kind.branches:
        if branch == Primitive("null"):
            continue
        name = short_name(branch)
        while name in branches_by_name:  # the same name in another namespace
            name += "_"
        branches_by_name[name] = branch
    return list(branches_by_name.items())


def _named(name: str, read: _ReadValue) -> _ReadValue:
    return lambda body: {name: read(body)}


def _long(body: _Body) -> int:
    data, position = body.data, body.position
    try:
        byte = data[position]
        if byte < 0x80:
            body.position = position + 1
            return (byte >> 1) ^ -(byte & 1)
        number, shift = byte & 0x7F, 7
        while byte >= 0x80:
            position += 1
            byte = data[position]
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > 7 * _MAX_LONG_BYTES:
                raise _BodyError("a number has more than 10 bytes")
    except IndexError:
        raise _BodyError("the body ends early") from None
    body.position = position + 1
    number = (number >> 1) ^ -(number & 1)
    if number not in _LONG_VALUES:
        raise _BodyError("a number has more than 64 bits")
    return number


def _int(body: _Body) -> int:
    number = _long(body)
    if number not in _INT_VALUES:
        raise _BodyError(f"{number} is not an int")
    return number


def _boolean(body: _Body) -> bool:
    (byte,) = body.take(1)
    if byte > 1:
        raise _BodyError(f"the byte {byte} is not a boolean")
    return byte == 1


def _bytes(body: _Body) -> bytes:
    return body.take(_long(body))


def _string(body: _Body) -> str:
    try:
        return body.take(_long(body)).decode()
    except UnicodeDecodeError:
        raise _BodyError("a text is not UTF-8") from None


_PRIMITIVE_READERS: Final[dict[str, _ReadValue]] = {
    "null": lambda body: None,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": lambda body: _FLOAT.unpack(body.take(4))[0],
    "double": lambda body: _DOUBLE.unpack(body.take(8))[0],
    "bytes": _bytes,
    "string": _string,
}


def _enumeration(symbols: tuple[str, ...]) -> _ReadValue:
    def read(body: _Body) -> str:
        index = _long(body)
        if not 0 <= index < len(symbols):
            raise _BodyError(f"enum symbol {index} is out of range (0 to {len(symbols) - 1})")
        return symbols[index]

    return read


def _fixed(kind: Fixed) -> _ReadValue:
    match kind.logical:
        case "uuid":
            return lambda body: UUID(bytes=body.take(kind.size))
        case "decimal":
            return lambda body: _decimal(body.take(kind.size), kind.scale)
    return lambda body: body.take(kind.size)


def _blocks(body: _Body) -> Any:
    while count := _long(body):
        if count < 0:
            _long(body)  # the size of the block, for readers that skip it
            count = -count
        body.count_values(count)
        yield count


def _array(item: _ReadValue) -> _ReadValue:
    def read(body: _Body) -> list[Any]:
        items: list[Any] = []
        try:
            for count in _blocks(body):
                for _ in range(count):
                    items.append(item(body))  # noqa: PERF401 - the path needs to know how many there are
        except _BodyError as error:
            error.path.append(f"[{len(items)}]")
            raise
        return items

    return read


def _map(value: _ReadValue) -> _ReadValue:
    def read(body: _Body) -> dict[str, Any]:
        entries: dict[str, Any] = {}
        key = ""
        try:
            for count in _blocks(body):
                for _ in range(count):
                    key = _string(body)
                    if key in entries:
                        raise _BodyError("the map has this key twice")
                    entries[key] = value(body)
        except _BodyError as error:
            error.path.append(f"[{key!r}]")
            raise
        return entries

    return read


def _decimal(data: bytes, scale: int) -> Decimal:
    if len(data) > _MAX_DECIMAL_BYTES:
        raise _BodyError(f"a decimal has more than {_MAX_DECIMAL_BYTES} bytes")
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _DECIMAL_CONTEXT)


def _date(body: _Body) -> date:
    days = _int(body)
    try:
        return date.fromordinal(_FIRST_DAY + days)
    except (ValueError, OverflowError):
        raise _BodyError(f"day {days} is not in the years 1 to 9999") from None


def _time(micros: int) -> time:
    if not 0 <= micros < _DAY_MICROS:
        raise _BodyError(f"{micros} microseconds after midnight is no time of day")
    return (_LOCAL_EPOCH + timedelta(microseconds=micros)).time()


def _moment(epoch: datetime, micros: int) -> datetime:
    try:
        return epoch + timedelta(microseconds=micros)
    except OverflowError:
        raise _BodyError(f"{micros} microseconds after 1970 is not in the years 1 to 9999") from None


def _uuid(body: _Body) -> UUID:
    text = _string(body)
    try:
        return UUID(text)
    except ValueError:
        raise _BodyError("a text is no UUID") from None


_LOGICAL_READERS: Final[dict[str, Callable[[Primitive], _ReadValue]]] = {
    "date": lambda kind: _date,
    "time-millis": lambda kind: lambda body: _time(1000 * _int(body)),
    "time-micros": lambda kind: lambda body: _time(_long(body)),
    "timestamp-millis": lambda kind: lambda body: _moment(_EPOCH, 1000 * _long(body)),
    "timestamp-micros": lambda kind: lambda body: _moment(_EPOCH, _long(body)),
    "local-timestamp-millis": lambda kind: lambda body: _moment(_LOCAL_EPOCH, 1000 * _long(body)),
    "local-timestamp-micros": lambda kind: lambda body: _moment(_LOCAL_EPOCH, _long(body)),
    "decimal": lambda kind: lambda body: _decimal(_bytes(body), kind.scale),
    "uuid": lambda kind: _uuid,
}
