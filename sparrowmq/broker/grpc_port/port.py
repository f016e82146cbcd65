"""The gRPC port of a broker, for the official clients of RocketMQ 5 (`grpcServerPort`).

The port serves the broker's own topics. A client finds the queues of several brokers through the process `mqproxy`.
Only a broker with the port loads this module, protobuf and hpack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Final, Self

from sparrowmq.auth.audit_log import Audit
from sparrowmq.auth.grpc_signature import AUTHORIZATION, Freshness, Signer, grpc_principal
from sparrowmq.broker.grpc_port.local_brokers import AccountOf, Home, LocalBrokers
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import AccessDenied
from sparrowmq.grpc.port import ListenAddress, open_port
from sparrowmq.http2.calls import Call
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import to_end
from sparrowmq.loop.tasks import Background
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol import hosts
from sparrowmq.remoting.quotas import Quotas
from sparrowmq.remoting.tls.tls_contexts import ServerTls

LOOK_S: Final = 30.0


class GrpcPort:
    """The open port; an async context manager.

    Args:
        turn: the broker's turn of the loop.
        quotas: the broker's, for the connections of addresses.
    Attributes:
        address: for clients.
        problem: returns why the port closes new connections; "" if it does not.
    Raises on entering:
        ConfigError: the port cannot be used.
    """

    def __init__(
        self,
        home: Home,
        clock: Clock,
        tls: ServerTls,
        turn: Turn,
        place: ListenAddress,
        quotas: Quotas | None,
    ) -> None:
        self.address = ""
        self.problem: Callable[[], str] = str
        self._home = home
        self._clock = clock
        self._tls = tls
        self._turn = turn
        self._place = place
        self._quotas = quotas
        self.account_of: AccountOf = _no_account
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(Background())
            is_guarded = self.account_of is not _no_account
            links = LocalBrokers(self._home, self._clock, tasks.spawn, self.account_of, is_guarded=is_guarded)
            stack.callback(links.close)
            self.address, self.problem = await open_port(
                stack, tasks, links, self._clock, self._tls, self._place, self._turn, self._quotas
            )
            tasks.spawn(self._expire(links), "idle gRPC clients")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        return await self._stack.__aexit__(*error)  # type: ignore[arg-type]

    async def _expire(self, links: LocalBrokers) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            await to_end(links.expire())


def account_of(
    accounts: Callable[[], Mapping[str, Signer]], clock: Clock, freshness: Freshness, has_users: bool
) -> AccountOf:
    """Return what finds the account that signed a call.

    Accounts of 4.x may be those of an address, and a certificate may be one: then the guard decides about a call
    without a signature. With users (`has_users`) it is refused here.
    """

    def find(call: Call) -> Signer | None:
        if AUTHORIZATION not in call.metadata and (call.peer.certificate is not None or not has_users):
            return None
        return grpc_principal(call.metadata, accounts(), clock.now_ms(), freshness)

    return find


def counting(find: AccountOf, quotas: Quotas, clock: Clock, audit: Audit) -> AccountOf:
    """Return `find` with a limit and a log: denied calls count for the quota of their address, as denied requests."""

    def counted(call: Call) -> Signer | None:
        host, now = hosts.pack(str(call.peer)), clock.monotonic()
        if not call.peer.is_trusted:
            quotas.admit(host, now)
        try:
            account = find(call)
        except AccessDenied as error:
            call.peer.is_trusted = False
            audit.denied_call(shown(call.method), str(call.peer), host, error)
            quotas.denied(host, None, 0, now)
            raise
        call.peer.is_trusted = call.peer.is_trusted or account is not None
        return account

    return counted


def _no_account(call: Call) -> None:
    """Without access control signatures say nothing."""
