"""Pops whose clients go away while a broker holds them: what they bring is given back.

    a broker in this process    forgets the pop with the call
    a broker behind mqproxy     holds the pop until its time is over, and may answer it with messages; each of them
                                becomes visible again after BACK_MS, not after the invisible time of the call

Without this, each consumer that stops would delay the messages that come within its last long poll.
Source: ReceiveMessageResponseStreamWriter and NACK_INVISIBLE_TIME, Java 5.4.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final, NamedTuple

from sparrowmq.errors import SparrowError
from sparrowmq.grpc.acknowledging import Acknowledging
from sparrowmq.grpc.brokers import Brokers
from sparrowmq.grpc.popped import popped_messages
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.pop_headers import PopMessage
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.request_in_flight import Response

log = logging.getLogger(__name__)

BACK_MS: Final = 1000
MOST: Final = 4000  # pops; the messages of further ones come back after their invisible time
_MARGIN_S: Final = 10
_EMPTY: Final = (
    ResponseCode.NO_MESSAGE,
    ResponseCode.POLLING_TIMEOUT,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
)


class Receive(NamedTuple):
    """A receive: the pop that it is, and where."""

    pop: PopMessage
    broker_name: str
    filter: Subscription


class GivenUp:
    """The pops of a port, and those of them that no client waits for any more."""

    def __init__(self, acks: Acknowledging) -> None:
        self._acks = acks
        self._tasks: set[asyncio.Task[Any]] = set()

    async def pop(self, brokers: Brokers, receive: Receive) -> Response[Any]:
        """The answer to a pop. If its waiter is cancelled, messages that it still brings are given back.

        Raises: SparrowError.
        """
        timeout_s = receive.pop.poll_time / 1000 + _MARGIN_S
        asking = brokers.ask(receive.broker_name, receive.pop, timeout_s=timeout_s, accept=_EMPTY)
        if brokers.near is not None:
            return await asking
        task = asyncio.ensure_future(asking)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if len(self._tasks) < MOST:
                self._keep(asyncio.create_task(self._give_back(brokers, receive, task)))
            else:
                task.cancel()
            raise

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _give_back(self, brokers: Brokers, receive: Receive, asking: asyncio.Future[Response[Any]]) -> None:
        pop = receive.pop
        back = partial(self._acks.renewed, brokers, pop.topic, pop.consumer_group)
        try:
            answer = await asking
            if answer.code:
                return
            for each in popped_messages(answer.header, answer.body, receive.broker_name):
                await back(each.handle, BACK_MS)
        except SparrowError as error:
            text = "messages of %s that no client of %s waits for come back after their invisible time: %s"
            log.info(text, pop.topic, pop.consumer_group, error)
