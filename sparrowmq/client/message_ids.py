"""The ids of one client's messages: those of its process, with the time of its clock."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from ipaddress import ip_address

from sparrowmq.kernel.gathering import ReservedIds
from sparrowmq.protocol.messages.message_id import UniqueIds


class MessageIds:
    """Makes ids. `ip` is the client's address, and `now_ms` its clock."""

    __slots__ = ("_ids", "_ip", "_now_ms")

    def __init__(self, ip: str, now_ms: Callable[[], int]) -> None:
        self._ip = ip_address(ip).packed
        self._now_ms = now_ms
        self.renew()

    def renew(self) -> None:
        """Make ids that no other process makes, after a fork."""
        self._ids = UniqueIds(self._ip, os.getpid(), random.getrandbits(32))

    def next(self) -> str:
        return self._ids.next(self._now_ms())

    def reserve(self) -> ReservedIds:
        """The next ids, for messages that are sent soon."""
        return self._ids.reserve(self._now_ms())
