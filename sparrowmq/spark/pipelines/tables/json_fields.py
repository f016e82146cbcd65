"""The fields of the JSON objects in bodies; the mode `json` makes columns of them.

A field gets the type of the first batch that has it, and keeps it. Numbers without a point are bigint, other numbers
double. Values that are not a number, text or a truth value stay JSON in a string: objects, lists, and types that differ
within the batch. A later value that does not fit is an error of its row; a later field is a new column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEPT: Final = {"BIGINT": "bigint", "DOUBLE": "double", "FLOAT": "double", "BOOLEAN": "boolean"}
_NAME: Final = re.compile(r"`((?:[^`]|``)*)`|([^:`]+)")


def fields_of(messages: DataFrame) -> dict[str, str]:
    """The fields of the objects in the bodies, in the order of their names, with Spark types."""
    objects = messages.select(f.expr("try_parse_json(cast(body as string))").alias("value"))
    objects = objects.where("schema_of_variant(value) like 'OBJECT<%'")
    found = objects.select(f.expr("schema_of_variant_agg(value)")).first()
    schema = found[0] if found else None
    return dict(_read(schema)) if schema and schema.startswith("OBJECT<") else {}


def _read(schema: str) -> Iterator[tuple[str, str]]:
    """The fields in `OBJECT<a: BIGINT, `b c`: ARRAY<OBJECT<...>>>`; a field that was always null is left out."""
    for part in split_outside(schema[len("OBJECT<") : -1]):
        match = _NAME.match(part)
        assert match is not None, part
        name = match[1].replace("``", "`") if match[1] is not None else match[2]
        kind = part[match.end() :].removeprefix(":").strip()
        if kind != "VOID":
            yield name, "double" if kind.startswith("DECIMAL") else _KEPT.get(kind, "string")


def split_outside(text: str) -> Iterator[str]:
    """The parts between commas that lie outside of angle and round brackets and of quoted names."""
    depth, begin, is_quoted = 0, 0, False
    for at, char in enumerate(text):
        is_quoted ^= char == "`"
        if is_quoted:
            continue
        depth += (char in "<(") - (char in ">)")
        if char == "," and not depth:
            yield text[begin:at].strip()
            begin = at + 1
    if text[begin:].strip():
        yield text[begin:].strip()
