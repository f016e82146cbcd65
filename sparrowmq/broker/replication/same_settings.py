"""Compare the settings of a slave with those of its master, where both need the same value.

A log's files have the same size at both. Otherwise the slave notices the difference only where the first file of one of
them ends, perhaps after days, and then it cannot follow any more. So it asks for the master's settings as soon as it
knows the master. Masters with accounts show their settings only to administrators, and are not asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.part import Part, Task
from sparrowmq.broker.replication.replica import Replica
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ConfigError, NetworkError, RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.requests.admin_headers import GetBrokerConfig
from sparrowmq.remoting.pool import Pool
from sparrowmq.settings.properties_text import parse_properties

log = logging.getLogger(__name__)

FILE_SIZE: Final = "mappedFileSizeCommitLog"
RETRY_S: Final = 1.0
TIMEOUT_S: Final = 3.0
_OLD_NAME: Final = "mapedFileSizeCommitLog"  # before Java 4.9


def unlike(ours: int, theirs: int, address: str) -> str:
    """Return what to do about log files of another size than the master's; "" if the sizes are the same."""
    if ours == theirs:
        return ""
    return (
        f"{FILE_SIZE} = {ours} here, and {theirs} at the master at {address}: both need the same. "
        f"Set {FILE_SIZE}={theirs} here, move the store of this broker away (it has files of the other size), "
        "and start it empty"
    )


def file_size(settings: Mapping[str, str]) -> int:
    """Return the size of the log's files by a master's settings; 0 if they do not say it."""
    found = settings.get(FILE_SIZE) or settings.get(_OLD_NAME) or ""
    return whole_number(found) or 0


class SameSettings:
    """Asks each master that is to be followed for its settings."""

    def __init__(self, settings: BrokerSettings, replica: Replica, pool: Pool, clock: Clock) -> None:
        self._settings = settings
        self._replica = replica
        self._pool = pool
        self._clock = clock
        self._address = ""
        self._changed = asyncio.Event()

    def part(self) -> Part:
        return Part(tasks=(Task("settings of the master", self.run),))

    def use(self, address: str) -> None:
        """Compare with the master at this address for clients."""
        if address and address != self._address and not self._settings.checks_access:
            self._address = address
            self._changed.set()

    async def run(self) -> None:
        """Ask each new master until it answers."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while not self._changed.is_set() and not await self._compare(self._address):
                with suppress(TimeoutError):
                    await self._clock.wait_for(self._changed.wait(), RETRY_S)

    async def _compare(self, address: str) -> bool:
        """Return whether the master has answered."""
        try:
            session = await self._pool.session(address)
            answer = await session.call(GetBrokerConfig(), timeout_s=TIMEOUT_S)
            theirs = file_size(parse_properties(bytes(answer.body).decode()))
        except NetworkError:
            return False
        except (RemoteError, ValueError) as refused:
            log.info("the settings of the master at %s are not known: %s", address, refused)
            return True
        ours = self._settings.commit_log_file_bytes
        if theirs and (problem := unlike(ours, theirs, address)):
            self._replica.refuse(ConfigError(problem))
        return True
