"""The columns of a `rocketmq` table: their Spark types, which of them a query wants, and how each is made.

Spark does not tell a Python source which columns a query uses, so a reader makes all that the schema has. Narrow it
with the option `columns`, or with `.schema("body string, queueOffset bigint")`: any part of the columns below, in any
order. `kafkaCompat=true` shows a topic with the columns of Kafka's source instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import pyarrow as pa

from sparrowmq.errors import ConfigError
from sparrowmq.spark.bad_records import bury, tell_damaged
from sparrowmq.spark.columns.records import RecordColumns
from sparrowmq.spark.columns.slices import text
from sparrowmq.spark.options import RowOptions, SourceOptions

# Names of the old Java connector (rocketmq-spark) where it has them.
COLUMNS: Final = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "msgId": "string",
    "offsetMsgId": "string",
    "keys": "string",
    "tags": "string",
    "flag": "int",
    "sysFlag": "int",
    "body": "binary",
    "properties": "map<string,string>",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "bornHost": "string",
    "storeHost": "string",
    "reconsumeTimes": "int",
    "preparedTransactionOffset": "bigint",
    "storeSize": "int",
    "bodyCrc": "int",
}
# RocketMQ's own bookkeeping: there when asked for by name, or all of it by includeInternal=true. To make them
# anyway would cost a query that does not use them a third of its time.
INTERNAL: Final = frozenset(
    {"offsetMsgId", "sysFlag", "bornHost", "storeHost", "preparedTransactionOffset", "storeSize", "bodyCrc"}
)
KAFKA_COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
# What a user's own schema may take as text, if it is text.
_BYTES: Final = frozenset({"body", "key", "value"})
_BODIES: Final = frozenset({"body", "value"})
# A batch is there some six times before Spark has it, in Python and in Arrow.
INFLATED_BYTES: Final = 16 << 20
_LOG_APPEND_TIME: Final = 1  # Kafka's number for a timestamp that the broker set


def columns(options: RowOptions) -> dict[str, str]:
    """The names and Spark types of the table that the options describe.

    Raises:
        ConfigError: the option `columns` names one that does not exist.
    """
    offered = dict(KAFKA_COLUMNS if options.kafka_compat else COLUMNS)
    if not options.include_properties:
        del offered["headers" if options.kafka_compat else "properties"]
    if options.body_type == "string":
        offered["value" if options.kafka_compat else "body"] = "string"
    if options.columns:
        by_lower = {name.lower(): name for name in offered}
        return {name: offered[name] for name in (_known(asked, by_lower) for asked in options.columns)}
    if options.include_internal:
        return offered
    return {name: kind for name, kind in offered.items() if name not in INTERNAL}


def check(asked: Iterable[tuple[str, str]], options: RowOptions) -> None:
    """Refuse columns, as names and Spark types, that are not a part of the table's.

    Raises:
        ConfigError: a column does not exist or has another type.
    """
    offered = KAFKA_COLUMNS if options.kafka_compat else COLUMNS
    by_lower = {name.lower(): name for name in offered}
    for name, kind in asked:
        wanted = offered[_known(name, by_lower)]
        if kind != wanted and not (name.lower() in _BYTES and kind == "string"):
            raise ConfigError(
                f"column {name} is {wanted}, not {kind}: write `{name} {wanted}`, and cast it later"
            )


def _known(name: str, by_lower: Mapping[str, str]) -> str:
    if name.lower() not in by_lower:
        raise ConfigError(f"there is no column {name}; there are {', '.join(by_lower.values())}")
    return by_lower[name.lower()]


class Rows:
    """Makes the rows of one query out of records."""

    def __init__(self, schema: pa.Schema, options: RowOptions) -> None:
        """`schema` is the query's, which `check` has accepted, as Spark's `to_arrow_schema` gives it."""
        self._schema = schema
        makers = _KAFKA_MAKERS if options.kafka_compat else _MAKERS
        self._makers = [makers[name.lower()] for name in schema.names]
        self._shows_bodies = bool(_BODIES.intersection(map(str.lower, schema.names)))
        self._fails = options.fails_at_bad_records
        self._burial: SourceOptions | None = None
        if isinstance(options, SourceOptions) and options.bad_records == "dlq":
            self._burial = options

    def parts(self, records: RecordColumns) -> Iterable[RecordColumns]:
        """The records in parts, of each of which a batch is not too large, however small its bodies are compressed."""
        return records.parts(INFLATED_BYTES) if self._shows_bodies else (records,)

    def batch(
        self, records: RecordColumns, broker: str | None, wanted: pa.Array | None = None
    ) -> pa.RecordBatch:
        """The records of one broker as a batch; all of them, or where the boolean array `wanted` is true.

        Raises:
            BadRecord: a body is damaged, and the options want to know.
            SendFailed, NoRoute, NetworkError: a damaged one could not be stored where the options want it.
        """
        made = [
            text(column) if field.type == pa.string() and column.type == pa.binary() else column
            for field, column in zip(
                self._schema, (make(records, broker) for make in self._makers), strict=True
            )
        ]
        if records.damaged and self._burial is not None and broker is not None:
            wanted = bury(records, broker, wanted, self._burial)
        elif records.damaged:
            tell_damaged(records, broker, wanted, fail=self._fails)
        rows = pa.RecordBatch.from_arrays(made, schema=self._schema)
        return rows if wanted is None else rows.filter(wanted)


Maker = Callable[[RecordColumns, str | None], pa.Array]


def _column(name: str) -> Maker:
    return lambda records, _: records.column(name)


def _constant(value: int | None = None) -> Maker:
    """A value that is the same in every row; the broker's name, if none is given."""
    if value is None:
        return lambda records, broker: pa.repeat(pa.scalar(broker, pa.string()), len(records))
    return lambda records, _: pa.repeat(pa.scalar(value, pa.int32()), len(records))


_MAKERS: Final[dict[str, Maker]] = {
    name.lower(): _constant() if name == "brokerName" else _column(name) for name in COLUMNS
}
_KAFKA_MAKERS: Final[dict[str, Maker]] = {
    "key": lambda records, _: records.column("keys").cast(pa.binary()),
    "value": _column("body"),
    "topic": _column("topic"),
    "partition": _column("queueId"),
    "offset": _column("queueOffset"),
    "timestamp": _column("storeTimestamp"),
    "timestamptype": _constant(_LOG_APPEND_TIME),
    "headers": lambda records, _: records.properties.headers(),
}
