"""Reads bodies in Spark's workers: messages become rows, and reasons where there is no row, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from sparrowmq.spark.pipelines.tables.json_columns import Refusal
from sparrowmq.spark.pipelines.tables.json_kinds import demand_few, demand_key
from sparrowmq.spark.pipelines.tables.json_objects import NoRow, Object, read_object
from sparrowmq.spark.pipelines.tables.json_values import Convert, Misfit, converter

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

BODY: Final = "body"

Reader: TypeAlias = "Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]"


class BodyReader:
    """A function for `mapInArrow`: it adds the reason why a body is no row, or the columns of the body.

    Args:
        kinds: the columns, by name.
        added: the reason and the columns, as Arrow fields.
        own: columns that the table has beside them.
        is_closed: whether fields without a column are left out; otherwise they are an error.
        depth: of objects and lists within columns. key: the column of which each value has one row.
    """

    def __init__(
        self,
        kinds: Mapping[str, DataType],
        added: Sequence[pa.Field],
        own: Iterable[str],
        *,
        is_closed: bool,
        depth: int = 0,
        key: str | None = None,
    ) -> None:
        self._kinds = dict(kinds)
        self._added = list(added)
        self._is_closed = is_closed
        self._refusal = Refusal(kinds, own)
        self._depth = depth
        self._key = key

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        converters = {name: converter(kind) for name, kind in self._kinds.items()}
        for batch in batches:
            read = [self._read(body, converters) for body in batch.column(BODY).to_pylist()]
            added = [pa.array([row[at] for row in read], field.type) for at, field in enumerate(self._added)]
            schema = pa.schema([*batch.schema, *self._added])
            yield pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)

    def _read(self, body: bytes | None, converters: Mapping[str, Convert]) -> Sequence[Any]:
        """Return the reason and the values; one of them is null."""
        try:
            fields = read_object(body)
            if not self._is_closed:
                demand_few(fields, self._depth)
                demand_key(fields, self._key)
                if why := self._refusal.why(fields):
                    raise NoRow(why)
            return None, *converted(fields, converters)
        except NoRow as error:
            return str(error), *([None] * len(converters))


def converted(fields: Object, converters: Mapping[str, Convert]) -> list[Any]:
    """Return a value for each column. Raises: NoRow, with all that do not fit."""
    found: list[Any] = []
    misfits = []
    for name, convert in converters.items():
        try:
            found.append(convert(fields.get(name)))
        except Misfit as misfit:
            misfits.append(f"{name}{misfit.path} is no {misfit.kind}")
    if misfits:
        raise NoRow(", ".join(misfits))
    return found
