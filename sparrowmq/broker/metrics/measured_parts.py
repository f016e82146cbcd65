"""The parts of a broker that its metrics read."""

from __future__ import annotations

from dataclasses import dataclass

from sparrowmq.broker.clients import Clients
from sparrowmq.broker.groups import Groups
from sparrowmq.broker.metrics.consumption import Consumption
from sparrowmq.broker.metrics.status import Status
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.registration import Registration
from sparrowmq.broker.topics import Topics
from sparrowmq.metrics.figures import Figures
from sparrowmq.store.message_store import MessageStore


@dataclass(frozen=True)
class Measured:
    figures: Figures
    store: MessageStore
    status: Status
    topics: Topics
    groups: Groups
    clients: Clients
    consumption: Consumption
    offsets: Offsets
    registration: Registration
