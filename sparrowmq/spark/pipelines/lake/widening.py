"""Types of a table's columns that become wider: each stored value stays exactly what it was.

    tinyint -> smallint -> int -> bigint -> decimal, double
    float -> double     decimal(5,2) -> decimal(9,2)      each of these -> string
    struct<a> -> struct<a,b>      lists, maps and structs of types that become wider

A bigint becomes a double only where each stored value is one that a double holds exactly (up to 2^53);
`widen_values` checks this. Other types never change.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}  # of the largest integer of so many bits


def retypes(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether a wider type holds the values in another form, so that files with the old type must be written again."""
    if not fits(old, new):
        return False
    if kinds.is_struct(old):
        return any(retypes(field.type, new.field(field.name).type) for field in old)
    if _is_list(old):
        return retypes(old.value_type, new.value_type)
    if kinds.is_map(old):
        return retypes(old.item_type, new.item_type)
    return not _is_same(old, new)


def grows(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether a wider type has fields, at any depth, that the old one lacks."""
    if not fits(old, new):
        return False
    if kinds.is_struct(old):
        return new.num_fields > old.num_fields or any(grows(field.type, new.field(field.name).type) for field in old)
    if _is_list(old):
        return grows(old.value_type, new.value_type)
    return kinds.is_map(old) and grows(old.item_type, new.item_type)


def fits(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether a type is the old one, or a wider one."""
    if kinds.is_struct(old):
        names = {field.name for field in new} if kinds.is_struct(new) else set()
        return all(field.name in names and fits(field.type, new.field(field.name).type) for field in old)
    if _is_list(old):
        return _is_list(new) and fits(old.value_type, new.value_type)
    if kinds.is_map(old):
        return bool(kinds.is_map(new) and _is_same(old.key_type, new.key_type) and fits(old.item_type, new.item_type))
    return _is_same(old, new) or _is_wider(old, new)


def _is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    if _is_string(new):
        return bool(kinds.is_integer(old) or kinds.is_floating(old) or kinds.is_decimal(old))
    if kinds.is_integer(old):
        if kinds.is_decimal(new):
            return bool(new.precision - new.scale >= _DIGITS[old.bit_width])
        return bool(kinds.is_float64(new) or (kinds.is_integer(new) and new.bit_width > old.bit_width))
    if kinds.is_decimal(old) and kinds.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    return bool(kinds.is_float32(old) and kinds.is_float64(new))


def _is_same(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether two types are one to readers, however a format writes them."""
    if _is_string(old) or _is_binary(old) or kinds.is_timestamp(old):
        return (
            (_is_string(old) and _is_string(new))
            or (_is_binary(old) and _is_binary(new))
            or (kinds.is_timestamp(old) and kinds.is_timestamp(new))
        )
    if kinds.is_decimal(old) and kinds.is_decimal(new):
        return bool((old.precision, old.scale) == (new.precision, new.scale))
    return bool(old.equals(new))


def _is_string(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_binary_view(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(kinds.is_list(kind) or kinds.is_large_list(kind))


def widen_values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return values in a wider type. Raises: pa.ArrowInvalid, a value is not exactly one of the new type."""
    old = values.type
    if kinds.is_struct(old):
        return _widen_struct(values, kind)
    if _is_list(old):
        begin, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
        items = widen_values(values.values[begin:end], kind.value_type)
        return pa.ListArray.from_arrays(_offsets(values), items, type=kind, mask=values.is_null())
    if kinds.is_map(old):
        return _widen_map(values, kind)
    return values if old.equals(kind) else values.cast(kind, safe=True)


def _widen_struct(values: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    names = {field.name for field in values.type}
    columns = [
        widen_values(values.field(field.name), field.type) if field.name in names else pa.nulls(len(values), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=values.is_null())


def _widen_map(values: pa.MapArray, kind: pa.MapType) -> pa.MapArray:
    begin, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
    keys, items = values.keys[begin:end], values.items[begin:end]
    return pa.MapArray.from_arrays(
        _offsets(values),
        keys.cast(kind.key_type),
        widen_values(items, kind.item_type),
        type=kind,
        mask=values.is_null(),
    )


def _offsets(values: pa.ListArray | pa.MapArray) -> pa.Array:
    begin = values.offsets[0].as_py()
    return pa.array([offset - begin for offset in values.offsets.to_pylist()], pa.int32())
