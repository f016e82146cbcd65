"""Columns of a pull body at once, as a batch."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from sparrowmq.spark.columns import RecordColumns

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
COLUMNS: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "msgId": pa.string(),
    "offsetMsgId": pa.string(),
    "keys": pa.string(),
    "tags": pa.string(),
    "flag": pa.int32(),
    "sysFlag": pa.int32(),
    "body": pa.binary(),
    "properties": pa.map_(pa.string(), pa.string()),
    "bornTimestamp": TIMESTAMP,
    "storeTimestamp": TIMESTAMP,
    "bornHost": pa.string(),
    "storeHost": pa.string(),
    "reconsumeTimes": pa.int32(),
    "preparedTransactionOffset": pa.int64(),
    "storeSize": pa.int32(),
    "bodyCrc": pa.int32(),
    "shardingKey": pa.string(),
    "deliverTimestamp": TIMESTAMP,
    "priority": pa.int32(),
}


def decode(body: bytes, names: Sequence[str], *, decompress: bool = True, internal: bool = False) -> pa.RecordBatch:
    """The asked columns of a pull body, in that order; names and types are those of `COLUMNS`.

    Raises: RemoteProtocolError, the body is not whole records, or holds a kind that cannot be shown as rows.
    """
    records = RecordColumns(body, decompress=decompress, internal=internal)
    found = pa.RecordBatch.from_arrays([records.column(name) for name in names], names=list(names))
    for error in records.damaged_rows.values():
        raise error
    return found
