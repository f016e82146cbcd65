"""What a broker knows of topics, groups and offsets that starts on a store, without serving."""

from __future__ import annotations

from dataclasses import dataclass

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.broker_state import BrokerState
from sparrowmq.broker.offsets import OffsetTable
from sparrowmq.broker.queue_locks import Holders
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.bodies import GroupConfig, TopicConfig
from sparrowmq.store.message_store import MessageStore


@dataclass
class Kept:
    """The state, and the topics that have queues."""

    topics: dict[str, TopicConfig]
    incarnations: dict[str, int]
    groups: dict[str, GroupConfig]
    offsets: OffsetTable
    queues: set[str]
    locks: Holders
    is_from_log: bool
    snapshot_begin: int

    def width(self, topic: str) -> int:
        """The queues of a topic; 0 if there is no such topic."""
        found = self.topics.get(topic)
        return found.read_queue_nums if found is not None else 0


def kept(settings: BrokerSettings, trusts_files: bool = True) -> Kept:
    with MessageStore.open(settings.store(1)) as store:
        state = BrokerState.load(store, settings, SystemClock(), trusts_files)
        queues = {queue.topic for queue in store.queues}
        return Kept(
            dict(state.topics.table),
            dict(state.topics.incarnations),
            dict(state.groups.table),
            state.offsets.table,
            queues,
            state.locks,
            state.is_from_log,
            state.replayed.begin or 0,
        )
