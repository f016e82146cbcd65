"""The parts of a broker that its metrics read."""

from __future__ import annotations

from dataclasses import dataclass

from sparrowmq.broker.metrics.status import Status
from sparrowmq.broker.registration import Registration
from sparrowmq.broker.shared_parts import SharedParts
from sparrowmq.metrics.figures import Figures


@dataclass(frozen=True)
class Measured:
    figures: Figures
    shared: SharedParts
    status: Status
    registration: Registration
