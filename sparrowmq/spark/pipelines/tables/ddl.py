"""Types of columns as DDL, read and written without Spark: `struct<id:bigint,lines:array<string>>`.

Names within a struct are quoted where they need it. So each type that is written is read again as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql import types as t

_SIMPLE_TYPES: Final[dict[str, t.DataType]] = {
    "boolean": t.BooleanType(),
    "tinyint": t.ByteType(),
    "smallint": t.ShortType(),
    "int": t.IntegerType(),
    "bigint": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "string": t.StringType(),
    "binary": t.BinaryType(),
    "date": t.DateType(),
    "timestamp": t.TimestampType(),
    "timestamp_ntz": t.TimestampNTZType(),
}
_TOKEN: Final = re.compile(r"`((?:[^`]|``)*)`|([A-Za-z0-9_]+)|([<>(),:])|\s+", re.DOTALL)
_WORD: Final = re.compile(r"`((?:[^`]|``)*)`|'[^']*'|\"[^\"]*\"|([<>(),])|([^\s`'\"<>(),:]+)", re.DOTALL)
_STRUCT: Final = re.compile(r"\s*struct\s*<(.*)>\s*", re.DOTALL | re.IGNORECASE)
_PLAIN_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")


def ddl_of(kind: t.DataType) -> str:
    """Return a type as DDL."""
    match kind:
        case t.StructType():
            fields = (f"{_quoted(field.name)}:{ddl_of(field.dataType)}" for field in kind.fields)
            return f"struct<{','.join(fields)}>"
        case t.ArrayType():
            return f"array<{ddl_of(kind.elementType)}>"
        case t.MapType():
            return f"map<{ddl_of(kind.keyType)},{ddl_of(kind.valueType)}>"
    return kind.simpleString()


def type_of(ddl: str) -> t.DataType:
    """Return the type that `ddl_of` wrote. Raises: ValueError, it is none."""
    reader = _Reader(ddl)
    kind = reader.type()
    reader.end()
    return kind


def types_of(fields: Mapping[str, str]) -> dict[str, t.DataType]:
    """Return the types of columns, by name. Raises: as `type_of`."""
    return {name: type_of(ddl) for name, ddl in fields.items()}


def names_in(schema: str) -> list[str]:
    """Return the names of the columns of a schema that a user wrote, as `id bigint, name string`."""
    struct = _STRUCT.fullmatch(schema)
    names, depth, is_name = [], 0, True
    for word in _WORD.finditer(struct[1] if struct else schema):
        quoted, sign, plain = word.groups()
        if sign:
            depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(sign, 0)
            is_name = sign == "," and not depth
        elif is_name:
            names.append(plain or (quoted or "").replace("``", "`"))
            is_name = False
    return names


class _Reader:
    """Reads the tokens of DDL, one after the other."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = list(_tokens(ddl))
        self._position = 0

    def type(self) -> t.DataType:
        word = self._next().lower()
        if word in _SIMPLE_TYPES:
            return _SIMPLE_TYPES[word]
        match word:
            case "decimal":
                precision, scale = self._numbers(2)
                return t.DecimalType(precision, scale)
            case "varchar":
                return t.VarcharType(*self._numbers(1))
            case "char":
                return t.CharType(*self._numbers(1))
            case "array":
                (element,) = self._inner_types(1)
                return t.ArrayType(element)
            case "map":
                key, value = self._inner_types(2)
                return t.MapType(key, value)
            case "struct":
                return t.StructType(self._fields())
        raise self._error()

    def end(self) -> None:
        if self._position < len(self._tokens):
            raise self._error()

    def _numbers(self, count: int) -> list[int]:
        self._expect("(")
        numbers = []
        for index in range(count):
            numbers.append(int(self._next()))
            self._expect(")" if index == count - 1 else ",")
        return numbers

    def _inner_types(self, count: int) -> list[t.DataType]:
        self._expect("<")
        kinds = []
        for index in range(count):
            kinds.append(self.type())
            self._expect(">" if index == count - 1 else ",")
        return kinds

    def _fields(self) -> list[t.StructField]:
        self._expect("<")
        fields: list[t.StructField] = []
        while not fields or self._next() == ",":
            name = self._next()
            self._expect(":")
            fields.append(t.StructField(name, self.type()))
        self._position -= 1
        self._expect(">")
        return fields

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise self._error()

    def _next(self) -> str:
        if self._position == len(self._tokens):
            raise self._error()
        self._position += 1
        return self._tokens[self._position - 1]

    def _error(self) -> ValueError:
        return ValueError(f"{self._ddl!r} is no type")


def _tokens(ddl: str) -> Iterator[str]:
    position = 0
    while position < len(ddl):
        match = _TOKEN.match(ddl, position)
        if match is None:
            raise ValueError(f"{ddl!r} is no type")
        position = match.end()
        quoted, word, sign = match.groups()
        if quoted is not None:
            yield quoted.replace("``", "`")
        elif word or sign:
            yield word or sign


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"
