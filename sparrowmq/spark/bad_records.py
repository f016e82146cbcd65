"""Messages that are there but cannot be shown: a compressed body that is damaged, or claims to hold too much.

What becomes of them the option badRecords says. Either way the place is told, so that somebody can look at the message
(`mqadmin queryMsgByOffset`) and at whoever sent it.
"""

from __future__ import annotations

import logging

import pyarrow as pa

from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.columns.records import RecordColumns

log = logging.getLogger(__name__)


class BadRecord(SparrowError):
    """A message's body cannot be made of what is stored."""


def tell_damaged(records: RecordColumns, broker: str | None, wanted: pa.Array | None, *, fail: bool) -> None:
    """Say of each damaged body where it is, if its row is wanted. Raises: BadRecord, if `fail`."""
    for row, reason in records.damaged.items():
        if wanted is not None and not wanted[row].as_py():
            continue
        topic, queue_id = (records.column(name)[row].as_py() for name in ("topic", "queueId"))
        place = f"offset {records.queue_offsets[row]} of {MessageQueue(topic, broker or '?', queue_id)}"
        if fail:
            raise BadRecord(
                f"the body at {place} is damaged: {reason}. To go on with null in its place set badRecords=null"
            ) from reason
        log.warning("the body at %s is damaged, and is null: %s", place, reason)
