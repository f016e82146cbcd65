"""The rules for a message that a consumer failed to handle: another try later, or the dead-letter queue.

    36 from a consumer     ── send_back ─────┐   tries left: %RETRY%group, delay level 3 + tries (10 s, 30 s, 1 m, ...)
    send to %RETRY%group   ── is_exhausted ──┘   none left:  %DLQ%group

A group's own retry policy (5.x) takes the place of the levels, to the millisecond: TIMER_DELAY_MS. The first failure
writes RETRY_TOPIC (its original topic) and ORIGIN_MESSAGE_ID (its first offset id); later failures keep both.
Source: SendMessageProcessor.consumerSendMsgBack and handleRetryAndDLQ, Java 4.9.8.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparrowmq.protocol import names
from sparrowmq.protocol.messages.message import StoredMessage, with_origin
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.protocol.messages.property_names import DELAYS, TIMER_NOTES, Property

FIRST_RETRY_LEVEL = 3
_LEVEL = frozenset({Property.DELAY})
_OF_DELAYS = frozenset({*DELAYS, *TIMER_NOTES})


@dataclass(frozen=True, slots=True)
class SentBack:
    topic: str  # the group's retry topic, or its dead-letter queue
    properties: Properties  # include the DELAY or TIMER_DELAY_MS that parks a retry
    reconsume_times: int

    @property
    def is_dead(self) -> bool:
        return self.topic.startswith(names.DLQ)


def send_back(
    message: StoredMessage, group: str, delay_level: int, max_reconsume_times: int, pause_ms: int | None = None
) -> SentBack:
    """Return the record to store for a message that a consumer of `group` sent back.

    A `delay_level` of 0 lets the broker choose, by `pause_ms` or the number of tries; below 0 gives up at once.
    """
    dead = delay_level < 0 or message.reconsume_times >= max_reconsume_times
    by_policy = pause_ms is not None and delay_level == 0 and not dead
    # With the time of an earlier try, the message would come at once.
    old = (_OF_DELAYS if by_policy else _LEVEL).__contains__
    properties = {name: value for name, value in message.properties.items() if not old(name)}
    properties = with_origin(properties, message)
    if by_policy:
        properties[Property.TIMER_DELAY_MS] = str(pause_ms)
    elif not dead:
        properties[Property.DELAY] = str(delay_level or FIRST_RETRY_LEVEL + message.reconsume_times)
    topic = names.dlq_topic(group) if dead else names.retry_topic(group)
    return SentBack(topic, Properties(render(properties)), message.reconsume_times + 1)


def is_exhausted(reconsume_times: int | None, asked_max: int | None, group_max: int) -> bool:
    """Whether a message that a client itself sends to a retry topic has no tries left."""
    return (reconsume_times or 0) >= (group_max if asked_max is None else asked_max)
