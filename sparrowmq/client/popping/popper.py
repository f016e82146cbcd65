"""Pops one topic at one broker, again and again, while the consumer holds few messages."""

from __future__ import annotations

from collections.abc import Callable

from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.pulling import Asker
from sparrowmq.client.popping.pop_answer import Place
from sparrowmq.client.popping.pop_queue import PopQueue
from sparrowmq.client.popping.popped_message import PoppedMessage
from sparrowmq.client.popping.pops import Pops, Wish


class Popper(Asker):
    """Pops the queues of one topic at one broker.

    Args:
        arrived: gets the messages of each answer.
    """

    def __init__(
        self,
        group: str,
        owned: PopQueue,
        wish: Wish,
        pops: Pops,
        network: Network,
        arrived: Callable[[PopQueue, list[PoppedMessage]], None],
    ) -> None:
        super().__init__(group, owned, wish.subscription, network.brokers, network.clock)
        self._popped = owned
        self._place = Place(owned.queue.topic, owned.queue.broker_name)
        self._wish = wish
        self._pops = pops
        self._arrived = arrived

    async def _ask(self) -> None:
        owned, pace = self._popped, self._popped.pace
        began_ms = owned.last_pull_ms = self._clock.now_ms()
        wish = self._wish._replace(most=owned.room_for)
        messages = await self._pops.pop(self._place, wish, owned)
        self._is_failing = False
        if messages:
            pace.pulls += 1
            pace.pull_ms += max(self._clock.now_ms() - began_ms, 0)
            pace.pulled += len(messages)
            self._arrived(owned, messages)
