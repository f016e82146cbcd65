"""The queues that one consumer owns now: taking them over, pulling them, giving them up.

    take over   lock (ordered) -> read the group's offset -> call the program's listener -> pull
    give up     stop pulling -> keep back untaken messages -> let handlers finish -> call the program's listener
                -> commit -> unlock

The order matters: the next owner must find the lock free only after our offset is committed. An ordered queue is kept
until nothing of it is handled; any other is given up after a second, and what is still handled then comes twice.

Only the member with a broker's lock on a queue consumes it in order. A lock lasts 60 s at the broker. The client renews
it every 20 s, and trusts it for 30 s: a consumer without a connection stops before the broker gives the queue to
another member.

A closing consumer repeats its last commits and unlocks for 2.5 s if a master of our route refuses them because it is a
slave now. It does not wait for a master that does not answer, or is dead. Otherwise the next owner of a queue would get
handled messages again, and wait 60 s for a lock. Source: RebalanceImpl.updateProcessQueueTableInRebalance, its lockAll,
and RebalancePushImpl, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from sparrowmq.client.arguments import check_offset, check_queues, is_stray
from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.consume_rate import ConsumeStats
from sparrowmq.client.consuming.consumer_settings import ConsumerSettings, QueuesChanged
from sparrowmq.client.consuming.delivery import ConcurrentDelivery, OrderedDelivery
from sparrowmq.client.consuming.offset_store import OffsetStore, first_offset, newest
from sparrowmq.client.consuming.process_queue import ProcessQueue
from sparrowmq.client.consuming.pulling import FetchLoop, Puller
from sparrowmq.client.consuming.rebalance import diff
from sparrowmq.client.consuming.received_message import ConsumeHooks
from sparrowmq.client.sending.send_result import is_from_slave
from sparrowmq.errors import AccessDenied, ConfigError, SparrowError
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.client_bodies import LockedQueues, LockQueues, ProcessQueueState
from sparrowmq.protocol.requests.headers import LockBatchMq, UnlockBatchMq
from sparrowmq.protocol.subscription import Subscription

log = logging.getLogger(__name__)
HANDLING_ENDS_S: Final = 1.0  # the next owner waits so long for messages that are being handled
RENEW_S: Final = 20.0
TRUSTED_S: Final = 30.0
RENEW_AGAIN_S: Final = 1.0  # after a renewal that failed
ANSWER_S: Final = 1.0
ELECTED_S: Final = 2.5  # leaving may take 3 s
PAUSE_S: Final = 0.25


class Assignment:
    """The owned queues of one consumer. `on_failure` is called when a queue can never be pulled with its filter."""

    def __init__(
        self,
        settings: ConsumerSettings,
        network: Network,
        offsets: OffsetStore,
        delivery: ConcurrentDelivery | OrderedDelivery,
        spawn: Spawn,
        subscriptions: Mapping[str, Subscription],
        *,
        on_failure: Callable[[SparrowError], object],
        stats: ConsumeStats,
        locks: QueueLocks | None = None,
        hooks: Sequence[ConsumeHooks] = (),
    ) -> None:
        self.locks = locks
        self._settings = settings
        self._network = network
        self._offsets = offsets
        self._delivery = delivery
        self._spawn = spawn
        self._subscriptions = subscriptions
        self._on_failure = on_failure
        self._stats = stats
        self._hooks = hooks
        self._owned_queues: dict[MessageQueue, ProcessQueue] = {}
        self._are_new_paused = False

    @property
    def queues(self) -> list[MessageQueue]:
        return sorted(self._owned_queues)

    def process_queue_of(self, queue: MessageQueue) -> ProcessQueue | None:
        return self._owned_queues.get(queue)

    async def apply(self, topic: str, queues: Collection[MessageQueue]) -> bool:
        """Own exactly these queues of the topic. Return False if some could not be taken over or given up yet.
        Raises: SparrowError, a broker did not answer with the offset; the other queues are taken over all the same.
        """
        change = diff([queue for queue in self._owned_queues if queue.topic == topic], queues)
        self._cancel_leaving(queues)
        if self.locks is not None:
            await self.locks.unlock_unused({*self._owned_queues, *queues})
        all_given_up = await self._give_up(change.drop)
        asked_at = self._network.clock.monotonic()
        lockable = await self.locks.lock(change.add) if self.locks and change.add else change.add
        last_error: SparrowError | None = None
        taken_queues: list[MessageQueue] = []
        for queue in sorted(lockable):
            try:
                self._take_over(queue, await self._first_offset(queue), asked_at + TRUSTED_S)
                taken_queues.append(queue)
            except SparrowError as error:
                last_error = error
        try:
            await notify_listener(self._settings.on_assigned, taken_queues, self._network)
        finally:
            for queue in taken_queues:
                self._pull(queue)
        if last_error is not None:
            raise last_error
        return all_given_up and len(lockable) == len(change.add)

    def refilter(self, topic: str) -> None:
        """Pull with the topic's new filter, and drop the pulls with the former one."""
        for queue, process_queue in self._owned_queues.items():
            if queue.topic == topic and process_queue.pull_task is not None:
                process_queue.stop_pulling()
                self._pull(queue)

    def pause(self, queues: Iterable[MessageQueue] | None) -> None:
        """Deliver no messages of these queues, or of all and of those to come. Raises: ConfigError."""
        self._are_new_paused |= queues is None
        for queue in self._checked_queues(queues):
            process_queue = self._owned_queues[queue]
            process_queue.is_paused = True
            process_queue.stop_pulling()
            self._delivery.withdraw(process_queue)

    def resume(self, queues: Iterable[MessageQueue] | None) -> None:
        """Undo `pause`. Raises: ConfigError."""
        self._are_new_paused &= queues is not None
        for queue in self._checked_queues(queues):
            process_queue = self._owned_queues[queue]
            process_queue.is_paused = False
            self._delivery.offer_withdrawn(process_queue)
            self._pull(queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset, as `restart` does. The next commit commits it. Raises: ConfigError."""
        check_offset(offset)
        (full_queue,) = self._checked_queues([queue])
        self._restart(full_queue, offset)
        self._owned_queues[full_queue].has_begun = True

    def position(self, queue: MessageQueue) -> int:
        """The offset up to which everything is settled. Raises: ConfigError."""
        (full_queue,) = self._checked_queues([queue])
        return self._owned_queues[full_queue].commit_offset

    async def lag(self) -> dict[MessageQueue, int]:
        """The number of messages in each queue that are not settled, filtered ones too. Raises: SparrowError."""
        ends = {queue: await newest(queue, self._network.brokers) for queue in self.queues}
        return {queue: max(end - self.position(queue), 0) for queue, end in ends.items() if queue in self._owned_queues}

    async def restart(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at other offsets. Messages that are being handled are forgotten; those ahead are delivered again."""
        own_offsets = {queue: offset for queue, offset in offsets.items() if queue in self._owned_queues}
        for queue in offsets:
            self._offsets.moved(queue)
        for queue, offset in own_offsets.items():
            self._restart(queue, offset)
        await self._offsets.commit(own_offsets)

    async def renew_locks(self) -> bool:
        """Renew the broker's locks on all owned queues. Return whether it has answered that all are locked."""
        if self.locks is None or not self._owned_queues:
            return True
        asked_at = self._network.clock.monotonic()
        answers = await self.locks.ask(self._owned_queues)
        self.locks.note_unused({queue for queue in answers.keys() - self._owned_queues.keys() if answers[queue]})
        for queue in sorted(answers.keys() & self._owned_queues.keys()):
            process_queue = self._owned_queues[queue]
            if answers[queue]:
                process_queue.locked_until = asked_at + TRUSTED_S
                self._delivery.offer_withdrawn(process_queue)
            else:
                process_queue.locked_until = 0.0  # another member has the lock, so what is next may be its
        return all(answers.get(queue) for queue in self._owned_queues)

    async def commit(self) -> None:
        """Commit the offsets of all owned queues."""
        process_queues = list(self._owned_queues.values())
        await self._offsets.commit(
            {each.queue: each.commit_offset for each in process_queues if each.has_begun and not each.is_cut_off}
        )

    def positions_in(self, topic: str) -> dict[MessageQueue, int]:
        return {
            queue: process_queue.commit_offset
            for queue, process_queue in self._owned_queues.items()
            if queue.topic == topic
        }

    def report(self) -> dict[MessageQueue, ProcessQueueState]:
        now = self._network.clock.monotonic()
        return {queue: process_queue.report(now) for queue, process_queue in self._owned_queues.items()}

    def stop_pulling(self) -> None:
        for process_queue in self._owned_queues.values():
            process_queue.stop_pulling()

    async def close(self) -> None:
        """Commit and free everything."""
        self.stop_pulling()
        try:
            await notify_listener(self._settings.on_revoked, self.queues, self._network)
        finally:
            process_queues = list(self._owned_queues.values())
            for process_queue in process_queues:
                process_queue.drop()
            await self._give_back(process_queues)
            self._owned_queues.clear()

    async def _give_back(self, process_queues: list[ProcessQueue]) -> None:
        """Commit and unlock all queues. If a slave refuses, wait a moment for its new master."""
        demoted, remaining = DemotedMasterQueues(self._network), process_queues
        locked = set(self._owned_queues) if self.locks is not None else set()

        async def attempt() -> bool:
            nonlocal remaining, locked
            uncommitted = demoted.among(await self._commit_for_good(remaining))
            remaining = [process_queue for process_queue in remaining if process_queue.queue in uncommitted]
            if self.locks is not None:
                locked = uncommitted & locked | demoted.among(await self.locks.unlock(locked - uncommitted))
            return bool(remaining or locked)

        await until_elected(attempt, self._network)
        if self.locks is not None:
            await self.locks.unlock(locked)
            await self.locks.unlock_unused(self._owned_queues)

    async def _first_offset(self, queue: MessageQueue) -> int:
        return await first_offset(queue, self._settings.start, self._offsets, self._network.brokers)

    def _new_process_queue(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        settings, stats = self._settings, self._stats.of(queue.topic)
        return ProcessQueue(queue, offset, settings.flow, self._network.answers, stats, self._hooks, settings.rules)

    def _take_over(
        self, queue: MessageQueue, offset: int, locked_until: float, *, is_paused: bool | None = None
    ) -> None:
        process_queue = self._new_process_queue(queue, offset)
        process_queue.locked_until = locked_until
        process_queue.is_paused = self._are_new_paused if is_paused is None else is_paused
        self._owned_queues[queue] = process_queue
        log.info("group %s consumes %s from offset %d", self._settings.group, queue, offset)

    def _pull(self, queue: MessageQueue) -> None:
        process_queue, subscription = self._owned_queues.get(queue), self._subscriptions.get(queue.topic)
        if process_queue is None or subscription is None or process_queue.is_paused:
            return
        if process_queue.pull_task is None:
            fetch_loop = self._make_fetch_loop(process_queue, subscription)
            process_queue.pull_task = self._spawn(self._run(fetch_loop), f"pull {queue}")

    def _make_fetch_loop(self, process_queue: ProcessQueue, subscription: Subscription) -> FetchLoop:
        return Puller(
            self._settings.group,
            process_queue,
            subscription,
            self._network.brokers,
            self._network.clock,
            self._delivery.add_pulled,
            self._on_moved,
            self._offsets.resume,
            count=min(self._settings.pull_batch, self._settings.flow.messages),
            commits=not self._settings.broadcast,
        )

    async def _run(self, fetch_loop: FetchLoop) -> None:
        try:
            await fetch_loop.run()
        except (AccessDenied, ConfigError) as error:
            self._on_failure(error)

    async def _give_up(self, queues: Collection[MessageQueue]) -> bool:
        """Give these queues up to other members. Return False if some cannot be given up yet."""
        process_queues = [self._owned_queues[queue] for queue in sorted(queues)]
        for process_queue in process_queues:
            process_queue.leave()
            if self.locks is None:
                process_queue.stop_pulling()
            self._delivery.withdraw(process_queue)
        ready = await self._let_finish(process_queues)
        await notify_listener(
            self._settings.on_revoked, [process_queue.queue for process_queue in ready], self._network
        )
        ready = [process_queue for process_queue in ready if process_queue.is_owned]
        for process_queue in ready:
            del self._owned_queues[process_queue.queue]
            process_queue.stop_pulling()
            process_queue.drop()
        await self._commit_for_good(ready)
        for process_queue in ready:
            self._offsets.forget(process_queue.queue)
            log.info("group %s gave up %s", self._settings.group, process_queue.queue)
        if self.locks is not None and ready:
            await self.locks.unlock([process_queue.queue for process_queue in ready])
        return len(ready) == len(process_queues)

    async def _let_finish(self, process_queues: list[ProcessQueue]) -> list[ProcessQueue]:
        """Wait a moment for messages that are being handled. Return the queues that can be given up now."""
        clock = self._network.clock
        deadline = clock.monotonic() + HANDLING_ENDS_S
        ready: list[ProcessQueue] = []
        for process_queue in process_queues:
            settled = _until_settled(process_queue) if self.locks is None else process_queue.wait_until_idle()
            try:
                await clock.wait_for(settled, max(deadline - clock.monotonic(), 0.0))
            except TimeoutError:
                if self.locks is not None:
                    continue
            if process_queue.is_owned:  # If it was restarted meanwhile, the next round gives it up.
                ready.append(process_queue)
        return ready

    async def _commit_for_good(self, process_queues: list[ProcessQueue]) -> dict[MessageQueue, SparrowError]:
        """Commit queues that are given up for the last time. Return those that fail with their errors.

        A pull under way commits the offset of the time when it was sent. A broker with several threads may handle it
        after the commit, and go back. So the offset is checked again.
        """
        last_offsets = {
            process_queue.queue: process_queue.commit_offset
            for process_queue in process_queues
            if process_queue.has_begun
        }
        failed = await self._offsets.commit(last_offsets)
        for process_queue in process_queues:
            if process_queue.queue in last_offsets and process_queue.pull_commits not in (
                None,
                last_offsets[process_queue.queue],
            ):
                error = await self._offsets.commit_again(process_queue.queue, last_offsets[process_queue.queue])
                if error is not None and (process_queue.queue not in failed or is_from_slave(error)):
                    failed[process_queue.queue] = error
        return failed

    def _checked_queues(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        if queues is None:
            return list(self._owned_queues)
        check_queues(queues)
        full_queues = [self._network.full_queue(queue) for queue in queues]
        for queue in full_queues:
            if queue not in self._owned_queues:
                raise ConfigError(f"{self._network.plain_queue(queue)} is not this member's now; see `queues`")
        return full_queues

    def _cancel_leaving(self, queues: Collection[MessageQueue]) -> None:
        for queue in queues:
            process_queue = self._owned_queues.get(queue)
            if process_queue is not None and process_queue.is_leaving:
                process_queue.stay()
                self._delivery.offer_withdrawn(process_queue)
                self._pull(queue)

    def _restart(self, queue: MessageQueue, offset: int) -> None:
        former = self._owned_queues[queue]
        was_pulled = former.pull_task is not None
        former.stop_pulling()
        former.drop()
        self._delivery.withdraw(former)
        self._take_over(queue, offset, former.locked_until, is_paused=former.is_paused)
        if was_pulled:
            self._pull(queue)

    def _on_moved(self, process_queue: ProcessQueue, offset: int) -> None:
        if self.process_queue_of(process_queue.queue) is process_queue:
            self._restart(process_queue.queue, offset)


async def _until_settled(process_queue: ProcessQueue) -> None:
    while not process_queue.is_settled:
        await process_queue.wait_for_change()


async def notify_listener(listener: QueuesChanged | None, queues: list[MessageQueue], network: Network) -> None:
    """Call the program's listener with the queues that come or go, if there are any."""
    if listener is not None and queues:
        await call_listener(listener, network.plain_queues(queues))


async def call_listener(listener: QueuesChanged, queues: list[MessageQueue]) -> None:
    """Call a plain or asynchronous listener. Raises: RuntimeError, a CancelledError would end a task in silence."""
    try:
        answer = listener(queues)
        if inspect.isawaitable(answer):
            await answer
    except asyncio.CancelledError as error:
        if not is_stray():
            raise
        raise RuntimeError(f"the listener {listener!r} raised a CancelledError, and was not cancelled") from error


class QueueLocks:
    """The locks of one consumer, at all brokers."""

    def __init__(self, group: str, client_id: str, brokers: Brokers) -> None:
        self._group = group
        self._client_id = client_id
        self._brokers = brokers
        self._unused: set[MessageQueue] = set()  # perhaps locked for us at their broker, but not in use here
        self._failing: set[str] = set()  # brokers whose failure is logged already

    async def lock(self, queues: Collection[MessageQueue]) -> set[MessageQueue]:
        """Lock queues, or renew their locks. Return the locked ones."""
        answers = await self.ask(queues)
        return {queue for queue, is_locked in answers.items() if is_locked}

    async def ask(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, bool]:
        """Lock queues, or renew their locks. Return for each queue whether it is ours. The queues of a broker without
        an answer are left out, and unlocked later: the broker may have locked them.
        """
        is_locked_by_queue: dict[MessageQueue, bool] = {}
        self._unused.difference_update(queues)
        for broker_name, portion in _by_broker(queues):
            try:
                session = await self._brokers.of(broker_name)
                answer = await session.call(LockBatchMq(), self._body(portion), timeout_s=ANSWER_S)
                locked_queues = set(LockedQueues.decode(answer.body).locked)
                is_locked_by_queue |= {queue: queue in locked_queues for queue in portion}
                self._failing.discard(broker_name)
            except SparrowError as error:
                self._unused.update(portion)
                self._report(broker_name, error)
        return is_locked_by_queue

    def note_unused(self, queues: Collection[MessageQueue]) -> None:
        """Let `unlock_unused` unlock queues that were given up while a broker was asked to lock them."""
        self._unused.update(queues)

    async def unlock(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, SparrowError]:
        """Unlock queues at once, at silent brokers after 60 s. Return the errors; `unlock_unused` tries these again."""
        errors: dict[MessageQueue, SparrowError] = {}
        for broker_name, portion in _by_broker(queues):
            self._unused.difference_update(portion)
            try:
                session = await self._brokers.of(broker_name)
                await session.call(UnlockBatchMq(), self._body(portion), timeout_s=ANSWER_S)
            except SparrowError as error:
                self._unused.update(portion)
                errors |= dict.fromkeys(portion, error)
                log.debug("cannot unlock queues of %s: %s", broker_name, error)
        return errors

    async def unlock_unused(self, exclude: Collection[MessageQueue] = ()) -> None:
        """Unlock the unused queues except `exclude`: a broker keeps their locks even over a restart."""
        if unused := self._unused.difference(exclude):
            await self.unlock(unused)

    def _report(self, broker_name: str, error: SparrowError) -> None:
        level = logging.DEBUG if broker_name in self._failing else logging.WARNING
        self._failing.add(broker_name)
        log.log(level, "cannot lock queues of %s for group %s: %s", broker_name, self._group, error)

    def _body(self, queues: Collection[MessageQueue]) -> bytes:
        return LockQueues(self._group, self._client_id, list(queues)).encode()


def _by_broker(queues: Collection[MessageQueue]) -> list[tuple[str, list[MessageQueue]]]:
    ordered = sorted(sorted(queues), key=lambda queue: queue.broker_name)
    return [(name, list(portion)) for name, portion in groupby(ordered, key=lambda queue: queue.broker_name)]


class DemotedMasterQueues:
    """The queues whose master refused a request because it is a slave now."""

    def __init__(self, network: Network) -> None:
        self._routes = network.routes
        self._queues: set[MessageQueue] = set()

    def among(self, failed: Mapping[MessageQueue, SparrowError]) -> set[MessageQueue]:
        """Return the failed queues whose former master is a slave, by this error or by an earlier one."""
        for queue, error in failed.items():
            if is_from_slave(error) and self._routes.master(queue.broker_name) is not None:
                self._queues.add(queue)
        return self._queues & failed.keys()


async def until_elected(attempt: Callable[[], Awaitable[bool]], network: Network) -> None:
    """Repeat an attempt while it returns True, for ELECTED_S at most."""
    began_at = network.clock.monotonic()
    while await attempt() and network.clock.age(began_at) < ELECTED_S:
        network.routes.doubt()
        await network.clock.sleep(PAUSE_S)
