"""The sides of an audit: places of messages, or of records about messages.

    topic:orders         a topic, as it is now
    store:/var/lib/mq    its stored log; the topic is that of the other side
    table:/lake/orders   what the pipeline `table` made, in any of its formats
    parquet:, csv:, json:/path       any other files: a ledger

Each becomes rows of a key, and of a place where it has one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

from sparrowmq.errors import ConfigError
from sparrowmq.spark.directions import names_of
from sparrowmq.spark.options import ClusterOptions
from sparrowmq.spark.pipelines.running.folders import local_path
from sparrowmq.spark.pipelines.running.own_session import is_steady, reason, unlogged
from sparrowmq.spark.pipelines.running.span import span_of
from sparrowmq.spark.pipelines.tables.row_shapes import COORDINATES, column
from sparrowmq.spark.pipelines.tables.table_settings import read_begun

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEY: Final = "key"
PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")
KINDS: Final = ("topic", "store", "table", "parquet", "csv", "json")

# Options that reach brokers, as the other side may need them.
_OF_BROKERS: Final = names_of(ClusterOptions)
_ROWS_OF_TOPICS: Final = (*PLACE, "msgId", "keys", "tags", "body", "bornTimestamp", "storeTimestamp")


@dataclass(frozen=True, slots=True)
class Side:
    """One side, as `kind:where` names it."""

    kind: str
    where: str

    @classmethod
    def parse(cls, text: str) -> Side:
        """Raises: ConfigError."""
        kind, colon, where = text.partition(":")
        if not colon or kind not in KINDS or not where:
            raise ConfigError(f"{text!r} is no side; write {', '.join(f'{kind}:...' for kind in KINDS)}")
        return cls(kind, where)

    def __str__(self) -> str:
        return f"{self.kind}:{self.where}"

    @property
    def has_places(self) -> bool:
        return self.kind in ("topic", "store", "table")

    def rows(self, spark: SparkSession, by: str, topic: str | None, given: Mapping[str, str]) -> DataFrame:
        """Its rows: `key`, and the columns of PLACE if it has places.

        Args:
            by: an SQL expression over its columns. topic: for a store. given: options of the source.
        Raises:
            ConfigError: it cannot be read, or has no such columns, or the expression has another result each time.
        """
        read = self._read(spark, topic, given) if self.has_places else self._files(spark)
        try:
            key = f.expr(by).cast("string").alias(KEY)
            with unlogged():
                found = read.select(key, *PLACE) if self.has_places else read.select(key)
        except AnalysisException as error:
            raise ConfigError(f"{self} has no {by!r}: its columns are {', '.join(read.columns)}") from error
        if not is_steady(found):
            raise ConfigError(f"{by!r} has another result each time, so it is no key of {self}")
        return found

    def _read(self, spark: SparkSession, topic: str | None, given: Mapping[str, str]) -> DataFrame:
        source = spark.read.format("rocketmq")
        columns = {"columns": ",".join(_ROWS_OF_TOPICS)}
        match self.kind:
            case "topic":
                if "nameServer" not in given:
                    raise ConfigError(f"{self} needs name servers: name_server, or -n")
                of_topic = {**given, "topic": self.where}
                return source.options(**span_of(of_topic).of(of_topic) | columns).load()
            case "store":
                if topic is None:
                    raise ConfigError(f"of {self} which topic? Give `topic`, or one on the other side")
                kept = {name: value for name, value in given.items() if name.lower() not in _OF_BROKERS}
                return source.options(**kept, **columns, topic=topic, path=self._place).load()
        rows = read_begun(spark, local_path(self.where))
        if COORDINATES not in rows.columns:
            return rows
        places = {name.lower() for name in rows.select(f"{COORDINATES}.*").columns}
        return rows.select(*(column(name) for name in rows.columns if name.lower() not in places), f"{COORDINATES}.*")

    def _files(self, spark: SparkSession) -> DataFrame:
        reader = spark.read.format(self.kind).option("header", "true")
        try:
            with unlogged():
                return reader.load(self._place)
        except AnalysisException as error:
            raise ConfigError(f"{self} cannot be read: {reason(error)}") from None

    @property
    def _place(self) -> str:
        """The absolute path of the files, for processes in other folders."""
        return self.where if ":/" in self.where else os.path.abspath(self.where)
