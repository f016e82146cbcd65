"""A master and its slave, whole brokers on real sockets, each started and stopped as a test likes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.broker_settings import BrokerRole, BrokerSettings
from sparrowmq.loop.clock import SystemClock
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from sparrowmq.testing import Cluster
from tests.broker.conftest import until
from tests.broker.live import decoded, pull_request, send_request
from tests.interop.apache import free_ports


class Pair:
    """One name server, and a master and a slave of the same name; both keep their ports."""

    def __init__(self, path: Path, namesrv: str, given: dict[str, Any]) -> None:
        ports = free_ports(4)
        cluster = Cluster(path, 0, **given)
        cluster._namesrv = type("Address", (), {"address": namesrv})()
        self.namesrv = namesrv
        self.master_settings = replace(cluster._broker_settings("broker-a"), port=ports[0], store_path=path / "master")
        self.slave_settings = replace(
            self.master_settings,
            role=BrokerRole.SLAVE,
            broker_id=1,
            port=ports[2],
            store_path=path / "slave",
            slave_reads=True,
            ha_silence_ms=2000,
        )
        self.pool = Pool(SystemClock())
        self._stacks: dict[str, AsyncExitStack] = {}
        self._brokers: dict[str, Broker] = {}

    def broker(self, who: str) -> Broker:
        """One that runs."""
        return self._brokers[who]

    async def start(self, who: str, **changes: Any) -> Broker:
        """Start "master" or "slave", with other settings if need be."""
        settings: BrokerSettings = getattr(self, f"{who}_settings")
        stack = AsyncExitStack()
        broker = await stack.enter_async_context(Broker(replace(settings, **changes)))
        self._stacks[who], self._brokers[who] = stack, broker
        return broker

    async def stop(self, who: str) -> None:
        if stack := self._stacks.pop(who, None):
            await stack.aclose()

    async def session(self, who: str) -> Session:
        settings: BrokerSettings = getattr(self, f"{who}_settings")
        return await self.pool.session(f"127.0.0.1:{settings.port}")

    async def send(self, body: bytes, topic: str = "orders", **fields: Any) -> None:
        await (await self.session("master")).call(send_request(topic, **fields), body)

    async def bodies(self, who: str, topic: str = "orders", **fields: Any) -> list[bytes]:
        """What one pull of the first queue brings."""
        answer = await (await self.session(who)).call(pull_request(topic, **fields), accept={19, 20, 21}, timeout_s=30)
        return [bytes(message.body) for message in decoded(answer)]

    def log(self, who: str) -> bytes:
        """The files of the log, up to the last byte that is not zero."""
        path = getattr(self, f"{who}_settings").store_path / "commitlog"
        files = sorted(path.glob("0*")) if path.exists() else []
        return b"".join(file.read_bytes() for file in files).rstrip(b"\0")

    async def same(self, limit_s: float = 30) -> None:
        """Return when the slave's log is its master's."""
        await until(lambda: self.log("slave") == self.log("master") != b"", limit_s=limit_s)


@asynccontextmanager
async def pair(path: Path, **given: Any) -> AsyncIterator[Pair]:
    """Nothing of it runs yet but the name server."""
    async with Cluster(path, 0) as cluster:
        usual: dict[str, Any] = {
            "commit_log_file_bytes": 1 << 20,
            "index": False,
            "fast_port": 0,
            "ha_heartbeat_ms": 100,
        }
        both = Pair(path, cluster.namesrv, usual | given)
        try:
            yield both
        finally:
            await both.stop("slave")
            await both.stop("master")
            both.pool.close()
