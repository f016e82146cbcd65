"""Gives failed messages back to the group. They are delivered again later, or end in the dead-letter queue.

    CONSUMER_SEND_MSG_BACK    the broker copies the message from its own log, and counts
    a copy to %RETRY%group    when the message's broker does not answer, for ordered consumption, for a delay that is
                              not a level, and for a rejected message, which has no tries left: the broker of the copy
                              makes it a dead letter

Source: DefaultMQPushConsumerImpl.sendMessageBack and ConsumeMessageOrderlyService.sendMessageBack, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.consuming.retry import FIRST_RETRY_LEVEL
from sparrowmq.client.sending.send_queue import SendQueue
from sparrowmq.client.sending.send_request import SendRequest
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.delay_fields import nearest_level
from sparrowmq.protocol.messages.message import INT32, Property, SysFlag
from sparrowmq.protocol.messages.property_names import DELAYS, LONGEST_REASON, POP_NOTES, TIMER_NOTES
from sparrowmq.protocol.names import retry_topic
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack

log = logging.getLogger(__name__)
ANSWER_S: Final = 5.0
# They describe the message that failed, not its copy.
_NOT_COPIED: Final = frozenset(
    {
        Property.TRAN_MSG,
        Property.REAL_TOPIC,
        Property.REAL_QID,
        Property.MIN_OFFSET,
        Property.MAX_OFFSET,
        *POP_NOTES,
        *DELAYS,
        *TIMER_NOTES,
    }
)
GIVE_UP_LEVEL: Final = -1  # the delay level of a message that comes no more


class BrokerRedelivery:
    """Gives back the failed messages of one group; the last time into the dead-letter queue."""

    def __init__(self, group: str, max_reconsume_times: int, brokers: Brokers, send_queue: SendQueue) -> None:
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._brokers = brokers
        self._send_queue = send_queue

    async def give_back(self, message: ReceivedMessage) -> None:
        """Have the message delivered again later. Raises: SparrowError, neither its broker nor another accepted it."""
        try:
            session = await self._brokers.of(message.queue.broker_name)
            delay_s = message._settle_options.delay_s
            if delay_s is not None and self._brokers.retries_at_any_time(session):
                delayed = {Property.TIMER_DELAY_MS: str(max(1, round(delay_s * 1000)))}
                await self._send(message, message.reconsume_times + 1, delayed, self._copy_tries)
            else:
                await session.call(self._give_back_request(message), timeout_s=ANSWER_S)
        except SparrowError as error:
            log.info("sending a copy of %r to the retry topic, for it could not be given back: %s", message, error)
            delayed = {Property.DELAY: _level(message)}
            await self._send(message, message.reconsume_times + 1, delayed, self._copy_tries)

    async def reject(self, message: ReceivedMessage) -> None:
        """Put the message into the group's dead-letter queue, with the reason. Raises: SparrowError."""
        reason = {Property.REJECT_REASON: shown(message._settle_options.reason, LONGEST_REASON)}
        await self._send(message, message.reconsume_times + 1, reason, 0)

    async def move_to_dlq(self, message: ReceivedMessage) -> None:
        """As `reject`, for a popped message. Our brokers make one copy, however often and by whomever they are asked.
        Raises: SparrowError, the broker did not answer, or no broker accepted it.
        """
        session = await self._brokers.of(message.queue.broker_name)
        if self._brokers.takes_reasons(session):
            try:
                await session.call(self._dlq_request(message), timeout_s=ANSWER_S)
                return
            except RemoteError as error:
                log.info("sending a copy of %r, for its broker cannot make it a dead letter: %s", message, error)
        await self.reject(message)

    async def send_copy(self, message: ReceivedMessage, reconsume_times: int) -> None:
        """Put a copy into the group's retry topic, to be delivered after a level's delay. Raises: SparrowError."""
        await self._send(message, reconsume_times, {Property.DELAY: _level(message)}, self._max_reconsume_times)

    @property
    def _copy_tries(self) -> int:
        """One more: brokers count the failure of a copy before they compare, and that of a 36 after it."""
        return min(self._max_reconsume_times + 1, INT32)

    async def _send(
        self, message: ReceivedMessage, reconsume_times: int, added_properties: dict[str, str], tries: int
    ) -> None:
        """Send a copy with the added properties to the group's retry topic, with so many tries."""
        stored = message.stored
        copied_properties = {name: value for name, value in stored.properties.items() if name not in _NOT_COPIED}
        copied_properties.setdefault(Property.ORIGIN_MESSAGE_ID, message.msg_id)
        copied_properties[Property.RETRY_TOPIC] = message.full_topic
        copied_properties.update(added_properties)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._send_queue.put(
            SendRequest(
                retry_topic(self._group),
                stored.body,
                properties.render(copied_properties),
                stored.sys_flag & SysFlag.OF_BODY,
                stored.flag,
                reconsume_times=reconsume_times,
                max_reconsume_times=tries,
                timeout_s=ANSWER_S,
                future=future,
                is_timed=Property.TIMER_DELAY_MS in added_properties,
            ),
            may_be_last=True,
        )
        await future

    def _dlq_request(self, message: ReceivedMessage) -> ConsumerSendMsgBack:
        return ConsumerSendMsgBack(
            offset=message.stored.physical_offset,
            group=self._group,
            delay_level=GIVE_UP_LEVEL,
            origin_msg_id=message.msg_id,
            origin_topic=message.full_topic,
            max_reconsume_times=0,
            reject_reason=shown(message._settle_options.reason, LONGEST_REASON),
        )

    def _give_back_request(self, message: ReceivedMessage) -> ConsumerSendMsgBack:
        return ConsumerSendMsgBack(
            offset=message.stored.physical_offset,
            group=self._group,
            delay_level=_wanted_level(message),
            origin_msg_id=message.msg_id,
            origin_topic=message.full_topic,
            unit_mode=False,
            max_reconsume_times=self._max_reconsume_times,
        )


def _wanted_level(message: ReceivedMessage) -> int:
    """The level that a handler wants for the next delivery, or the nearest one; 0 leaves it to the broker."""
    options = message._settle_options
    return options.delay_level or (nearest_level(options.delay_s) if options.delay_s is not None else 0)


def _level(message: ReceivedMessage) -> str:
    return str(_wanted_level(message) or FIRST_RETRY_LEVEL + message.reconsume_times)
