"""The parts of a broker that many of its handlers use."""

from __future__ import annotations

from dataclasses import dataclass

from sparrowmq.broker.clients import Clients
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.metrics.consumption import Consumption
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.topics import Topics
from sparrowmq.loop.clock import Clock
from sparrowmq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class SharedParts:
    store: MessageStore
    writer: Writer
    topics: Topics
    groups: Groups
    offsets: Offsets
    clients: Clients
    consumption: Consumption
    clock: Clock
