"""The body of a batch message for many rows at once, made column by column.

    head 20    | body | properties' size 2 | KEYS key TAGS tag ... UNIQ_KEY id       (`protocol/messages/batch.py`)
    numpy        Arrow  numpy                Arrow
         └───────────── joined by Arrow: the envelopes of all rows, end to end ─────┘

So no Python object is made for a row or a cell: 0.5 us a row, a seventh of the time of one row after the other. The
envelopes are a valid batch wherever they are cut between two rows.

Where a row needs a closer look, `envelopes` gives None and its rows are made one by one, which also finds the bad row
and the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.protocol.messages.message import KEY_SEPARATOR
from sparrowmq.protocol.messages.properties import MAX_SIZE_BYTES
from sparrowmq.protocol.messages.property_names import RESERVED, Property

_HEAD: Final = np.dtype([("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body", ">i4")])
_FIXED_BYTES: Final = _HEAD.itemsize + 2
_NAME_END: Final = b"\x01"
_VALUE_END: Final = b"\x02"
_EMPTY: Final = b""
_Piece = Any  # binary values of the rows, or bytes that are the same in each
_Sizes = npt.NDArray[np.int32]
_COLUMNS_OF: Final = {Property.KEYS: "keys", Property.TAGS: "tags"}


class Envelopes:
    """Messages end to end; `len()` counts them."""

    def __init__(self, messages: pa.Array) -> None:
        """`messages` are binary and without nulls."""
        self._bounds, content = _buffers(messages)
        self._content = memoryview(content)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def size_of(self, row: int) -> int:
        """The bytes of one of them."""
        return int(self._bounds[row + 1] - self._bounds[row])

    def end_of(self, begin: int, rows: int, size_bytes: int) -> int:
        """Return the end of the rows from `begin` on that go together at most; at least one row does."""
        max_end = int(self._bounds[begin]) + size_bytes
        end = int(np.searchsorted(self._bounds, max_end, "right")) - 1
        return max(begin + 1, min(end, begin + rows, len(self)))

    def cut(self, begin: int, end: int) -> memoryview:
        """Those from `begin` to `end`, uncopied."""
        return self._content[self._bounds[begin] : self._bounds[end]]


def envelopes(columns: Mapping[str, pa.Array], ids: pa.Array) -> pa.Array | None:
    """The messages of rows as binary, `ids` where they bring none; or None, if a row is not as most are."""
    bodies = columns["body"]
    if bodies.null_count or _needs_rows(columns):
        return None
    try:
        bodies, pieces = _binary(bodies), _property_texts(columns, ids)
        sizes = _piece_sizes(pieces, len(bodies))
        heads = _encode_heads(bodies, sizes, columns.get("flag"))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError, _NeedsRows):
        return None
    head_of_properties = _fixed_size_values(sizes.astype(">i2").view(np.uint8), 2, len(bodies))
    return pc.binary_join_element_wise(heads, bodies, head_of_properties, *pieces, _EMPTY)


def reserved_names(columns: Collection[str]) -> frozenset[str]:
    """The names that no row can set by its `properties`; KEYS and TAGS are free where they have no column."""
    return RESERVED - {name for name, column in _COLUMNS_OF.items() if column not in columns}


class _NeedsRows(Exception):
    """A row needs a closer look."""


def _encode_heads(bodies: pa.Array, property_sizes: _Sizes, flags: pa.Array | None) -> pa.Array:
    sizes = _lengths(bodies)
    heads = np.zeros(len(bodies), _HEAD)
    heads["size"] = _FIXED_BYTES + sizes + property_sizes
    heads["body"] = sizes
    if flags is not None:
        heads["flag"] = pc.fill_null(flags.cast(pa.int32()), 0).to_numpy(zero_copy_only=False)
    return _fixed_size_values(heads.view(np.uint8), _HEAD.itemsize, len(bodies))


def _property_texts(columns: Mapping[str, pa.Array], ids: pa.Array) -> list[_Piece]:
    """The properties that `writer` renders for a row: its own properties, KEYS, TAGS, the sharding key, UNIQ_KEY.

    Returns: what each row's are joined of; the envelopes are joined of it at once, as each join copies all bytes.
    Raises: _NotPlain, pa.ArrowInvalid.
    """
    pieces: list[_Piece] = []
    if is_used(columns, "properties"):
        has_sharding_key = is_used(columns, "shardingKey")
        pieces.append(
            _own_properties(columns["properties"], reserved_names(columns), has_sharding_key=has_sharding_key)
        )
    values_by_name = (
        (Property.KEYS, _join_keys(columns["keys"]) if is_used(columns, "keys") else None),
        (Property.TAGS, columns.get("tags")),
        (Property.SHARDING_KEY, columns.get("shardingKey")),
    )
    for name, values in values_by_name:
        if values is not None and values.null_count < len(values):
            has_value = _has_value(values)
            pairs = pc.binary_join_element_wise(*_property_pieces(name, _check_separable(values)), _EMPTY)
            pieces.append(pc.if_else(has_value, pairs, _EMPTY))
    if is_used(columns, "uniqueKey"):
        unique_keys = _check_separable(columns["uniqueKey"])
        ids = pc.if_else(_has_value(unique_keys), unique_keys, ids)
    return [*pieces, *_property_pieces(Property.UNIQ_KEY, ids)]


def _has_value(values: pa.Array) -> pa.Array:
    return pc.fill_null(pc.greater(pc.binary_length(values), 0), False)


def _property_pieces(name: str, values: pa.Array) -> tuple[bytes, pa.Array, bytes]:
    return name.encode() + _NAME_END, _binary(values), _VALUE_END


def _check_separable(values: pa.Array) -> pa.Array:
    binary = _binary(values)
    if _count_octet(binary, _NAME_END) or _count_octet(binary, _VALUE_END):
        raise _NeedsRows
    return values


def _join_keys(keys: pa.Array) -> pa.Array:
    """Several keys of a row as one text; Kafka's key is bytes. Raises: _NotPlain, pa.ArrowInvalid."""
    if pa.types.is_list(keys.type) or pa.types.is_large_list(keys.type):
        words = keys.flatten()
        if words.null_count or (len(words) and pc.min(pc.binary_length(words)).as_py() == 0):
            raise _NeedsRows
        if pc.any(pc.match_substring(words, KEY_SEPARATOR)).as_py():
            raise _NeedsRows
        # Spark says of `array('k1','k2')` that it has no nulls, and Arrow joins only lists that may have some.
        return pc.binary_join(keys.cast(pa.list_(pa.string())), KEY_SEPARATOR)
    return keys if pa.types.is_string(keys.type) else keys.cast(pa.string())


def _own_properties(maps: pa.Array, left_out: Collection[str], *, has_sharding_key: bool) -> pa.Array:
    """The properties that rows bring, as one text for each row, without some names. Raises: _NeedsRows."""
    bounds = maps.offsets.to_numpy()
    if maps.null_count and np.diff(bounds)[maps.is_null().to_numpy(zero_copy_only=False)].any():
        raise _NeedsRows
    first, count = int(bounds[0]), int(bounds[-1] - bounds[0])
    names, values = maps.keys.slice(first, count), maps.items.slice(first, count)
    if count and pc.min(pc.binary_length(names)).as_py() == 0:
        raise _NeedsRows
    if has_sharding_key and pc.any(pc.equal(names, Property.SHARDING_KEY)).as_py():
        raise _NeedsRows  # the column's value goes in the place of the property's
    is_kept = pc.and_(values.is_valid(), pc.invert(pc.is_in(names, value_set=pa.array(sorted(left_out), pa.string()))))
    if pc.any(pc.and_kleene(is_kept, pc.equal(pc.binary_length(values), 0))).as_py():
        raise _NeedsRows
    pairs = pc.binary_join_element_wise(_binary(names), _NAME_END, _binary(values), _VALUE_END, _EMPTY)
    pairs_kept = pc.if_else(is_kept, pairs, _EMPTY)
    _, bounds_buffer, content = pairs_kept.buffers()
    ends = np.frombuffer(bounds_buffer, np.int32)[pairs_kept.offset :][: count + 1]
    rows = ends[bounds - first]
    text = pa.Array.from_buffers(pa.binary(), len(maps), [None, pa.py_buffer(rows), content])
    pair_count = pc.sum(is_kept).as_py() or 0
    if _count_octet(text, _NAME_END) != pair_count or _count_octet(text, _VALUE_END) != pair_count:
        raise _NeedsRows  # a name or a value has a separator
    return text


def _count_octet(values: pa.Array, octet: bytes) -> int:
    bounds, content = _buffers(values)
    used = np.frombuffer(content, np.uint8)[bounds[0] : bounds[-1]]
    return int(np.count_nonzero(used == octet[0]))


def _piece_sizes(pieces: Sequence[_Piece], rows: int) -> _Sizes:
    sizes = np.zeros(rows, np.int32)
    for piece in pieces:
        sizes += len(piece) if isinstance(piece, bytes) else _lengths(piece)
    if sizes.max() > MAX_SIZE_BYTES:
        raise _NeedsRows
    return sizes


def is_used(columns: Mapping[str, pa.Array], name: str) -> bool:
    """Whether the column is there and says something."""
    return name in columns and columns[name].null_count < len(columns[name])


def _needs_rows(columns: Mapping[str, pa.Array]) -> bool:
    """Whether a row has headers, or cannot be in a batch."""
    if any(is_used(columns, name) for name in ("headers", "deliverTimestamp", "priority")):
        return True
    return is_used(columns, "delayLevel") and bool(pc.any(pc.not_equal(columns["delayLevel"], 0)).as_py())


def _binary(values: pa.Array) -> pa.Array:
    return values if pa.types.is_binary(values.type) else values.cast(pa.binary())


def _lengths(values: pa.Array) -> npt.NDArray[np.int32]:
    return np.diff(_buffers(values)[0])


def _fixed_size_values(content: npt.NDArray[np.uint8], size: int, count: int) -> pa.Array:
    bounds = np.arange(0, size * count + 1, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(content)])


def _buffers(values: pa.Array) -> tuple[npt.NDArray[np.int32], pa.Buffer]:
    _, bounds, content = values.buffers()
    value_bounds = np.frombuffer(bounds, np.int32)[values.offset :][: len(values) + 1]
    return value_bounds, content if content is not None else pa.py_buffer(b"")
