"""A name server and brokers in this process, on free ports of the loopback. They use real sockets and files.

    async with Cluster(tmp_path) as cluster:
        ...  # cluster.namesrv is "127.0.0.1:port"

It starts in a few hundredths of a second, and stops at the end of the `with`. Brokers use ASYNC_FLUSH unless you set
SYNC_FLUSH, because tests seldom cut the power.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.client.arguments import check_count, check_kind
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.store.store_settings import Flush

# A log file of 1 GiB takes 1 GiB of disk; tests need less.
LOG_FILE_BYTES = 16 << 20
QUEUE_FILE_BYTES = 20_000 * 20
INDEX_SLOTS = 10_000
INDEX_ENTRIES = 40_000
# Disks of test machines are often 90 % full, at which a broker stops to take messages.
DISK_MAX_USED_PERCENT = 95


class Cluster:
    """One name server with some brokers, named broker-0, broker-1, ...

    In the folder `path` each broker has a folder of its name for its store, which outlives the cluster.
    `namesrv_settings` are fields of `NamesrvSettings`, `settings` those of `BrokerSettings`, for every broker.
    """

    def __init__(
        self,
        path: Path | str,
        brokers: int = 1,
        clock: Clock | None = None,
        *,
        namesrv_settings: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        check_kind("path", path, Path | str, "the path of a folder")
        check_count("brokers", brokers, at_least=0)
        check_kind("clock", clock, Clock | None, "a clock, as ManualClock, or leave it out")
        check_kind("namesrv_settings", namesrv_settings, Mapping | None, "a mapping of settings")
        self.brokers: list[Broker] = []
        self._path = Path(path)
        self._count = brokers
        self._clock = clock or SystemClock()
        self._settings = settings
        fields: dict[str, Any] = {"port": 0, "kv_path": self._path / "kvConfig.json", **(namesrv_settings or {})}
        try:
            settings_of_namesrv = NamesrvSettings(**fields)
        except TypeError as error:  # There is no such setting.
            raise ConfigError(f"namesrv_settings={namesrv_settings!r}: {error}; see NamesrvSettings") from None
        self._namesrv = Namesrv(settings_of_namesrv, self._clock)
        self._stack = AsyncExitStack()

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        return self._namesrv.address

    async def __aenter__(self) -> Cluster:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._namesrv)
            for number in range(self._count):
                broker = Broker(self._broker_settings(f"broker-{number}"), self._clock)
                self.brokers.append(await stack.enter_async_context(broker))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        self.brokers.clear()
        return await self._stack.__aexit__(*error)  # type: ignore[arg-type]

    def _broker_settings(self, name: str) -> BrokerSettings:
        fields: dict[str, Any] = {
            "name": name,
            "port": 0,
            "namesrv": (self.namesrv,),
            "store_path": self._path / name,
            "flush": Flush.ASYNC,
            "commit_log_file_bytes": LOG_FILE_BYTES,
            "consume_queue_file_bytes": QUEUE_FILE_BYTES,
            "index_slots": INDEX_SLOTS,
            "index_entries": INDEX_ENTRIES,
            "disk_max_used_percent": DISK_MAX_USED_PERCENT,
            **self._settings,
        }
        return BrokerSettings(**fields)
