"""The users and policies of the brokers (ACL 2.0), as `mqproxy` reads them every few seconds.

Each broker has its own users, and decides by them. mqproxy reads them with an account that is a Super user there: only
such a user gets passwords. While a broker does not answer, or is registered nowhere, its users stay in use for ten
minutes. The broker decides about each request, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from sparrowmq.auth.addresses import PORT_BYTES
from sparrowmq.auth.permissions import Peer
from sparrowmq.auth.policies import Action, resource_of
from sparrowmq.auth.user_check import UserCheck, UserRules
from sparrowmq.auth.users import User, principals
from sparrowmq.errors import (
    AccessDenied,
    BrokerUnreachable,
    ConfigError,
    DenialKind,
    NetworkError,
    RemoteError,
    SparrowError,
)
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.condition_kinds import USERS_NOT_READ, Probe
from sparrowmq.mqproxy.cluster_brokers import ClusterBrokers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.hosts import pack
from sparrowmq.protocol.requests.admin_headers import GetBrokerConfig
from sparrowmq.protocol.requests.request_table import BY_CODE
from sparrowmq.protocol.requests.user_headers import SUBJECT, ListAcls, ListUsers, decode_policies, decode_users
from sparrowmq.protocol.wire.header import Request
from sparrowmq.settings.settings_files import parse_properties

log = logging.getLogger(__name__)

POLL_S: Final = 5.0
KEEP_S: Final = 600.0  # a restart takes less, also one that checks a large log
_TRANSIENT_CODES: Final = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY)
_USED_SETTINGS: Final = ("authorizationEnabled=", "brokerClusterName=")
_ROUTE_ACTIONS: Final = (Action.PUB, Action.SUB, Action.GET)  # one of them is enough


class CallPeer:
    def __init__(self, address: str, certificate: str | None) -> None:
        self.address = address
        self.host = pack(address)
        self.certificate = certificate
        self.principal: Any = None


class _BrokerUserTable(NamedTuple):
    """The users of a broker; `read_s` is the time of the clock at which the broker gave them."""

    users: Mapping[str, User]
    passwords: Mapping[str, str]
    check: UserCheck
    read_s: float

    def authorise(self, account: str, source: Peer, request: Request[Any], body: bytes) -> None:
        user = self.users[account]
        check_enabled(user)
        self.check.authorise(user, source, BY_CODE[request.code], request, body)


class BrokerUsers:
    """The users of all brokers: `accounts` and `passwords` have those of any broker by name, for signatures."""

    def __init__(self, cluster: ClusterBrokers, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._tables: dict[str, _BrokerUserTable] = {}
        self._problems: dict[str, Exception] = {}
        self.accounts: dict[str, User] = {}
        self.passwords: dict[str, str] = {}

    async def start(self) -> None:
        """Read the users; brokers that do not answer are asked again later. Raises: ConfigError, a broker refuses."""
        await self._read_all()
        for name, problem in self._problems.items():
            if isinstance(problem, RemoteError) and not _is_transient(problem):
                raise ConfigError(
                    f"{name} gives mqproxy no users: {problem}; the account of mqproxy must be a Super user of each "
                    "broker, and brokers need authenticationEnabled=true"
                )

    async def run(self) -> None:
        while True:
            await self._clock.sleep(POLL_S)
            await self._read_all()

    def authorise(self, broker_name: str, account: str, source: CallPeer, request: Request[Any], body: bytes) -> None:
        """Check that an account may send a request to a broker from its address. Raises: AccessDenied, it may not;
        BrokerUnreachable, the broker has not given its users."""
        table = self._table_of(broker_name)
        if account not in table.users:
            raise AccessDenied(f"User:{account} is not found at {broker_name}").of_kind(DenialKind.UNKNOWN_ACCOUNT)
        table.authorise(account, source, request, body)

    def authorise_anywhere(self, account: str, source: CallPeer, request: Request[Any], body: bytes) -> None:
        """Check that an account may send a request to one of the brokers. Raises: AccessDenied."""
        denial = AccessDenied(f"User:{account} is not found", ResponseCode.NO_PERMISSION)
        for table in self._newest_first():
            if account in table.users:
                try:
                    return table.authorise(account, source, request, body)
                except AccessDenied as error:
                    denial = error
        raise denial

    def may_see(self, account: str, topic: str, source: Peer) -> bool:
        """Whether an account may do anything with a topic, or with the group of a retry topic, at any broker."""
        resource, host = resource_of(topic), source.host[:-PORT_BYTES]
        users = [table.users[account] for table in self._tables.values() if account in table.users]
        return any(user.may_do(action, resource, host) for user in users for action in _ROUTE_ACTIONS)

    def probes(self) -> list[Probe]:
        return [(USERS_NOT_READ, self._unread_problem)]

    def _unread_problem(self) -> str:
        problems = sorted(self._problems.items())
        return "; ".join(f"{name}: {self._unread_effect(name)}: {problem}" for name, problem in problems)

    def _unread_effect(self, name: str) -> str:
        table = self._tables.get(name)
        if table is None:
            return "all calls for it are denied"
        end_ms = self._clock.now_ms() + 1000 * (table.read_s + KEEP_S - self._clock.monotonic())
        return f"its users count until {datetime.fromtimestamp(end_ms // 1000, UTC):%H:%M:%S} UTC"

    def _table_of(self, broker_name: str) -> _BrokerUserTable:
        table = self._tables.get(broker_name)
        if table is None:
            problem = self._problems.get(broker_name, "a broker that starts is asked again within seconds")
            raise BrokerUnreachable(broker_name, f"mqproxy has not read its users: {problem}")
        return table

    def _newest_first(self) -> list[_BrokerUserTable]:
        """The users of all brokers. Those of a broker that is away, which may have changed, come last."""
        return sorted(self._tables.values(), key=lambda table: -table.read_s)

    async def _read_all(self) -> None:
        try:
            names = await self._cluster.addresses.masters()
        except SparrowError as error:
            log.debug("no name server lists the brokers: %s", error)
            names = sorted(self._tables)
        await asyncio.gather(*map(self._read_users, names))  # one that hangs delays no other
        now_s = self._clock.monotonic()
        self._tables = {name: table for name, table in self._tables.items() if now_s - table.read_s <= KEEP_S}
        for name in self._tables.keys() - names:
            self._problems[name] = BrokerUnreachable(name, "no name server knows a master of this name")
        known_names = {*names, *self._tables}
        self._problems = {name: problem for name, problem in self._problems.items() if name in known_names}
        self._merge_accounts()

    def _merge_accounts(self) -> None:
        self.accounts, self.passwords = {}, {}
        for table in self._newest_first():
            self.accounts = {**table.users, **self.accounts}
            self.passwords = {**table.passwords, **self.passwords}

    async def _read_users(self, name: str) -> None:
        """Read the users of a broker. One that refuses has none, nor has one whose answer cannot be read."""
        try:
            self._tables[name] = await self._fetch_table(name)
        except (SparrowError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            if not _is_transient(error):
                self._tables.pop(name, None)
            self._problems[name] = error
        else:
            self._problems.pop(name, None)
            self._merge_accounts()

    async def _fetch_table(self, name: str) -> _BrokerUserTable:
        send = self._cluster.ask
        users = {user.username: user for user in decode_users(bytes((await send(name, ListUsers())).body))}
        if not any(user.password for user in users.values()):
            raise AccessDenied("it shows no passwords, as to users that are not Super")
        policies_of_users = decode_policies(bytes((await send(name, ListAcls())).body))
        settings = _parse_used_settings(bytes((await send(name, GetBrokerConfig())).body))
        policies = {each.subject.removeprefix(SUBJECT): each.policies for each in policies_of_users}
        is_unlimited = settings.get("authorizationEnabled") == "false"
        by_name = principals(users, policies, is_unlimited=is_unlimited)
        rules = UserRules(settings.get("brokerClusterName", ""))
        passwords = {user.username: user.password for user in users.values() if user.password}
        # The broker checks the record at an offset itself, for the same user.
        check = UserCheck(rules, lambda: by_name, lambda offset: None)
        return _BrokerUserTable(by_name, passwords, check, self._clock.monotonic())


def _is_transient(error: Exception) -> bool:
    return isinstance(error, NetworkError) or (isinstance(error, RemoteError) and error.code in _TRANSIENT_CODES)


def _parse_used_settings(raw: bytes) -> dict[str, str]:
    """The settings that count here. Apache's brokers write paths such as C:\\users, which are no valid escapes."""
    lines = raw.decode("utf-8", "replace").splitlines()
    return parse_properties("\n".join(line for line in lines if line.startswith(_USED_SETTINGS)))


def check_enabled(user: User) -> None:
    if not user.is_enabled:
        raise AccessDenied(f"User:{user.access_key} is disabled").of_kind(DenialKind.UNKNOWN_ACCOUNT)
