"""Messages whose compressed body is damaged, or claims to be too large.

The option badRecords decides: `fail`, `null` (in place of the body), or `dlq` (store the message in dlqTopic as it is,
and leave it out). The error or the log names the place, so that an operator can look at the message
(`mqadmin queryMsgByOffset`) and at its sender.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import fields

import pyarrow as pa

from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.columns.records import RecordColumns
from sparrowmq.spark.options import ClusterOptions, SinkOptions, SourceOptions
from sparrowmq.spark.sink.rejects import letter
from sparrowmq.spark.sink.row_identity import RowIds, Writing
from sparrowmq.spark.sink.sender import Sender
from sparrowmq.spark.worker_network import connect

log = logging.getLogger(__name__)


class BadRecord(SparrowError):
    """A message's body cannot be made of what is stored."""


def tell_damaged(records: RecordColumns, broker: str | None, wanted: pa.Array | None, *, fail: bool) -> None:
    """Log the place of each damaged body whose row is wanted. Raises: BadRecord, if `fail`."""
    for row in _wanted(records, wanted):
        place, reason = _place(records, row, broker), records.damaged[row]
        if fail:
            raise BadRecord(
                f"the body at {place} is damaged: {reason}. To go on with null in its place set badRecords=null"
            ) from reason
        log.warning("the body at %s is damaged, and is null: %s", place, reason)


def bury(records: RecordColumns, broker: str, wanted: pa.Array | None, options: SourceOptions) -> pa.Array | None:
    """Store each damaged message that is wanted in dlqTopic; returns which rows are left.

    A task that is repeated stores them again, with the same unique ids: they are made of the message's place.

    Raises: SendFailed, NoRoute, NetworkError, it could not be stored.
    """
    rows = _wanted(records, wanted)
    if not rows:
        return wanted
    assert options.dlq_topic is not None, "the options demand it"
    sinks = {entry.name: getattr(options, entry.name) for entry in fields(ClusterOptions)}
    with connect(options) as network:
        sender = Sender(network, SinkOptions(**sinks, topic=options.dlq_topic))
        for row in rows:
            place, reason = _place(records, row, broker), records.damaged[row]
            key = RowIds(Writing(place)).take(1, 0)[0].as_py()
            topic = records.column("topic")[row].as_py()
            sender.put(options.dlq_topic, letter(place, str(reason), topic, records.stored_bodies[row].as_py(), key))
            log.warning("the body at %s is damaged, and is in %s: %s", place, options.dlq_topic, reason)
        sender.finish()
    return pa.array(
        [row not in records.damaged and (wanted is None or wanted[row].as_py()) for row in range(len(records))]
    )


def _wanted(records: RecordColumns, wanted: pa.Array | None) -> Sequence[int]:
    return [row for row in records.damaged if wanted is None or wanted[row].as_py()]


def _place(records: RecordColumns, row: int, broker: str | None) -> str:
    topic, queue_id = (records.column(name)[row].as_py() for name in ("topic", "queueId"))
    return f"offset {records.queue_offsets[row]} of {MessageQueue(topic, broker or '?', queue_id)}"
