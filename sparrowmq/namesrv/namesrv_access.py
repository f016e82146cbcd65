"""Access control of a name server: the accounts of the brokers decide who may register, change and ask.

    register, unregister, ask for a version      an account with `broker: true`, or an administrator
    change routes, values and settings           an administrator
    ask for routes, topics and values            any account; with aclPublicRoutes=true every client

    aclBrokerAddresses       may also do what brokers do, without a signature: for Apache's brokers, which sign nothing
    globalWhiteRemoteAddresses of the account files      may do everything without a signature

Clients with accounts sign their questions to name servers too: ours, Java's, Go's and C++'s. Unlike Java, whose name
servers accept every registration.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from sparrowmq.auth.account_files import LOOK_PERIOD_S, account_files
from sparrowmq.auth.accounts import PORT_BYTES
from sparrowmq.auth.address_patterns import Addresses
from sparrowmq.auth.audit_log import FILE, Audit
from sparrowmq.auth.permissions import Caller
from sparrowmq.auth.request_check import AccountCheck, Guard
from sparrowmq.errors import AccessDenied, ConfigError
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import ACCOUNTS_NOT_LOADED, AUDIT_NOT_WRITTEN, DENIALS, Probe
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.requests.request_table import Access, Row
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request

_OF_BROKERS: Final = frozenset({Access.CLUSTER, Access.CLIENT})


class NamesrvAccess:
    """The guard of a name server with access control, and its audit log.

    Raises:
        ConfigError: there are no accounts, a file is broken, or an address is none.
    """

    def __init__(self, settings: NamesrvSettings, clock: Clock) -> None:
        self._files = account_files(settings.home, settings.acl_file)
        self._accounts = AccountCheck(self._files, lambda offset: None)
        self._is_public = settings.public_routes
        try:
            self._brokers = Addresses([settings.broker_addresses])
        except ValueError as error:
            raise ConfigError(f"aclBrokerAddresses: {error}") from None
        self.guard = Guard([self.check])
        path = settings.audit_path or settings.kv_path.with_name(FILE)
        self.audit = Audit(path if settings.audit_log else None, clock)

    def check(self, peer: Caller, command: Command, row: Row, header: Request[Any]) -> None:
        """Do nothing if the request is allowed. Raises: AccessDenied."""
        try:
            self._accounts(peer, command, row, header)
        except AccessDenied as error:
            if not self._may_unsigned(peer, row):
                raise _with_advice(error, row, is_known=peer.principal is not None) from None

    def probes(self) -> tuple[Probe, ...]:
        """Return what can be wrong with accounts and the audit log."""
        return (
            (AUDIT_NOT_WRITTEN, lambda: self.audit.problem),
            (DENIALS, lambda: self.audit.again.last),
            (ACCOUNTS_NOT_LOADED, lambda: self._files.problem),
        )

    async def watch(self, clock: Clock) -> None:
        """Load the account files when they have changed, and write the audit log, until cancelled."""
        try:
            while True:
                await clock.sleep(LOOK_PERIOD_S)
                self._files.look()
                if self.audit.is_due:
                    await asyncio.to_thread(self.audit.write)
        finally:
            self.audit.write()

    def _may_unsigned(self, peer: Caller, row: Row) -> bool:
        if row.access is Access.CLIENT and self._is_public:
            return True
        return row.access in _OF_BROKERS and self._brokers.has(peer.host[:-PORT_BYTES])


def _with_advice(error: AccessDenied, row: Row, *, is_known: bool) -> AccessDenied:
    if row.access is not Access.CLUSTER:
        return error
    advice = (
        "give the account `broker: true`"
        if is_known
        else "set brokerAccessKey and brokerSecretKey at the broker, or name its address in aclBrokerAddresses here"
    )
    return AccessDenied(f"{error.args[0]}; {advice}").of_kind(error.kind).of_kind(error.kind)
