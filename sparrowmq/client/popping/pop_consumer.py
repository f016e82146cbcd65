"""A consumer with mode="pop": its topics are popped, and its failed messages become visible again."""

from __future__ import annotations

from sparrowmq.client.consuming.concurrently import ConcurrentDelivery
from sparrowmq.client.consuming.consumer import Consumer
from sparrowmq.client.consuming.sending_back import Retries
from sparrowmq.client.popping.pop_assignment import PopAssignment
from sparrowmq.client.popping.pop_queue import PopCredit
from sparrowmq.client.popping.pop_requests import PopRequests
from sparrowmq.client.popping.pop_retries import PopRetries
from sparrowmq.client.sending.outbox import Outbox


class PopConsumer(Consumer):
    def _make_delivery(self, outbox: Outbox) -> ConcurrentDelivery:
        network, limit = self._network, self._settings.reconsume_times
        self._pops = PopRequests(self.full_group, network, network.background.spawn)
        retries = PopRetries(self._pops, Retries(self.full_group, limit, network.brokers, outbox), limit)
        self._credit = PopCredit(self._settings, network.clock.monotonic)
        self._popped = ConcurrentDelivery(
            retries,
            network.clock,
            self._background.spawn,
            inbox=self._credit.inbox,
            namespace=network.namespace,
        )
        return self._popped

    @property
    def _is_quick(self) -> bool:
        return self._credit.is_quick

    def _make_assignment(self) -> PopAssignment:
        self._places = PopAssignment(
            self._pops,
            self._credit,
            self._settings,
            self._network,
            self._popped,
            self._background.spawn,
            self._subscriptions,
            failed=self._fail,
            paces=self._paces,
            hooks=self._hooks,
        )
        return self._places

    def _start(self) -> None:
        super()._start()
        extend = self._places.keep_invisible()
        self._tasks.append(self._background.spawn(extend, f"extend {self.full_group}"))
