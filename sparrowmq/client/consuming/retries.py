"""Gives failed messages back to the group. They are delivered again later, or end in the dead-letter queue.

    CONSUMER_SEND_MSG_BACK    the broker copies the message from its own log, and counts
    a copy to %RETRY%group    when the message's broker does not answer, and for orderly consumption

Source: DefaultMQPushConsumerImpl.sendMessageBack and ConsumeMessageOrderlyService.sendMessageBack, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.client.sending.outbox import Outbox
from sparrowmq.client.sending.outgoing import Outgoing
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import Property, SysFlag
from sparrowmq.protocol.names import retry_topic
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack

log = logging.getLogger(__name__)

ANSWER_S: Final = 5.0
FIRST_RETRY_LEVEL: Final = 3  # 10 s by default; each failure takes the next level

_BODY_FLAGS: Final = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK  # the body is copied as it is stored

# They describe the message that failed, not its copy.
_NOT_COPIED: Final = frozenset(
    {Property.TRAN_MSG, Property.REAL_TOPIC, Property.REAL_QID, Property.MIN_OFFSET, Property.MAX_OFFSET}
)


class Retries:
    """Gives back the failed messages of one group.

    Args:
        max_reconsume_times: failures before a message goes to the dead-letter queue.
    """

    def __init__(self, group: str, max_reconsume_times: int, brokers: Brokers, outbox: Outbox) -> None:
        self._group = group
        self._max_reconsume_times = max_reconsume_times
        self._brokers = brokers
        self._outbox = outbox

    async def give_back(self, message: ReceivedMessage) -> None:
        """Have the message delivered again later.

        Raises:
            SparrowError: neither its broker nor another accepted it.
        """
        try:
            session = await self._brokers.of(message.queue.broker_name)
            await session.call(self._request(message), timeout_s=ANSWER_S)
        except SparrowError as error:
            log.info(
                "sending a copy of %r to the retry topic, for it could not be given back: %s", message, error
            )
            await self.send_copy(message, message.reconsume_times + 1)

    async def send_copy(self, message: ReceivedMessage, reconsume_times: int) -> None:
        """Put a copy into the group's retry topic. Raises: SparrowError."""
        stored = message.stored
        level = message.delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
        copied = {name: value for name, value in stored.properties.items() if name not in _NOT_COPIED}
        copied.setdefault(Property.ORIGIN_MESSAGE_ID, message.msg_id)
        copied[Property.RETRY_TOPIC] = message.full_topic
        copied[Property.DELAY] = str(level)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._outbox.put(
            Outgoing(
                retry_topic(self._group),
                stored.body,
                properties.render(copied),
                stored.sys_flag & _BODY_FLAGS,
                stored.flag,
                reconsume_times=reconsume_times,
                max_reconsume_times=self._max_reconsume_times,
                timeout_s=ANSWER_S,
                future=future,
            )
        )
        await future

    def _request(self, message: ReceivedMessage) -> ConsumerSendMsgBack:
        return ConsumerSendMsgBack(
            offset=message.stored.physical_offset,
            group=self._group,
            delay_level=message.delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=message.full_topic,
            unit_mode=False,
            max_reconsume_times=self._max_reconsume_times,
        )
