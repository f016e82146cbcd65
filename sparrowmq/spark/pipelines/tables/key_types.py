"""The types of columns that can be a key: of their values it is always clear whether two are the same."""

from __future__ import annotations

from typing import Final

from pyspark.sql import types as t

_NO_KEYS: Final = (t.FractionalType, t.ArrayType, t.MapType, t.StructType)


def fault_of_key(key: str, kind: t.DataType) -> str:
    """Why a column cannot be the key, and what to do; "" if it can."""
    if isinstance(kind, _NO_KEYS) and not isinstance(kind, t.DecimalType):
        return f"the key {key} has the type {kind.simpleString()}; choose a column of integers or texts"
    return ""
