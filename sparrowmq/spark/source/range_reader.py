"""Reads the ranges of one task as Arrow batches.

Small answers of brokers are put together before they are decoded, as batches of some thousand rows are the
cheapest for Spark. Brokers compare only hashes of tags, so tags are compared here once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.client.cluster.blocking_network import BlockingNetwork
from sparrowmq.core.process import freeze_loaded, keep_freed
from sparrowmq.spark.columns.records import RecordColumns
from sparrowmq.spark.options import SourceOptions
from sparrowmq.spark.source.partition_ranges import Range, lose
from sparrowmq.spark.source.pulls import Pulled, Pulls
from sparrowmq.spark.source.row_batches import Rows
from sparrowmq.spark.source.topic_choice import tags_of

BATCH_BYTES: Final = 3 << 18  # an answer of our broker is enough as it is: `Pulls` asks for nearly 1 MiB


def read(
    network: BlockingNetwork, ranges: Sequence[Range], rows: Rows, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """The rows of `ranges`, in order; empty batches are left out.

    Raises:
        RowsLost, RemoteError, NetworkError: as `Pulls.answers`.
        RemoteProtocolError: a broker gave something that is not messages.
        BadRecord: as `Rows.batch`.
    """
    keep_freed()
    freeze_loaded()
    tags = tags_of(options.expression)
    try:
        for pulled in merged(Pulls(network, ranges, options).answers()):
            records = RecordColumns(pulled.body, decompress=options.decompress, internal=options.include_internal)
            if pulled.count is not None and len(records) != pulled.count:
                gone = f"{pulled.count - len(records)} messages of {pulled.range} are gone"
                lose(gone, fail=options.fail_on_data_loss)
            for part in rows.parts(records):
                batch = rows.batch(part, pulled.range.queue.broker_name, wanted(part, pulled, tags))
                if batch.num_rows:
                    yield batch
    finally:
        network.release()


def merged(answers: Iterable[Pulled]) -> Iterator[Pulled]:
    """Answers of one queue after the other, put together to a size that is worth decoding."""
    held: list[Pulled] = []
    size_bytes = 0
    for pulled in answers:
        if held and (held[0].range.queue.broker_name != pulled.range.queue.broker_name or pulled.reaches_beyond):
            yield _merge(held)
            held, size_bytes = [], 0
        held.append(pulled)
        size_bytes += len(pulled.body)
        if size_bytes >= BATCH_BYTES or pulled.reaches_beyond:
            yield _merge(held)
            held, size_bytes = [], 0
    if held:
        yield _merge(held)


def _merge(parts: Sequence[Pulled]) -> Pulled:
    if len(parts) == 1:
        return parts[0]
    counts = [part.count for part in parts if part.count is not None]
    count = sum(counts) if len(counts) == len(parts) else None
    return Pulled(parts[-1].range, b"".join([part.body for part in parts]), count)


def wanted(records: RecordColumns, pulled: Pulled, tags: pa.Array | None) -> pa.Array | None:
    """Which records to show; None for all."""
    matches = None if tags is None else pc.is_in(records.column("tags"), value_set=tags)
    if not pulled.reaches_beyond:
        return matches
    within = pa.array(records.queue_offsets < pulled.range.end)
    return within if matches is None else pc.and_(matches, within)
