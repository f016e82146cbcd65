"""The parts of a consumer with mode="pop": the way back of failed messages, and the topics that are popped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.concurrently import Concurrently
from sparrowmq.client.consuming.consume_rate import Paces
from sparrowmq.client.consuming.consumer_settings import ConsumerSettings
from sparrowmq.client.consuming.received import ConsumeHooks
from sparrowmq.client.consuming.sending_back import Retries
from sparrowmq.client.popping.pop_assignment import PopAssignment
from sparrowmq.client.popping.pop_retries import PopRetries
from sparrowmq.client.popping.pops import Pops
from sparrowmq.client.sending.outbox import Outbox
from sparrowmq.errors import SparrowError
from sparrowmq.loop.background import Spawn
from sparrowmq.protocol.subscription import Subscription


class PopParts:
    def __init__(self, settings: ConsumerSettings, network: Network, outbox: Outbox) -> None:
        self._settings = settings
        self._network = network
        self._pops = Pops(settings.group, network, network.background.spawn)
        usual = Retries(settings.group, settings.reconsume_times, network.brokers, outbox)
        self.retries = PopRetries(self._pops, usual, settings.reconsume_times)

    def assignment(
        self,
        delivery: Concurrently,
        spawn: Spawn,
        subscriptions: Mapping[str, Subscription],
        *,
        failed: Callable[[SparrowError], object],
        paces: Paces,
        hooks: Sequence[ConsumeHooks],
    ) -> PopAssignment:
        """The popped topics of the consumer."""
        return PopAssignment(
            self._pops,
            self._settings,
            self._network,
            delivery,
            spawn,
            subscriptions,
            failed=failed,
            paces=paces,
            hooks=hooks,
        )
