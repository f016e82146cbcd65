"""Pops one topic at one broker, again and again, while the consumer holds few messages."""

from __future__ import annotations

from collections.abc import Callable

from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.pulling import FetchLoop
from sparrowmq.client.popping.pop_answer import PoppedFrom
from sparrowmq.client.popping.pop_queue import PopQueue
from sparrowmq.client.popping.pop_requests import PopInFlight, PopRequests, Wish
from sparrowmq.client.popping.popped_message import PoppedMessage
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.pop_headers import PopMessageReply
from sparrowmq.remoting.request_in_flight import Response


class Popper(FetchLoop):
    """Pops the queues of one topic at one broker.

    Args:
        arrived: gets the messages of each answer.
    """

    def __init__(
        self,
        group: str,
        owned: PopQueue,
        wish: Wish,
        pops: PopRequests,
        network: Network,
        arrived: Callable[[PopQueue, list[PoppedMessage]], None],
    ) -> None:
        super().__init__(group, owned, wish.subscription, network.brokers, network.clock)
        self._popped = owned
        self._place = PoppedFrom(owned.queue.topic, owned.queue.broker_name)
        self._wish = wish
        self._pops = pops
        self._arrived = arrived

    async def _ask(self) -> bool:
        owned = self._popped
        found = False
        owned.last_pull_ms = self._clock.now_ms()
        wish = self._wish_beside(0)
        owned.asked_for = wish.most
        try:
            asked: PopInFlight | None = await self._pops.begin(self._place, wish, owned)
            while asked is not None:
                answer = await self._pops.answer(asked)
                asked = self._take(asked, answer)
                found = found or bool(answer.body)  # also messages whose tags are not wanted
        finally:
            owned.asked_for = 0
        return found

    def _take(self, pop: PopInFlight, answer: Response[PopMessageReply]) -> PopInFlight | None:
        """Take the messages of an answer. Return the next pop if there is room: it is sent before they are read."""
        owned, pace, coming = self._popped, self._popped.pace, pop.request.max_msg_nums
        following = None
        owned.has_more = answer.header.rest_num > 0
        if answer.code == ResponseCode.SUCCESS and owned.has_room_beside(coming):
            wish = self._wish_beside(coming)
            following = self._pops.begin_next(pop, wish)
            owned.asked_for = wish.most
            owned.last_pull_ms = following.request.born_time
        try:
            messages = self._pops.messages_of(pop, answer)
        except SparrowError:
            if following is not None:
                self._pops.leave(following)
            raise
        self._is_failing = False
        if messages:
            pace.pulls += 1
            pace.pull_ms += max(self._clock.now_ms() - pop.request.born_time, 0)
            pace.pulled += len(messages)
            self._arrived(owned, messages)
        return following

    def _wish_beside(self, coming: int) -> Wish:
        """The wish for a pop while so many messages may come that are not held yet."""
        return self._wish._replace(most=self._popped.room_beside(coming))
