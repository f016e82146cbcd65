"""Types of columns as DDL, read and written without Spark: `struct<id:bigint,lines:array<string>>`.

Names within a struct are quoted where they need it. So each type that is written is read again as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from pyspark.sql import types as t

_SIMPLE: Final[dict[str, t.DataType]] = {
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
_WHOLE: Final = re.compile(r"\s*struct\s*<(.*)>\s*", re.DOTALL | re.IGNORECASE)
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
    found = reader.type()
    reader.end()
    return found


def types_of(fields: Mapping[str, str]) -> dict[str, t.DataType]:
    """Return the types of columns, by name. Raises: as `type_of`."""
    return {name: type_of(ddl) for name, ddl in fields.items()}


def names_in(schema: str) -> list[str]:
    """Return the names of the columns of a schema that a user wrote, as `id bigint, name string`."""
    whole = _WHOLE.fullmatch(schema)
    found, depth, is_name = [], 0, True
    for word in _WORD.finditer(whole[1] if whole else schema):
        quoted, sign, plain = word.groups()
        if sign:
            depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(sign, 0)
            is_name = sign == "," and not depth
        elif is_name:
            found.append(plain or (quoted or "").replace("``", "`"))
            is_name = False
    return found


class _Reader:
    """Reads the tokens of DDL, one after the other."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = list(_tokens(ddl))
        self._at = 0

    def type(self) -> t.DataType:
        word = self._next().lower()
        if word in _SIMPLE:
            return _SIMPLE[word]
        match word:
            case "decimal":
                precision, scale = self._numbers(2)
                return t.DecimalType(precision, scale)
            case "varchar":
                return t.VarcharType(*self._numbers(1))
            case "char":
                return t.CharType(*self._numbers(1))
            case "array":
                (element,) = self._within(1)
                return t.ArrayType(element)
            case "map":
                key, value = self._within(2)
                return t.MapType(key, value)
            case "struct":
                return t.StructType(self._fields())
        raise self._wrong()

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise self._wrong()

    def _numbers(self, count: int) -> list[int]:
        self._expect("(")
        found = []
        for at in range(count):
            found.append(int(self._next()))
            self._expect(")" if at == count - 1 else ",")
        return found

    def _within(self, count: int) -> list[t.DataType]:
        self._expect("<")
        found = []
        for at in range(count):
            found.append(self.type())
            self._expect(">" if at == count - 1 else ",")
        return found

    def _fields(self) -> list[t.StructField]:
        self._expect("<")
        found: list[t.StructField] = []
        while not found or self._next() == ",":
            name = self._next()
            self._expect(":")
            found.append(t.StructField(name, self.type()))
        self._at -= 1
        self._expect(">")
        return found

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise self._wrong()

    def _next(self) -> str:
        if self._at == len(self._tokens):
            raise self._wrong()
        self._at += 1
        return self._tokens[self._at - 1]

    def _wrong(self) -> ValueError:
        return ValueError(f"{self._ddl!r} is no type")


def _tokens(ddl: str) -> Iterator[str]:
    at = 0
    while at < len(ddl):
        found = _TOKEN.match(ddl, at)
        if found is None:
            raise ValueError(f"{ddl!r} is no type")
        at = found.end()
        quoted, word, sign = found.groups()
        if quoted is not None:
            yield quoted.replace("``", "`")
        elif word or sign:
            yield word or sign


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"
