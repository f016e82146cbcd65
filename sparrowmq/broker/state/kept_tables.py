"""The tables whose changes the journal has."""

from __future__ import annotations

from dataclasses import dataclass

from sparrowmq.broker.groups import Groups
from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.request_modes import RequestModes
from sparrowmq.broker.state.users import Users
from sparrowmq.broker.topics import Topics


@dataclass
class KeptTables:
    topics: Topics
    groups: Groups
    offsets: Offsets
    users: Users
    modes: RequestModes
