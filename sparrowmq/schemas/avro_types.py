"""Avro schemas as trees of types.

fastavro checks a schema, and resolves its names; `parsed` makes a tree of the result. A record that contains itself
appears in the tree again, as the same object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from sparrowmq.errors import ConfigError, InvalidSchema
from sparrowmq.schemas.registry_client import AVRO, Schema

DEEPEST: Final = 100  # of a schema's JSON, and of a value
_LARGEST_TEXT: Final = 4 << 20
PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


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

_LOGICAL: Final = {
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


def parsed(schema: Schema) -> AvroType:
    """Return the tree of a schema. Raises: InvalidSchema; ConfigError, fastavro is not installed."""
    normal, named = normal_form(schema)
    return _Builder(named).build(normal)


def normal_form(schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Return what fastavro makes of a schema, and its named types. Raises: as `parsed`."""
    if schema.kind != AVRO:
        raise InvalidSchema(f"the schema is of the type {schema.kind}, not {AVRO}")
    try:
        from fastavro.schema import SchemaParseException, UnknownType, parse_schema
    except ImportError:
        raise ConfigError("Avro needs the package fastavro: pip install 'sparrowmq[schemas]'") from None
    named: dict[str, Any] = {}
    found: Any = None
    try:
        for _, text in (*schema.references, ("", schema.text)):
            found = parse_schema(_json(text), named_schemas=named)
    except (SchemaParseException, UnknownType, TypeError, ValueError, KeyError, AttributeError) as error:
        raise InvalidSchema(f"it is no Avro schema ({type(error).__name__}: {error})") from None
    return found, named


def _json(text: str) -> Any:
    """Return the JSON of a schema; fastavro does not limit how deep it goes. Raises: ValueError."""
    if len(text) > _LARGEST_TEXT:
        raise ValueError(f"it has more than {_LARGEST_TEXT >> 20} MiB")
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if any(depth > DEEPEST for depth in _depths(found)):
        raise ValueError(f"it is nested deeper than {DEEPEST} levels")
    return found


def _depths(value: Any) -> Iterator[int]:
    """Yield the depth of each object and list."""
    waiting = [(value, 1)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, dict | list):
            yield depth
            inner = each.values() if isinstance(each, dict) else each
            waiting += [(part, depth + 1) for part in inner]


class _Builder:
    """Makes a tree of fastavro's normal form; each named type once."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._made: dict[str, AvroType] = {}

    def build(self, normal: Any) -> AvroType:
        if isinstance(normal, str):
            return self._by_name(normal)
        if isinstance(normal, list):
            return Union(tuple(self.build(each) for each in normal))
        match normal["type"]:
            case "record" | "error":
                return self._record(normal)
            case "enum":
                return self._keep(Enumeration(normal["name"], tuple(normal["symbols"])))
            case "fixed":
                return self._keep(_fixed(normal))
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
        if name not in self._made:
            self.build(self._named[name])
        return self._made[name]

    def _record(self, normal: Mapping[str, Any]) -> Record:
        record = Record(normal["name"])
        self._keep(record)
        for each in normal["fields"]:
            name = each["name"]
            if not isinstance(name, str) or any(name == known for known, _ in record.fields):
                raise InvalidSchema(f"the record {record.name} has a field with the name {name!r}, or two of it")
            record.fields.append((name, self.build(each["type"])))
        return record

    def _keep(self, made: Fixed | Enumeration | Record) -> AvroType:
        self._made[made.name] = made
        return made


def _primitive(name: str, normal: Mapping[str, Any]) -> Primitive:
    logical = normal.get("logicalType", "")
    if name == "bytes" and logical == "decimal":
        return Primitive(name, logical, *_digits(normal))
    return Primitive(name, logical if logical in _LOGICAL.get(name, ()) else "")


def _fixed(normal: Mapping[str, Any]) -> Fixed:
    name, size, logical = normal["name"], normal["size"], normal.get("logicalType", "")
    if not isinstance(size, int) or size < 0:
        raise InvalidSchema(f"it is no Avro schema (the fixed {name} has the size {size!r})")
    if logical == "decimal":
        return Fixed(name, size, logical, *_digits(normal))
    return Fixed(name, size, logical if logical == "uuid" and size == _UUID_BYTES else "")


def _digits(normal: Mapping[str, Any]) -> tuple[int, int]:
    """Return precision and scale. Raises: InvalidSchema."""
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


def choices(branches: Sequence[AvroType]) -> list[AvroType]:
    """Return the branches of a union that hold something."""
    return [each for each in branches if each != Primitive("null")]
