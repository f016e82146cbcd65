"""`spark.read.format("rocketmq").option("path", store)`: topics out of the files of a commit log, without a broker.

A log holds the messages of all topics in the order of their arrival. So each task reads its part of a file from one end
to the other, and of each block shows what the query wants; the columns are made of those rows alone.

A pattern does not choose the topics that a broker makes for itself: of its own name, of its cluster's name, and
`CLUSTER_REPLY_TOPIC` for replies. No file of a store has these names, but its list of topics has the one for replies,
and so the name of the cluster.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sparrowmq.core.process import freeze_loaded_objects, keep_freed_memory
from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.names import REPLY_SUFFIX
from sparrowmq.spark.columns import Mask, Positions, RecordColumns
from sparrowmq.spark.options import StoredOptions, matches_pattern
from sparrowmq.spark.source.log_files import Block, OpenLogFile, Span, blocks, lose_damaged, plan_spans, sound_mask
from sparrowmq.spark.source.partition_ranges import lose
from sparrowmq.spark.source.row_reader import Rows, expression_tags
from sparrowmq.spark.worker import show_warnings

_UNDECIDED: Final = (SysFlag.PREPARED, SysFlag.ROLLBACK)  # in no queue, as Java's CommitLogDispatcher has it


class StoredReader(DataSourceReader):
    """Reads log files once: a task for each file, or for each part of one. Every worker must see the files."""

    def __init__(self, options: StoredOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options = self._options
        parts = plan_spans(options.path, options.min_partitions, options.start_time_ms, fail=options.fail_on_data_loss)
        return [InputPartition(span) for span in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one span as Arrow batches; a query without spans has one partition, whose value is None."""
        if partition.value is None:
            return
        keep_freed_memory()
        freeze_loaded_objects()
        show_warnings()
        options, span = self._options, partition.value
        rows, record_filter = Rows(self._schema, options), RecordFilter(options, span.file.path)
        try:
            opened = OpenLogFile(span.file)
        except FileNotFoundError:
            return lose(f"{span.file.path} is gone", fail=options.fail_on_data_loss)
        with opened:
            for block in blocks(opened, span, fail=options.fail_on_data_loss):
                records = record_filter.select(self._records(span, block))
                if len(records):
                    for part in rows.parts(records):
                        yield rows.batch(part, options.broker_name)

    def _records(self, span: Span, block: Block) -> RecordColumns:
        """The records of a block, but for damaged ones if the options do not mind them. Raises: RowsLost."""
        origin = span.file.begin + block.begin
        check_crc = self._options.check_crc
        if check_crc is False:
            is_sound = np.ones(len(block.starts), np.bool_)
        else:
            is_sound = sound_mask(block.content, block.starts, block.ends, origin, all_of_them=check_crc is True)
        if is_sound.all():
            with contextlib.suppress(RemoteProtocolError):
                records = self._columns(block, block.starts, block.ends)
                if (records.physical_offsets == block.starts + origin).all():
                    return records
            is_sound = sound_mask(block.content, block.starts, block.ends, origin, all_of_them=True)
        for damaged in np.flatnonzero(~is_sound):
            start, end = block.begin + int(block.starts[damaged]), block.begin + int(block.ends[damaged])
            lose_damaged(span.file, start, end, fail=self._options.fail_on_data_loss)
        return self._columns(block, block.starts[is_sound], block.ends[is_sound])

    def _columns(self, block: Block, starts: Positions, ends: Positions) -> RecordColumns:
        return RecordColumns(
            block.content,
            decompress=self._options.decompress,
            internal=self._options.include_internal,
            within=(starts, ends),
        )


class RecordFilter:
    def __init__(self, options: StoredOptions, log_file: str) -> None:
        self._options = options
        self._tags = expression_tags(options.expression)
        self._broker_topics = {options.broker_name}  # topics that the broker has made for itself
        if options.topic_pattern is not None:
            self._broker_topics |= cluster_names(log_file)

    def select(self, records: RecordColumns) -> RecordColumns:
        mask = self._topic_mask(records) & ~np.isin(records.sys_flags & SysFlag.TRANSACTION_MASK, _UNDECIDED)
        options = self._options
        if options.start_time_ms is not None:
            mask &= records.store_times_ms >= options.start_time_ms
        if options.end_time_ms is not None:
            mask &= records.store_times_ms < options.end_time_ms
        if not mask.all():
            records = records.filter(mask)
        if self._tags is None or not len(records):
            return records
        return records.filter(pc.is_in(records.column("tags"), value_set=self._tags).to_numpy(zero_copy_only=False))

    def _topic_mask(self, records: RecordColumns) -> Mask:
        """A log has few topics, so each one that occurs is looked at once."""
        topics = records.column("topic").dictionary_encode()
        is_wanted = np.array([self._wants(topic) for topic in topics.dictionary.to_pylist()])
        mask: Mask = is_wanted[topics.indices.to_numpy()]
        return mask

    def _wants(self, topic: str) -> bool:
        pattern = self._options.topic_pattern
        if pattern is None:
            return topic in self._options.topics
        return matches_pattern(pattern, topic) and topic not in self._broker_topics and not topic.endswith(REPLY_SUFFIX)


class _Topics(msgspec.Struct):
    topic_config_table: Mapping[str, msgspec.Raw] = msgspec.field(name="topicConfigTable")


def cluster_names(log_file: str) -> frozenset[str]:
    """The names of clusters in the list of topics beside a log; none where there is no list, as beside a copied log."""
    store = os.path.dirname(os.path.dirname(log_file))
    try:
        with open(os.path.join(store, "config", "topics.json"), "rb") as file:
            topics = msgspec.json.decode(file.read(), type=_Topics).topic_config_table
    except (OSError, msgspec.MsgspecError):
        return frozenset()
    return frozenset(name.removesuffix(REPLY_SUFFIX) for name in topics if name.endswith(REPLY_SUFFIX))
