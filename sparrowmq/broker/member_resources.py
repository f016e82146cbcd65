"""The files of a broker, and its connections to other servers. The brokers of a member share them.

    certificates, accounts     files that change are loaded again; while they cannot be used, the old content counts
    connections                a name server forgets a broker when its connection ends
    metrics                    the port answers between two brokers, too, and says why there is none

A member ends one broker and starts another to change its role. If the next broker read the files from the beginning, a
file that cannot be used would end a member at the next election, and so each member of a group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparrowmq.broker.access_control import sign_of
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Spawn
from sparrowmq.metrics.metrics_settings import metrics_door
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.tls.tls_contexts import ServerTls, client_context

if TYPE_CHECKING:
    from sparrowmq.auth.account_files import AccountFiles
    from sparrowmq.metrics.http_endpoint import Answer, Endpoint, Query


class MemberResources:
    """The files and connections of one broker, or of the brokers of one member.

    Attributes:
        tls: for connections of clients.
        client_tls: for connections to other servers; None if they are not encrypted.
        accounts: the account files that the last broker used, if it used any.
        metrics: the port for Prometheus of a member; None without one. A broker without failover opens its own.
    Raises:
        ConfigError: a file cannot be used.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock) -> None:
        self.tls = ServerTls(settings, clock)
        self.client_tls = client_context(settings) if settings.talks_tls else None
        self.accounts: AccountFiles | None = None
        self.metrics: Endpoint | None = None
        self._settings = settings
        self._clock = clock
        self._pool: Pool | None = None

    @property
    def pool(self) -> Pool:
        """The connections to other servers. Raises: ConfigError, only one of two keys is given."""
        if self._pool is None:
            self._pool = Pool(self._clock, sign=sign_of(self._settings), tls=self.client_tls)
        return self._pool

    async def open_metrics(self, spawn: Spawn, reason: Callable[[], str]) -> None:
        """Open the port for metrics, if the settings want it.

        Args:
            reason: returns the reason why no broker runs, for `/readyz`.
        Raises: ConfigError, the port cannot be used.
        """
        door = metrics_door(self._settings, self._settings.bind_address, self._settings.insecure)
        if door is None:
            return
        # A broker without metrics does not load these modules.
        from sparrowmq.metrics.http_endpoint import Answer, Endpoint

        async def absent(_: Query) -> Answer:
            return Answer(503, f"{reason()}\n".encode())

        async def alive(_: Query) -> Answer:
            return Answer(200, b"ok\n")

        listens = asyncio.Event()
        self.metrics = Endpoint(door, {"/metrics": absent, "/healthz": alive, "/readyz": absent})
        spawn(self.metrics.run(listens.set), "metrics")
        await listens.wait()

    async def disconnect(self) -> None:
        """End the connections, so that name servers forget the broker. The next broker gets others."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.__aexit__()
