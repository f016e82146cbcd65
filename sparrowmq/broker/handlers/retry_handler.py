"""CONSUMER_SEND_MSG_BACK (36): a consumer failed to handle a message, so the broker delivers it again later or moves it
to the dead-letter queue.

A dead letter that was popped is acknowledged in the same step. So several requests for it, also of several clients,
make one copy: those that come later find it done.

C++ clients send only offset, group and delay level; every other field may be missing.
Source: SendMessageProcessor.asyncConsumerSendMsgBack, Java 4.9.8.
"""

from __future__ import annotations

import logging
import random
from typing import Final

from sparrowmq.broker.delayed import retry_rules
from sparrowmq.broker.handlers.handler import Handler, SharedParts, system_error
from sparrowmq.broker.pop.pop_queue import PopQueue
from sparrowmq.broker.pop.pop_state import PopState
from sparrowmq.broker.redirect import readdress
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import Perm, StoredMessage
from sparrowmq.protocol.messages.property_names import LONGEST_REASON, Property
from sparrowmq.protocol.requests.bodies import GroupConfig, TopicConfig
from sparrowmq.protocol.requests.group_settings import CLASSIC
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack
from sparrowmq.remoting.handler import ReplyWhenDurable, handles
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.peer import Peer

log = logging.getLogger(__name__)

# Older clients send an arbitrary maxReconsumeTimes (Java: V3_4_9).
MIN_VERSION_WITH_MAX_TIMES: Final = 121


class RetryHandler(Handler):
    """Store again the messages that consumers send back. `longest_ms` is 0 without timers.

    Unlike Java, the answer waits until the message is as safe as a sent one: the consumer commits its offset after it.
    """

    def __init__(self, shared: SharedParts, pops: PopState, longest_ms: int = 0) -> None:
        super().__init__(shared)
        self._pops = pops
        self._longest_ms = longest_ms
        self._lines = LogLimit(self._clock)  # a consumer can give up any number of messages

    @handles(ConsumerSendMsgBack)
    def send_back(self, header: ConsumerSendMsgBack, body: bytes, peer: Peer) -> ReplyWhenDurable | None:
        if not self._topics.permission & Perm.WRITE:
            raise self._topics.forbidden("sending")
        group = self._groups.ensure(header.group)
        if group.retry_queue_nums <= 0:
            return None  # the operator has switched off retries for this group
        message = self._message(header.offset)
        max_times = group.retry_max_times
        if header.max_reconsume_times is not None and peer.version >= MIN_VERSION_WITH_MAX_TIMES:
            max_times = header.max_reconsume_times
        policy = group.group_retry_policy or CLASSIC
        pause_ms = None  # the delay levels count
        if self._longest_ms and policy.is_own:
            pause_ms = min(policy.pause_ms(message.reconsume_times), self._longest_ms)
        back = retry_rules.send_back(message, group.group_name, header.delay_level, max_times, pause_ms)
        if back.is_dead and header.reject_reason:
            back.properties.put(Property.REJECT_REASON, shown(header.reject_reason, LONGEST_REASON))
        popped = self._popped(message, group) if back.is_dead else None
        if popped is not None and popped.is_done(message.queue_offset):
            return None
        cell = popped.cell(message.queue_offset) if popped is not None else None
        tries = message.reconsume_times + max(1, cell.attempt if cell is not None else 0)
        topic = self._target(back, group)
        queue_id = random.randrange(topic.write_queue_nums)
        placed = self._writer.put(readdress(message, topic.topic_name, queue_id, back.properties, tries))
        if popped is not None and cell is not None:
            self._pops.settle(popped, [message.queue_offset])
        self._consumption.count_sent_back(group.group_name, back.properties.get(Property.RETRY_TOPIC) or message.topic)
        if back.is_dead:
            text = "message %s is a dead letter of group %s after %d tries"
            place = shown(message.message_id), group.group_name, tries
            self._lines.log(log, logging.WARNING, text, *place)
        return ReplyWhenDurable(self._store.durability(True), placed.end, None)

    def _popped(self, message: StoredMessage, group: GroupConfig) -> PopQueue | None:
        """Return the state of the message's queue; None if this place was not popped, or is another topic's."""
        queue = self._store.queues.get(message.topic, message.queue_id)
        entry = queue.entry(message.queue_offset) if queue is not None else None
        if entry is None or entry.offset != message.physical_offset:
            return None
        return self._pops.current(message.topic, group.group_name, message.queue_id)

    def _message(self, offset: int) -> StoredMessage:
        view = self._store.record_at(offset)
        if view is None:
            raise system_error(f"look message by offset failed, {offset}")
        return record.decode(view)

    def _target(self, back: retry_rules.SentBack, group: GroupConfig) -> TopicConfig:
        if back.is_dead:
            topic = self._topics.ensure_dlq(group.group_name)
        else:
            topic = self._topics.ensure_retry(group.group_name, group.retry_queue_nums)
        if not topic.perm & Perm.WRITE:
            raise RemoteError(ResponseCode.NO_PERMISSION, f"the topic[{topic.topic_name}] sending message is forbidden")
        return topic
