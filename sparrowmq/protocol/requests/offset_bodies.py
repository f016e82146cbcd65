"""The JSON bodies about offsets: those of queues, of consumer groups and of delay levels, and resets.

Source: the classes of org.apache.rocketmq.common.protocol, Java 4.9.8, whose output the tests hold. Members that only
5.x has are None unless they came in.
"""

# ruff: noqa: RUF012 - msgspec gives each body its own empty list or dict

from __future__ import annotations

from typing import Any, Self, cast

from sparrowmq.loop.slices import Steps
from sparrowmq.protocol.java_numbers import Long
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import DataVersion, JournalMark
from sparrowmq.protocol.wire import json
from sparrowmq.protocol.wire.body import Body


class TopicOffset(Body):
    """The oldest and the next offset of a queue."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStats(Body):
    """All queues of a topic, the empty ones too. (Java: TopicStatsTable)"""

    offset_table: dict[MessageQueue, TopicOffset] = {}


class QueueProgress(Body):
    """A group's progress in a queue; `last_timestamp` is when its last message was stored. (Java: OffsetWrapper)

    Of a queue that the group pops, our brokers add the messages that are not acknowledged, and those in flight.
    """

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int | None = None
    last_timestamp: int = 0
    unacknowledged: int | None = None
    in_flight: int | None = None

    @property
    def lag(self) -> int:
        """The messages that are not acknowledged."""
        unacknowledged = self.unacknowledged
        return self.broker_offset - self.consumer_offset if unacknowledged is None else unacknowledged

    def left(self, begin: int) -> int:
        """The messages that the group has still to consume; those before the queue's begin are gone."""
        if self.unacknowledged is not None:
            return self.unacknowledged
        return max(self.broker_offset - max(self.consumer_offset, begin), 0)


class ConsumeStats(Body):
    """A group's progress, and its messages per second."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, QueueProgress] = {}


class BrokerConsumeStats(Body):
    """The progress of all groups of a broker: for each group its topics, one by one. (Java: ConsumeStatsList)"""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str | None = None
    total_diff: int = 0


class QueueTimeSpan(Body):
    """When the oldest, the newest and the last consumed message of a queue were stored; -1 if it is gone.

    `delay_time`: for how many milliseconds the next one has waited.
    """

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


class ConsumeTimeSpans(Body):
    """(Java: QueryConsumeTimeSpanBody)"""

    consume_time_span_set: list[QueueTimeSpan] = []


class CorrectionOffsets(Body):
    """By queue id. (Java: QueryCorrectionOffsetBody)"""

    correction_offsets: dict[Long, int] = {}


class ConsumerOffsets(Body):
    """Queue id to next offset, by "topic@group": code 43 and consumerOffset.json."""

    offset_table: dict[str, dict[Long, int]] = {}
    data_version: DataVersion | None = None
    journal: JournalMark | None = None


class DelayOffsets(Body):
    """Next offset to deliver by delay level: code 45 and delayOffset.json.

    The other fields are SparrowMQ's own; Java ignores them. The offsets are right for the log before `log_offset`. The
    last two are in answers only: the log offset from which slaves must keep records once they have the log up to its
    end of that moment.
    """

    offset_table: dict[Long, int] = {}
    data_version: DataVersion | None = None
    log_offset: int | None = None
    needed: int | None = None
    log_end: int | None = None


class ResetOffsets(Body):
    """The offsets from which consumers go on after a reset. (Java: ResetOffsetBody, ResetOffsetBodyForC)"""

    offset_table: dict[MessageQueue, int] = {}

    @classmethod
    def decode(cls, raw: bytes | bytearray | memoryview) -> Self:
        """From either form. Raises: RemoteProtocolError, as always."""
        table = json.decode(raw, dict[str, Any]).get("offsetTable")
        if not isinstance(table, list):
            return super().decode(raw)
        rows = json.decode(raw, _ResetRows).offset_table
        return cls({MessageQueue(row.topic, row.broker_name, row.queue_id): row.offset for row in rows})

    def encoding_for_c(self) -> Steps[list[bytes]]:
        """Write the form without objects as keys, for requests whose language is CPP. Return its pieces."""
        rows = (_ResetRow(mq.topic, mq.broker_name, mq.queue_id, offset) for mq, offset in self.offset_table.items())
        return _ResetRows(cast(Any, json.Items(rows))).encoding()


class _ResetRow(Body):
    topic: str = ""
    broker_name: str = ""
    queue_id: Long = 0
    offset: int = 0


class _ResetRows(Body):
    offset_table: list[_ResetRow] = []
