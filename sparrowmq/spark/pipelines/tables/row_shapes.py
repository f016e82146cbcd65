"""The modes of a table: messages become rows.

    raw      _mq, _day, keys, tags, properties, body: each message as it is
    json     _mq, _day, and a column for each field of the objects in the bodies; new fields become new columns
    schema   _mq, _day, and the columns that the user named, taken from the objects in the bodies
    whole    _day, and the source's own columns: what an archive has

`_mq` says where a row comes from; `_day`, of the store time in UTC, is what tables are partitioned by. A body that does
not become a row becomes a row of the table of errors: its place, the reason, and the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StructType

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines.lake.uncommitted_files import DAY
from sparrowmq.spark.schema import COLUMNS, INTERNAL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COORDINATES: Final = "_mq"
MODES: Final = ("raw", "json", "schema", "whole")

_OWN: Final = (COORDINATES, DAY)
_WHERE: Final = ("topic", "brokerName", "queueId", "queueOffset", "msgId", "bornTimestamp", "storeTimestamp")
_CORRUPT: Final = "_not_as_declared"


class Shape(Protocol):
    """One mode."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it needs from the source."""
        ...

    def split(self, messages: DataFrame) -> tuple[DataFrame, DataFrame | None]:
        """The rows of the table, and those of the table of errors if there can be any."""
        ...


class Raw:
    """Each message as it is."""

    columns: Final = (*_WHERE, "keys", "tags", "properties", "body")

    def split(self, messages: DataFrame) -> tuple[DataFrame, None]:
        return messages.select(*_origin(), "keys", "tags", "properties", "body"), None


class Whole:
    """Each message with all columns of the source."""

    columns: Final = tuple(name for name in COLUMNS if name not in INTERNAL)

    def split(self, messages: DataFrame) -> tuple[DataFrame, None]:
        return messages.select(*self.columns, f.to_date("storeTimestamp").alias(DAY)), None


class Objects:
    """Bodies that are JSON objects, with a column for each of `fields`: names and Spark types, as DDL has them."""

    columns: Final = (*_WHERE, "body")

    def __init__(self, fields: Mapping[str, str]) -> None:
        """Raises: ConfigError, a field has a name that the table needs, or differs from another by case alone."""
        self.fields = dict(fields)
        by_lower: dict[str, str] = {}
        for name in fields:
            if name.lower() in _OWN:
                raise ConfigError(
                    f"the bodies have a field {name}, a column that the table has itself; use mode raw"
                )
            if name.lower() in by_lower:
                raise ConfigError(
                    f"the bodies have fields {by_lower[name.lower()]} and {name}, one column for most readers; "
                    "name the one that is meant in a schema"
                )
            by_lower[name.lower()] = name

    def split(self, messages: DataFrame) -> tuple[DataFrame, DataFrame]:
        declared = ", ".join(
            f"{quoted(name)} {kind}" for name, kind in {**self.fields, _CORRUPT: "string"}.items()
        )
        text = f.col("body").cast("string")
        parsed = f.from_json(text, declared, {"columnNameOfCorruptRecord": _CORRUPT})
        rows = messages.withColumn("text", text).withColumn("parsed", parsed)
        rows = rows.withColumn("is_good", self._is_good())
        taken = [f.col(f"parsed.{quoted(name)}") for name in self.fields]
        good = rows.where("is_good").select(*_origin(), *taken)
        bad = rows.where("not is_good").withColumn("said", f.from_json(text, "map<string,string>"))
        bad = bad.select(*_origin(), self._reason().alias("reason"), "body")
        return good, bad

    def _is_good(self) -> Column:
        is_object = f.col("parsed").isNotNull() & f.col(f"parsed.{_CORRUPT}").isNull()
        return f.coalesce(is_object & f.expr("is_valid_utf8(text)"), f.lit(False))

    def _reason(self) -> Column:
        misfits = [
            f"if(parsed.{quoted(name)} is null and said[{_literal(name)}] is not null, "
            f"{_literal(f'{name} is no {kind}')}, null)"
            for name, kind in self.fields.items()
        ]
        return f.expr(
            "case when body is null or length(body) = 0 then 'the body is empty' "
            "when not is_valid_utf8(text) then 'the body is not UTF-8' "
            "when try_parse_json(text) is null then 'the body is not JSON' "
            "when not schema_of_variant(try_parse_json(text)) like 'OBJECT<%' then 'the body is JSON, but no object' "
            f"else concat_ws(', ', {', '.join(misfits) or 'null'}) end"
        )


def declared_fields(ddl: str) -> dict[str, str]:
    """The columns of a schema that a user wrote, as `id bigint, name string`. Raises: ConfigError."""
    try:
        declared = DataType.fromDDL(ddl)
    except PySparkException as error:
        raise ConfigError(f"{ddl!r} is no schema ({error}); write it as `id bigint, name string`") from None
    if not isinstance(declared, StructType) or not declared.fields:
        raise ConfigError(f"{ddl!r} names no columns; write it as `id bigint, name string`")
    return {field.name: field.dataType.simpleString() for field in declared.fields}


def quoted(name: str) -> str:
    """Return a name quoted for SQL, with any content."""
    return "`" + name.replace("`", "``") + "`"


def _origin() -> list[Column]:
    return [f.struct(*_WHERE).alias(COORDINATES), f.to_date("storeTimestamp").alias(DAY)]


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
