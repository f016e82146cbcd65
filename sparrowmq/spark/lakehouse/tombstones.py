"""Messages that take the row of their key out of a table.

an empty body               the first of the message's KEYS is the key
deletes = "op=d"            a message with this property, or with this value in this field of its body
deletes = "gone"            the same as gone=true
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.spark.pipelines.tables.body_reader import BODY

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


@dataclass(frozen=True)
class Tombstones:
    """Finds those of one table. `key`, `deletes`: as `Settled` has them. `kinds`: the columns of bodies."""

    key: str
    deletes: str | None
    kinds: Mapping[str, DataType]

    def marked(
        self, messages: pa.RecordBatch, reason: pa.Array, values: list[pa.Array]
    ) -> tuple[pa.Array, list[pa.Array]]:
        """Return the reasons and the columns, and whether rows delete as one more. No key is a reason, too."""
        if self.key not in self.kinds:
            missing = pa.scalar(f"the body has no {self.key}, which is the key")
            return pc.coalesce(reason, missing), [*values, pa.repeat(False, len(reason))]
        at = list(self.kinds).index(self.key)
        deleted = self._by_mark(messages, values)
        is_empty = pc.fill_null(pc.equal(pc.binary_length(messages.column(BODY)), 0), False)
        if pc.any(is_empty).as_py():
            found = [
                _from_keys(keys, values[at].type) if empty else (why, key)
                for empty, keys, why, key in zip(
                    *(each.to_pylist() for each in (is_empty, messages.column("keys"), reason, values[at])),
                    strict=True,
                )
            ]
            reason = pa.array([why for why, _ in found], pa.string())
            values[at] = pa.array([key for _, key in found], values[at].type)
            deleted = pc.or_(deleted, is_empty)
        lacks = pc.and_(pc.is_null(reason), pc.is_null(values[at]))
        reason = pc.if_else(lacks, pa.scalar(f"the key {self.key} is null"), reason)
        return reason, [*values, deleted]

    def _by_mark(self, messages: pa.RecordBatch, values: list[pa.Array]) -> pa.Array:
        if self.deletes is None:
            return pa.repeat(False, messages.num_rows)
        name, is_given, value = self.deletes.partition("=")
        wanted = value if is_given else "true"
        found = pc.equal(pc.map_lookup(messages.column("properties"), name, "first"), wanted)
        if name in self.kinds:
            field = values[list(self.kinds).index(name)]
            if not pa.types.is_nested(field.type):
                text = pa.binary() if pa.types.is_binary(field.type) else pa.string()
                found = pc.or_kleene(found, pc.equal(field.cast(text), pa.scalar(wanted).cast(text)))
        return pc.fill_null(found, False)


def _from_keys(keys: str | None, kind: pa.DataType) -> tuple[str | None, object]:
    """The reason, or the key, of a message with an empty body."""
    words = (keys or "").split()
    if not words:
        return "an empty body deletes the row of a key, and the message has no KEYS", None
    try:
        key = pa.scalar(words[0]).cast(kind).as_py()
        is_number = pa.types.is_integer(kind) or pa.types.is_decimal(kind)
        # Arrow reads 0x1, and too many digits as another number.
        if not is_number or Decimal(words[0]) == key:
            return None, key
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, InvalidOperation):
        pass
    return f"the body is empty, and its KEYS {words[0]} are no {kind}", None
