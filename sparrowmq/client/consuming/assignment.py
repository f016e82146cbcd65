"""The queues that one consumer owns now: taking them over, pulling them, giving them up.

    take over   lock (orderly) -> where does the group stand -> pull
    give up     stop pulling -> finish what is handled (orderly) -> commit -> unlock

The order matters: the next owner must find the lock free only after our offset is committed.
Source: RebalanceImpl.updateProcessQueueTableInRebalance and RebalancePushImpl, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.first_offset import first_offset
from sparrowmq.client.consuming.offset_store import OffsetStore
from sparrowmq.client.consuming.process_queue import ProcessQueue
from sparrowmq.client.consuming.pulling import Puller
from sparrowmq.client.consuming.queue_locks import TRUSTED_S, QueueLocks
from sparrowmq.client.consuming.rebalance import diff
from sparrowmq.client.consuming.settings import ConsumerSettings
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.requests.bodies import ProcessQueueState
from sparrowmq.protocol.subscription import Subscription

log = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]

HANDLING_ENDS_S: Final = 1.0  # how long the owner-to-be waits for what is being handled, before it asks again


class Delivery(Protocol):
    """What gets the messages of owned queues: `Concurrently` or `Orderly`."""

    def arrived(self, owned: ProcessQueue, stored: list[StoredMessage]) -> None: ...

    def renewed(self, owned: ProcessQueue) -> None: ...


@dataclass(slots=True)
class _Owned:
    """An owned queue and the task that pulls it."""

    state: ProcessQueue
    pulling: asyncio.Task[None]


class Assignment:
    """The owned queues of one consumer.

    Args:
        subscriptions: by topic; what is pulled is filtered by them.
        locks: for orderly consumption of a shared group.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        network: Network,
        offsets: OffsetStore,
        delivery: Delivery,
        spawn: Spawn,
        subscriptions: Mapping[str, Subscription],
        locks: QueueLocks | None = None,
    ) -> None:
        self.locks = locks
        self._settings = settings
        self._network = network
        self._offsets = offsets
        self._delivery = delivery
        self._spawn = spawn
        self._subscriptions = subscriptions
        self._owned: dict[MessageQueue, _Owned] = {}

    @property
    def queues(self) -> list[MessageQueue]:
        """What is owned now."""
        return sorted(self._owned)

    def state_of(self, queue: MessageQueue) -> ProcessQueue | None:
        owned = self._owned.get(queue)
        return owned.state if owned else None

    async def apply(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        """Own exactly these queues of the topic; returns False when some could not be had or given up yet.

        Raises:
            SparrowError: a broker could not tell where to begin; the other queues are dealt with all the same.
        """
        change = diff([queue for queue in self._owned if queue.topic == topic], wanted)
        self._stay(wanted)
        given_up = [await self._give_up(queue) for queue in sorted(change.drop)]
        mine = await self.locks.lock(change.add) if self.locks and change.add else change.add
        failure: SparrowError | None = None
        for queue in sorted(mine):
            try:
                offset = await first_offset(queue, self._settings.start, self._offsets, self._network.brokers)
                self._take_over(queue, offset)
            except SparrowError as error:
                failure = error
        if failure is not None:
            raise failure
        return all(given_up) and len(mine) == len(change.add)

    async def restart(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on elsewhere: what is being handled of these queues is forgotten, and delivered again if it lies ahead."""
        mine = {queue: offset for queue, offset in offsets.items() if queue in self._owned}
        for queue, offset in mine.items():
            self._restart(queue, offset)
        await self._offsets.commit(mine)

    async def renew_locks(self) -> None:
        """Renew the broker's locks on all owned queues."""
        if self.locks is None or not self._owned:
            return
        locked = await self.locks.lock(self._owned)
        for queue in locked & self._owned.keys():
            state = self._owned[queue].state
            state.locked_until = self._network.clock.monotonic() + TRUSTED_S
            self._delivery.renewed(state)

    async def commit(self) -> None:
        """Commit where every owned queue stands."""
        states = [owned.state for owned in self._owned.values()]
        await self._offsets.commit({state.queue: state.commit_offset for state in states if state.begun})

    def report(self) -> dict[MessageQueue, ProcessQueueState]:
        """The state of each queue, for an operator."""
        now = self._network.clock.monotonic()
        return {queue: owned.state.report(now) for queue, owned in self._owned.items()}

    def stop_pulling(self) -> None:
        """Let nothing more arrive."""
        for owned in self._owned.values():
            owned.pulling.cancel()

    async def close(self) -> None:
        """Commit and free everything."""
        self.stop_pulling()
        await self.commit()
        for owned in self._owned.values():
            owned.state.drop()
        if self.locks is not None:
            await self.locks.unlock(self._owned)
        self._owned.clear()

    def _take_over(self, queue: MessageQueue, offset: int) -> None:
        state = ProcessQueue(queue, offset, self._settings.flow)
        state.locked_until = self._network.clock.monotonic() + TRUSTED_S
        puller = Puller(
            self._settings.group,
            state,
            self._subscriptions[queue.topic],
            self._network.brokers,
            self._network.clock,
            self._delivery.arrived,
            self._moved,
            count=self._settings.pull_batch,
            commits=not self._settings.broadcast,
        )
        self._owned[queue] = _Owned(state, self._spawn(puller.run(), f"pull {queue}"))
        log.info("group %s consumes %s from offset %d", self._settings.group, queue, offset)

    async def _give_up(self, queue: MessageQueue) -> bool:
        owned = self._owned[queue]
        if self.locks is not None:
            owned.state.is_leaving = True
            try:
                await self._network.clock.wait_for(owned.state.idle(), HANDLING_ENDS_S)
            except TimeoutError:
                return False
        del self._owned[queue]
        owned.pulling.cancel()
        owned.state.drop()
        if owned.state.begun:
            await self._offsets.commit({queue: owned.state.commit_offset})
        self._offsets.forget(queue)
        if self.locks is not None:
            await self.locks.unlock([queue])
        log.info("group %s gave up %s", self._settings.group, queue)
        return True

    def _stay(self, queues: Collection[MessageQueue]) -> None:
        """Those that were about to leave need not any more."""
        for queue in queues:
            owned = self._owned.get(queue)
            if owned is not None and owned.state.is_leaving:
                owned.state.is_leaving = False
                self._delivery.renewed(owned.state)

    def _restart(self, queue: MessageQueue, offset: int) -> None:
        owned = self._owned.pop(queue)
        owned.state.drop()
        owned.pulling.cancel()
        self._take_over(queue, offset)

    def _moved(self, state: ProcessQueue, offset: int) -> None:
        if self.state_of(state.queue) is state:
            self._restart(state.queue, offset)
