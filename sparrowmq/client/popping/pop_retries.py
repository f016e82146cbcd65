"""Gives failed messages of a pop back: each becomes visible again after a delay, or ends in the dead-letter queue.

    give back     change the invisible time to the delay: the broker delivers the message again after that
    reject        have its broker bury it, or another one a copy without any tries left; then acknowledge

The delays are those of `Retries`: 10 s for the first failure, and longer for each further one, unless the program wants
another delay. Source: ConsumeMessagePopConcurrentlyService, Java 5.4.
"""

from __future__ import annotations

import asyncio
from typing import Final

from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.client.consuming.retry import FIRST_RETRY_LEVEL
from sparrowmq.client.consuming.sending_back import Retries
from sparrowmq.client.popping.pop_requests import PopRequests
from sparrowmq.client.popping.popped_message import PoppedMessage
from sparrowmq.protocol.delay_levels import DelayLevels

_LEVELS: Final = DelayLevels.parse()


class PopRetries:
    """Gives back the failed messages of one group.

    Args:
        retries: for messages that were not popped, and for copies to the dead-letter queue.
        max_reconsume_times: failures before a message goes to the dead-letter queue.
    """

    def __init__(self, pops: PopRequests, retries: Retries, max_reconsume_times: int) -> None:
        self._pops = pops
        self._retries = retries
        self._max_reconsume_times = max_reconsume_times

    async def give_back(self, message: ReceivedMessage) -> None:
        """Have the message delivered again later. Raises: SparrowError."""
        if not isinstance(message, PoppedMessage):
            await self._retries.give_back(message)
        elif message.reconsume_times >= self._max_reconsume_times:
            await self.reject(message)
        else:
            await self._pops.change_invisible(message, delay_s(message))
            message._is_spent = True

    async def reject(self, message: ReceivedMessage) -> None:
        """Put the message into the group's dead-letter queue, with the reason. Another call makes no other copy.

        A call that comes meanwhile waits for the first, and does what the first has not done.

        Raises:
            SparrowError: it is not in the queue, or not acknowledged.
        """
        if not isinstance(message, PoppedMessage):
            await self._retries.reject(message)
            return
        if message._burial is None:
            message._burial = asyncio.Lock()
        async with message._burial:
            if not message._is_dead:
                await self._retries.bury(message)
                message._is_dead = True
            if not message._is_spent:
                await self._pops.ack([message])


def delay_s(message: ReceivedMessage) -> float:
    """The wait before the next delivery of a message that failed."""
    wish = message._wish
    if wish.delay_s is not None:
        return wish.delay_s
    level = wish.delay_level or FIRST_RETRY_LEVEL + message.reconsume_times
    return _LEVELS.delay_ms(level) / 1000
