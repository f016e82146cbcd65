"""Access control of a name server: accounts or users decide who may register, change and ask.

                                          accounts of 4.x                       users (ACL 2.0)
    register, unregister, ask for a version   `broker: true`, or an administrator   a Super user
        in the name of a broker               that `brokerNames` has, if it is there
    change routes, values and settings        an administrator                      Update on `Cluster:*`
    ask for routes, topics and values         any account                           any user

aclPublicRoutes=true         every client may ask for routes, topics and values
aclBrokerAddresses           may also do what brokers do, without a signature: for brokers that sign nothing
globalWhiteRemoteAddresses of the account files      may do everything without a signature

Clients with accounts sign their questions to name servers too: ours, Java's, Go's and C++'s. Apache's brokers since 5.3
sign with innerClientAuthenticationCredentials. Unlike Java, whose name servers accept every registration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sparrowmq.auth import permissions
from sparrowmq.auth.account_files import POLL_S, AccountFiles, load_account_files
from sparrowmq.auth.addresses import PORT_BYTES, Addresses
from sparrowmq.auth.audit_log import Audit
from sparrowmq.auth.first_users import first_users, no_users_error
from sparrowmq.auth.permissions import Peer
from sparrowmq.auth.request_check import AccountCheck
from sparrowmq.auth.user_check import UserCheck, UserRules
from sparrowmq.auth.users import User, principals
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import AccessDenied, ConfigError, DenialKind, RemoteProtocolError
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import (
    ACCOUNTS_NOT_LOADED,
    ANY_BROKER_NAME,
    AUDIT_NOT_WRITTEN,
    DENIALS,
    Probe,
)
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.requests.request_table import Access, Row
from sparrowmq.protocol.requests.user_headers import UserTable
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request
from sparrowmq.settings.settings_files import ChangedFiles

log = logging.getLogger(__name__)

ANY_CLUSTER: Final = ""  # brokers of several clusters register here; only `Cluster:*` fits this name
_MAX_NAMED_ACCOUNTS: Final = 3  # accounts in a text
_BROKER_ACCESS: Final = frozenset({Access.CLUSTER, Access.CLIENT})


class NamesrvAccess:
    """The guard of a name server with access control, and its audit log. Raises: ConfigError, there are no accounts or
    users, a file is broken, or an address is none."""

    def __init__(self, settings: NamesrvSettings, clock: Clock) -> None:
        self._source: AccountFiles | NamesrvUsers
        self._check: AccountCheck | UserCheck
        if settings.authentication:
            self._source = users = NamesrvUsers(settings)
            whitelists = settings.authentication_whitelist, settings.authorization_whitelist
            self._check = UserCheck(UserRules(ANY_CLUSTER, *whitelists), lambda: users.by_name, lambda _: None)
        else:
            self._source = load_account_files(settings.home, settings.acl_file)
            self._check = AccountCheck(self._source, lambda _: None)
        self._has_users = settings.authentication
        self._is_public = settings.public_routes
        try:
            self._broker_addresses = Addresses([settings.broker_addresses])
        except ValueError as error:
            raise ConfigError(f"aclBrokerAddresses: {error}") from None
        self.audit = Audit(settings.audit_file if settings.audit_log else None, clock)

    def check(self, peer: Peer, command: Command, row: Row, header: Request[Any]) -> None:
        """Do nothing if the request is allowed. Raises: AccessDenied."""
        try:
            self._check(peer, command, row, header)
            if self._has_users and row.access is Access.CLUSTER and peer.principal is not None:
                permissions.check_admin(peer.principal, row)
        except AccessDenied as error:
            if not self._may_send_unsigned(peer, row):
                raise self._with_advice(error, row, is_known=peer.principal is not None) from None

    def probes(self) -> tuple[Probe, ...]:
        return (
            (AUDIT_NOT_WRITTEN, lambda: self.audit.problem),
            (DENIALS, lambda: self.audit.repeated_denials.last),
            (ACCOUNTS_NOT_LOADED, lambda: self._source.problem),
            (ANY_BROKER_NAME, self._unlimited_brokers_problem),
        )

    async def watch(self, clock: Clock) -> None:
        """Load the accounts or users when their files have changed, and write the audit log, until cancelled."""
        try:
            while True:
                await clock.sleep(POLL_S)
                self._source.poll()
                if self.audit.is_due:
                    await asyncio.to_thread(self.audit.write)
        finally:
            self.audit.write()

    def _unlimited_brokers_problem(self) -> str:
        """Say which accounts of brokers may register any name; "" if none may. Administrators always may."""
        if isinstance(self._source, NamesrvUsers):
            return ""
        brokers = [account for account in self._source.current.by_key.values() if account.is_broker]
        access_keys = [each.access_key for each in brokers if not each.is_admin and not each.broker_names]
        more = f" and {len(access_keys) - _MAX_NAMED_ACCOUNTS} more" if len(access_keys) > _MAX_NAMED_ACCOUNTS else ""
        names = ", ".join(map(shown, access_keys[:_MAX_NAMED_ACCOUNTS]))
        what = "accounts that may take over the route of every broker, as they have no brokerNames"
        return f"{what}: {names}{more}" if access_keys else ""

    def _may_send_unsigned(self, peer: Peer, row: Row) -> bool:
        if row.access is Access.CLIENT and self._is_public:
            return True
        return row.access in _BROKER_ACCESS and self._broker_addresses.has(peer.host[:-PORT_BYTES])

    def _with_advice(self, error: AccessDenied, row: Row, *, is_known: bool) -> AccessDenied:
        if row.access is not Access.CLUSTER:
            return error
        if self._has_users:
            keys = "innerClientAuthenticationCredentials at the broker to a Super user that this name server knows"
            advice = "only Super users register brokers" if is_known else f"set {keys}"
        elif is_known and error.kind is not DenialKind.NEEDS_ADMIN:
            advice = "add the name to its brokerNames"
        elif is_known:
            advice = "give the account `broker: true`"
        else:
            advice = "set brokerAccessKey and brokerSecretKey at the broker"
        if not is_known:
            advice += ", or name its address in aclBrokerAddresses here"
        return AccessDenied(f"{error.args[0]}; {advice}", error.code).of_kind(error.kind)


class NamesrvUsers:
    """The users of a name server (ACL 2.0): those of a file, and those that the settings name.

    The file has the form of a broker's `config/users.json`. A change takes effect at the second poll that finds the
    same file, because a copy may be half written: `by_name` is another object then. A broken file stops a start with
    ConfigError; later it changes nothing, and is reported once. Until the file is there, the users of the settings
    count.
    """

    def __init__(self, settings: NamesrvSettings) -> None:
        self._path = settings.users_file
        self._is_unlimited = not settings.authorization
        self._users_of_settings = list(first_users(settings, settings.home, settings.acl_file))
        self._watched_file = ChangedFiles(lambda: [self._path] if self._path is not None else [], "users")
        self._missing_file_problem = ""
        self.by_name = self._principals(self._first_table())
        if not self.by_name:
            raise no_users_error(", or usersFile to the users of a broker")

    @property
    def problem(self) -> str:
        return self._watched_file.problem or self._missing_file_problem

    def poll(self) -> None:
        self._watched_file.reload(self._load)

    def _load(self) -> None:
        if self._path is not None:
            self.by_name = self._principals(_read_table(self._path))
            self._missing_file_problem = ""
            log.info("%d users are in effect", len(self.by_name))

    def _first_table(self) -> UserTable:
        if self._path is None:
            return UserTable()
        if self._users_of_settings and not self._path.exists():
            self._missing_file_problem = (
                f"usersFile {self._path} does not exist yet, so only the users of the settings count"
            )
            log.warning("%s", self._missing_file_problem)
            return UserTable()
        return _read_table(self._path)

    def _principals(self, table: UserTable) -> Mapping[str, User]:
        """All users. Those of the file count before those of the settings."""
        settings_users = {user.username: (user, policies) for user, policies in reversed(self._users_of_settings)}
        users = {name: user for name, (user, _) in settings_users.items()} | table.users
        policies = {name: found for name, (_, found) in settings_users.items() if name not in table.users}
        return principals(users, policies | table.policies, is_unlimited=self._is_unlimited)


def _read_table(path: Path) -> UserTable:
    try:
        return UserTable.decode(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read usersFile {path}: {error.strerror or error}") from error
    except RemoteProtocolError as error:
        raise ConfigError(f"usersFile {path} has not the form of a broker's users.json: {error}") from error
