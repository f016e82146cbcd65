"""The columns of a `rocketmq` table: their Spark types, and which of them a query wants.

Spark does not tell a Python source which columns a query uses, so a reader makes all that the schema has. Narrow it
with the option `columns`, or with `.schema("body string, queueOffset bigint")`: any part of the columns below, in any
order. `kafkaCompat=true` shows a topic with the columns of Kafka's source instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import RowOptions

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
    "shardingKey": "string",
    "deliverTimestamp": "timestamp",
    "priority": "int",
}
# Columns that are there when asked for by name, or all of them by includeInternal=true: RocketMQ's own bookkeeping,
# and properties of FIFO, delayed and priority messages. To make them anyway would cost a query that does not use them
# a third of its time.
INTERNAL: Final = frozenset(
    {"offsetMsgId", "sysFlag", "bornHost", "storeHost", "preparedTransactionOffset", "storeSize", "bodyCrc"}
    | {"shardingKey", "deliverTimestamp", "priority"}
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


def columns(options: RowOptions) -> dict[str, str]:
    """The names and Spark types of the table that the options describe. Raises: ConfigError."""
    offered = dict(KAFKA_COLUMNS if options.kafka_compat else COLUMNS)
    if not options.include_properties:
        del offered["headers" if options.kafka_compat else "properties"]
    if options.body_type == "string":
        offered["value" if options.kafka_compat else "body"] = "string"
    if options.columns:
        by_lower = {name.lower(): name for name in offered}
        return {name: offered[name] for name in (_canonical_name(column, by_lower) for column in options.columns)}
    if options.include_internal:
        return offered
    return {name: kind for name, kind in offered.items() if name not in INTERNAL}


def check_columns(columns: Iterable[tuple[str, str]], options: RowOptions) -> None:
    """Raises: ConfigError, a column (its name and Spark type) does not exist, or has another type."""
    offered = KAFKA_COLUMNS if options.kafka_compat else COLUMNS
    by_lower = {name.lower(): name for name in offered}
    for name, kind in columns:
        expected = offered[_canonical_name(name, by_lower)]
        if kind != expected and not (name.lower() in _BYTES and kind == "string"):
            raise ConfigError(f"column {name} is {expected}, not {kind}: write `{name} {expected}`, and cast it later")


def _canonical_name(name: str, by_lower: Mapping[str, str]) -> str:
    if name.lower() not in by_lower:
        raise ConfigError(f"there is no column {name}; there are {', '.join(by_lower.values())}")
    return by_lower[name.lower()]
