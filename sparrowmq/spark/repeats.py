"""Drops what was stored twice: messages with the same unique id.

A sink with deliveryGuarantee=idempotent stores a message again when Spark repeats a task, and so does any producer that
sends again because it did not hear the answer. Both times the message has its id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrowmq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ID: Final = "msgId"
TIME: Final = "storeTimestamp"


def without_repeats(rows: DataFrame, within: str = "1 hour") -> DataFrame:
    """Rows of the source, each message once.

    `within` is for a stream: how long after a message its repeat may come, by the time when they were stored. Spark
    remembers each id for so long. A batch needs no such limit.

    Raises: ConfigError, the rows have no msgId, or as a stream no storeTimestamp.
    """
    needed = {ID, TIME} if rows.isStreaming else {ID}
    if missing := sorted(needed - set(rows.columns)):
        raise ConfigError(f"to find repeats the rows need {' and '.join(missing)}; read these columns, too")
    if rows.isStreaming:
        return rows.withWatermark(TIME, within).dropDuplicatesWithinWatermark([ID])
    return rows.dropDuplicates([ID])
