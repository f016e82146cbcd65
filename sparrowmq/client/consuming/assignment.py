"""The queues that one consumer owns now: taking them over, pulling them, giving them up.

    take over   lock (ordered) -> read the group's offset -> call the program's listener -> pull
    give up     stop pulling -> keep back untaken messages -> let handlers finish -> call the program's listener
                -> commit -> unlock

The order matters: the next owner must find the lock free only after our offset is committed. An ordered queue is
kept until nothing of it is handled; any other is given up after a second, and what is still handled then comes twice.

Only the member with a broker's lock on a queue consumes it in order. A lock lasts 60 s at the broker. The client renews
it every 20 s, and trusts it for 30 s: a consumer without a connection stops before the broker gives the queue to
another member.

A closing consumer repeats its last commits and unlocks if a master refuses them because it is a slave now:

    commit, unlock ── refused by the master of our route     ── ask for routes, wait ── again, for 2.5 s at most
                   ├─ refused, and our route has no master   ── the master is dead: do not wait
                   └─ no answer                              ── do not wait

Otherwise the next owner of a queue would get handled messages again, and wait 60 s for a lock.
Source: RebalanceImpl.updateProcessQueueTableInRebalance, its lockAll, and RebalancePushImpl, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
    """The owned queues of one consumer.

    Args:
        failed: called when a queue can never be pulled with its filter.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        network: Network,
        offsets: OffsetStore,
        delivery: ConcurrentDelivery | OrderedDelivery,
        spawn: Spawn,
        subscriptions: Mapping[str, Subscription],
        *,
        failed: Callable[[SparrowError], object],
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
        self._failed = failed
        self._stats = stats
        self._hooks = hooks
        self._owned: dict[MessageQueue, _Owned] = {}
        self._are_new_paused = False

    @property
    def queues(self) -> list[MessageQueue]:
        return sorted(self._owned)

    def state_of(self, queue: MessageQueue) -> ProcessQueue | None:
        owned = self._owned.get(queue)
        return owned.state if owned else None

    async def apply(self, topic: str, queues: Collection[MessageQueue]) -> bool:
        """Own exactly these queues of the topic. Return False if some could not be taken over or given up yet.

        Raises: SparrowError, a broker did not answer with the offset; the other queues are taken over all the same.
        """
        change = diff([queue for queue in self._owned if queue.topic == topic], queues)
        self._stay(queues)
        if self.locks is not None:
            await self.locks.unlock_unused({*self._owned, *queues})
        all_given_up = await self._give_up(change.drop)
        asked = self._network.clock.monotonic()
        mine = await self.locks.lock(change.add) if self.locks and change.add else change.add
        failure: SparrowError | None = None
        taken: list[MessageQueue] = []
        for queue in sorted(mine):
            try:
                self._take_over(queue, await self._first_offset(queue), asked + TRUSTED_S)
                taken.append(queue)
            except SparrowError as error:
                failure = error
        try:
            await tell(self._settings.on_assigned, taken, self._network)
        finally:
            for queue in taken:
                self._pull(queue)
        if failure is not None:
            raise failure
        return all_given_up and len(mine) == len(change.add)

    def refilter(self, topic: str) -> None:
        """Pull with the topic's new filter, and drop the pulls with the former one."""
        for queue, owned in self._owned.items():
            if queue.topic == topic and owned.pulling is not None:
                owned.stop_pulling()
                self._pull(queue)

    def pause(self, queues: Iterable[MessageQueue] | None) -> None:
        """Deliver no messages of these queues, or of all and of those to come. Raises: ConfigError."""
        self._are_new_paused |= queues is None
        for queue in self._checked_queues(queues):
            owned = self._owned[queue]
            owned.state.is_paused = True
            owned.stop_pulling()
            self._delivery.withdraw(owned.state)

    def resume(self, queues: Iterable[MessageQueue] | None) -> None:
        """Undo `pause`. Raises: ConfigError."""
        self._are_new_paused &= queues is not None
        for queue in self._checked_queues(queues):
            state = self._owned[queue].state
            state.is_paused = False
            self._delivery.renewed(state)
            self._pull(queue)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset, as `restart` does. The next commit commits it. Raises: ConfigError."""
        check_offset(offset)
        (mine,) = self._checked_queues([queue])
        self._restart(mine, offset)
        self._owned[mine].state.has_begun = True

    def position(self, queue: MessageQueue) -> int:
        """The offset up to which everything is settled. Raises: ConfigError."""
        (mine,) = self._checked_queues([queue])
        return self._owned[mine].state.commit_offset

    async def lag(self) -> dict[MessageQueue, int]:
        """The number of messages in each queue that are not settled, filtered ones too. Raises: SparrowError."""
        ends = {queue: await newest(queue, self._network.brokers) for queue in self.queues}
        return {queue: max(end - self.position(queue), 0) for queue, end in ends.items() if queue in self._owned}

    async def restart(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at other offsets. Messages that are being handled are forgotten; those ahead are delivered again."""
        mine = {queue: offset for queue, offset in offsets.items() if queue in self._owned}
        for queue in offsets:
            self._offsets.moved(queue)
        for queue, offset in mine.items():
            self._restart(queue, offset)
        await self._offsets.commit(mine)

    async def renew_locks(self) -> bool:
        """Renew the broker's locks on all owned queues. Return whether it has answered that all are locked."""
        if self.locks is None or not self._owned:
            return True
        asked = self._network.clock.monotonic()
        answers = await self.locks.ask(self._owned)
        self.locks.note_unused({queue for queue in answers.keys() - self._owned.keys() if answers[queue]})
        for queue in sorted(answers.keys() & self._owned.keys()):
            state = self._owned[queue].state
            if answers[queue]:
                state.locked_until = asked + TRUSTED_S
                self._delivery.renewed(state)
            else:
                state.locked_until = 0.0  # another member has the lock, so what is next may be its
        return all(answers.get(queue) for queue in self._owned)

    async def commit(self) -> None:
        """Commit the offsets of all owned queues."""
        states = (owned.state for owned in self._owned.values())
        await self._offsets.commit(_offsets_of(state for state in states if not state.is_cut_off))

    def positions_in(self, topic: str) -> dict[MessageQueue, int]:
        return {queue: owned.state.commit_offset for queue, owned in self._owned.items() if queue.topic == topic}

    def report(self) -> dict[MessageQueue, ProcessQueueState]:
        now = self._network.clock.monotonic()
        return {queue: owned.state.report(now) for queue, owned in self._owned.items()}

    def stop_pulling(self) -> None:
        for owned in self._owned.values():
            owned.stop_pulling()

    async def close(self) -> None:
        """Commit and free everything."""
        self.stop_pulling()
        try:
            await tell(self._settings.on_revoked, self.queues, self._network)
        finally:
            states = [owned.state for owned in self._owned.values()]
            for state in states:
                state.drop()
            await self._give_back(states)
            self._owned.clear()

    async def _give_back(self, states: list[ProcessQueue]) -> None:
        """Commit and unlock all queues. If a slave refuses, wait a moment for its new master.

        Otherwise the next owner would get handled messages again, and wait 60 s for a lock.
        """
        moved, left = MovedQueues(self._network), states
        locked = set(self._owned) if self.locks is not None else set()

        async def attempt() -> bool:
            nonlocal left, locked
            uncommitted = moved.among(await self._commit_for_good(left))
            left = [state for state in left if state.queue in uncommitted]
            if self.locks is not None:
                locked = uncommitted & locked | moved.among(await self.locks.unlock(locked - uncommitted))
            return bool(left or locked)

        await until_elected(attempt, self._network)
        if self.locks is not None:
            await self.locks.unlock(locked)
            await self.locks.unlock_unused(self._owned)

    async def _first_offset(self, queue: MessageQueue) -> int:
        return await first_offset(queue, self._settings.start, self._offsets, self._network.brokers)

    def _new_state(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        stats = self._stats.of(queue.topic)
        settings = self._settings
        return ProcessQueue(queue, offset, settings.flow, self._network.answers, stats, self._hooks, settings.rules)

    def _take_over(
        self, queue: MessageQueue, offset: int, locked_until: float, *, is_paused: bool | None = None
    ) -> None:
        state = self._new_state(queue, offset)
        state.locked_until = locked_until
        state.is_paused = self._are_new_paused if is_paused is None else is_paused
        self._owned[queue] = _Owned(state)
        log.info("group %s consumes %s from offset %d", self._settings.group, queue, offset)

    def _pull(self, queue: MessageQueue) -> None:
        owned = self._owned.get(queue)
        subscription = self._subscriptions.get(queue.topic)
        if owned is None or subscription is None or owned.pulling is not None or owned.state.is_paused:
            return
        asker = self._fetch_loop(owned.state, subscription)
        owned.pulling = self._spawn(self._run_fetch_loop(asker), f"pull {queue}")

    def _fetch_loop(self, state: ProcessQueue, subscription: Subscription) -> FetchLoop:
        return Puller(
            self._settings.group,
            state,
            subscription,
            self._network.brokers,
            self._network.clock,
            self._delivery.arrived,
            self._moved,
            self._offsets.resume,
            count=min(self._settings.pull_batch, self._settings.flow.messages),
            commits=not self._settings.broadcast,
        )

    async def _run_fetch_loop(self, asker: FetchLoop) -> None:
        try:
            await asker.run()
        except (AccessDenied, ConfigError) as error:
            self._failed(error)

    async def _give_up(self, queues: Collection[MessageQueue]) -> bool:
        """Give these queues up to other members. Return False if some cannot be given up yet."""
        states = [self._owned[queue].state for queue in sorted(queues)]
        for state in states:
            state.leave()
            if self.locks is None:
                self._owned[state.queue].stop_pulling()
            self._delivery.withdraw(state)
        ready = await self._let_finish(states)
        await tell(self._settings.on_revoked, [state.queue for state in ready], self._network)
        ready = [state for state in ready if state.is_owned]
        for state in ready:
            self._owned.pop(state.queue).stop_pulling()
            state.drop()
        await self._commit_for_good(ready)
        for state in ready:
            self._offsets.forget(state.queue)
            log.info("group %s gave up %s", self._settings.group, state.queue)
        if self.locks is not None and ready:
            await self.locks.unlock([state.queue for state in ready])
        return len(ready) == len(states)

    async def _let_finish(self, states: list[ProcessQueue]) -> list[ProcessQueue]:
        """Wait a moment for messages that are being handled. Return the queues that can be given up now."""
        clock = self._network.clock
        deadline = clock.monotonic() + HANDLING_ENDS_S
        ready: list[ProcessQueue] = []
        for state in states:
            finished = _until_settled(state) if self.locks is None else state.idle()
            try:
                await clock.wait_for(finished, max(deadline - clock.monotonic(), 0.0))
            except TimeoutError:
                if self.locks is not None:
                    continue
            if state.is_owned:  # If it was restarted meanwhile, the next round gives it up.
                ready.append(state)
        return ready

    async def _commit_for_good(self, states: list[ProcessQueue]) -> dict[MessageQueue, SparrowError]:
        """Commit queues that are given up for the last time. Return those that fail with their errors.

        A pull that is under way commits, too: the offset at the time when it was sent. A broker with several threads
        may handle the pull after the commit, and go back. So the offset is checked again.
        """
        last = _offsets_of(states)
        failed = await self._offsets.commit(last)
        for state in states:
            if state.queue in last and state.pull_commits not in (None, last[state.queue]):
                error = await self._offsets.commit_again(state.queue, last[state.queue])
                if error is not None and (state.queue not in failed or is_from_slave(error)):
                    failed[state.queue] = error
        return failed

    def _checked_queues(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        if queues is None:
            return list(self._owned)
        check_queues(queues)
        found = [self._network.full_queue(queue) for queue in queues]
        for queue in found:
            if queue not in self._owned:
                raise ConfigError(f"{self._network.plain_queue(queue)} is not this member's now; see `queues`")
        return found

    def _stay(self, queues: Collection[MessageQueue]) -> None:
        for queue in queues:
            owned = self._owned.get(queue)
            if owned is not None and owned.state.is_leaving:
                owned.state.stay()
                self._delivery.renewed(owned.state)
                self._pull(queue)

    def _restart(self, queue: MessageQueue, offset: int) -> None:
        former = self._owned[queue]
        is_pulled = former.pulling is not None
        former.stop_pulling()
        former.state.drop()
        self._delivery.withdraw(former.state)
        self._take_over(queue, offset, former.state.locked_until, is_paused=former.state.is_paused)
        if is_pulled:
            self._pull(queue)

    def _moved(self, state: ProcessQueue, offset: int) -> None:
        if self.state_of(state.queue) is state:
            self._restart(state.queue, offset)


@dataclass(slots=True)
class _Owned:
    """An owned queue and the task that pulls it, if there is one."""

    state: ProcessQueue
    pulling: asyncio.Task[None] | None = None

    def stop_pulling(self) -> None:
        if self.pulling is not None:
            self.pulling.cancel()
            self.pulling = None


async def _until_settled(state: ProcessQueue) -> None:
    while not state.is_settled:
        await state.changed()


def _offsets_of(states: Iterable[ProcessQueue]) -> dict[MessageQueue, int]:
    return {state.queue: state.commit_offset for state in states if state.has_begun}


async def tell(changed: QueuesChanged | None, queues: list[MessageQueue], network: Network) -> None:
    """Call the program's listener with the queues that come or go, if there are any."""
    if changed is not None and queues:
        await call(changed, network.plain_queues(queues))


async def call(changed: QueuesChanged, queues: list[MessageQueue]) -> None:
    """Call a listener that may be plain or asynchronous.

    Raises: RuntimeError, it let a CancelledError pass, which would end a task of the consumer in silence.
    """
    try:
        answer = changed(queues)
        if inspect.isawaitable(answer):
            await answer
    except asyncio.CancelledError as error:
        if not is_stray():
            raise
        raise RuntimeError(f"the listener {changed!r} raised a CancelledError, and was not cancelled") from error


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
        """Lock queues, or renew their locks. Return for each queue whether it is ours, or another member's.

        The queues of a broker without an answer are left out, and owed: the broker may have locked them.
        """
        answers: dict[MessageQueue, bool] = {}
        self._unused.difference_update(queues)
        for broker_name, portion in _by_broker(queues):
            try:
                session = await self._brokers.of(broker_name)
                answer = await session.call(LockBatchMq(), self._body(portion), timeout_s=ANSWER_S)
                locked = set(LockedQueues.decode(answer.body).locked)
                answers |= {queue: queue in locked for queue in portion}
                self._failing.discard(broker_name)
            except SparrowError as error:
                self._unused.update(portion)
                self._report(broker_name, error)
        return answers

    def note_unused(self, queues: Collection[MessageQueue]) -> None:
        """Note queues that were given up while a broker was asked to lock them: `unlock_unused` unlocks them."""
        self._unused.update(queues)

    async def unlock(self, queues: Collection[MessageQueue]) -> dict[MessageQueue, SparrowError]:
        """Unlock queues at once. Return the errors of failed queues, which `unlock_unused` tries again.

        The locks at a broker that does not answer end after 60 s.
        """
        failed: dict[MessageQueue, SparrowError] = {}
        for broker_name, portion in _by_broker(queues):
            self._unused.difference_update(portion)
            try:
                session = await self._brokers.of(broker_name)
                await session.call(UnlockBatchMq(), self._body(portion), timeout_s=ANSWER_S)
            except SparrowError as error:
                self._unused.update(portion)
                failed |= dict.fromkeys(portion, error)
                log.debug("cannot unlock queues of %s: %s", broker_name, error)
        return failed

    async def unlock_unused(self, exclude: Collection[MessageQueue] = ()) -> None:
        """Unlock the owed queues except `exclude`: a broker keeps their locks even over a restart."""
        if owed := self._unused.difference(exclude):
            await self.unlock(owed)

    def _report(self, broker_name: str, error: SparrowError) -> None:
        level = logging.DEBUG if broker_name in self._failing else logging.WARNING
        self._failing.add(broker_name)
        log.log(level, "cannot lock queues of %s for group %s: %s", broker_name, self._group, error)

    def _body(self, queues: Collection[MessageQueue]) -> bytes:
        return LockQueues(self._group, self._client_id, list(queues)).encode()


def _by_broker(queues: Collection[MessageQueue]) -> list[tuple[str, list[MessageQueue]]]:
    ordered = sorted(sorted(queues), key=lambda queue: queue.broker_name)
    return [(name, list(portion)) for name, portion in groupby(ordered, key=lambda queue: queue.broker_name)]


class MovedQueues:
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
    begun = network.clock.monotonic()
    while await attempt() and network.clock.age(begun) < ELECTED_S:
        network.routes.doubt()
        await network.clock.sleep(PAUSE_S)
