"""The effect of a reset of offsets, before someone carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparrowmq.client.admin.groups import GroupLag, ResetTo
from sparrowmq.console.page_times import moment_of
from sparrowmq.core.digits import whole_number
from sparrowmq.core.safe_text import counted
from sparrowmq.protocol.messages.message import MessageQueue


@dataclass(frozen=True, slots=True)
class ResetEffect:
    """The effect of a reset: how many messages come again, and how many never come."""

    again: int
    skipped: int

    @staticmethod
    def of(lag: GroupLag, targets: Mapping[MessageQueue, int]) -> ResetEffect:
        committed = {each.queue: each.committed for each in lag.queues}
        steps = [target - committed.get(queue, target) for queue, target in targets.items()]
        return ResetEffect(-sum(step for step in steps if step < 0), sum(step for step in steps if step > 0))

    def text(self, group: str, topic: str) -> str:
        return (
            f"Group {group} would receive {counted(self.again, 'message')} of {topic} again, "
            f"and would skip {self.skipped:,} waiting messages."
        )


def position_of(kind: str, text: str) -> ResetTo:
    """The position that a form names. Raises: ValueError."""
    if kind == "time":
        if (moment := moment_of(text, "time")) is None:
            raise ValueError("the time is missing; write it as 2026-11-20 08:00")
        return moment
    if kind == "offset":
        if (offset := whole_number(text)) is None:
            raise ValueError(f"{text[:40]!r} is not an offset; write a number from 0 on")
        return offset
    return "earliest" if kind == "earliest" else "latest"


def topics_of(lag: GroupLag) -> list[str]:
    """The topics that a group consumes, without those of RocketMQ."""
    return sorted({each.queue.topic for each in lag.queues if not each.queue.topic.startswith("%")})


def skip_text(lag: GroupLag, topic: str) -> str:
    """The effect of skipping a topic's waiting messages."""
    waiting = sum(each.lag for each in lag.queues if each.queue.topic == topic)
    return f"Group {lag.group} will never receive {counted(waiting, 'message')} of {topic}."
