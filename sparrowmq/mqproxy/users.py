"""The users and policies of the brokers (ACL 2.0), as `mqproxy` reads them every few seconds.

Each broker has its own users, and decides by them. mqproxy reads them with an account that is a Super user there: only
such a user gets passwords. While a broker does not answer, its users stay in use.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from sparrowmq.auth.accounts import PORT_BYTES
from sparrowmq.auth.permissions import Caller
from sparrowmq.auth.policies import Action, Kind, Resource
from sparrowmq.auth.user_check import UserCheck, UserRules
from sparrowmq.auth.user_directory import principals
from sparrowmq.auth.users import User
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
from sparrowmq.mqproxy.cluster_brokers import ClusterBrokers
from sparrowmq.protocol.hosts import pack
from sparrowmq.protocol.requests.admin_headers import GetBrokerConfig
from sparrowmq.protocol.requests.request_table import BY_CODE
from sparrowmq.protocol.requests.user_bodies import SUBJECT, decode_policies, decode_users
from sparrowmq.protocol.requests.user_headers import ListAcls, ListUsers
from sparrowmq.protocol.wire.header import Request
from sparrowmq.settings.settings import parse_properties

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0
_USED: Final = ("authorizationEnabled=", "brokerClusterName=")
_ROUTE: Final = (Action.PUB, Action.SUB, Action.GET)  # one of them is enough


class Source:
    """The client of a call, as checks see it."""

    def __init__(self, address: str, certificate: str | None) -> None:
        self.address = address
        self.host = pack(address)
        self.certificate = certificate
        self.principal: Any = None


class _Table(NamedTuple):
    users: Mapping[str, User]
    passwords: Mapping[str, str]
    check: UserCheck


class BrokerUsers:
    """The users of all brokers.

    Attributes:
        accounts: those of any broker, by name; for signatures.
        passwords: theirs.
    """

    def __init__(self, cluster: ClusterBrokers, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._tables: dict[str, _Table] = {}
        self._problems: dict[str, Exception] = {}
        self.accounts: dict[str, User] = {}
        self.passwords: dict[str, str] = {}

    async def start(self) -> None:
        """Read the users. Brokers that do not answer now are asked again later.

        Raises:
            ConfigError: a broker refuses to give them.
        """
        await self._look()
        for name, problem in self._problems.items():
            if isinstance(problem, RemoteError):
                raise ConfigError(
                    f"{name} gives mqproxy no users: {problem}; the account of mqproxy must be a Super user of each "
                    "broker, and brokers need authenticationEnabled=true"
                )

    async def run(self) -> None:
        """Read the users again and again, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            await self._look()

    def authorise(
        self, broker_name: str, account: str, source: Source, request: Request[Any], body: bytes
    ) -> None:
        """Do nothing if an account may send a request to a broker from there.

        Raises:
            AccessDenied: it may not.
            BrokerUnreachable: the broker has not given its users.
        """
        table = self._tables.get(broker_name)
        if table is None:
            problem = self._problems.get(broker_name) or "a broker that starts is asked again within seconds"
            raise BrokerUnreachable(broker_name, f"mqproxy has not read its users: {problem}")
        user = table.users.get(account)
        if user is None:
            raise AccessDenied(f"User:{account} is not found at {broker_name}").of_kind(
                DenialKind.UNKNOWN_ACCOUNT
            )
        demand_enabled(user)
        caller: Caller = source
        table.check.authorise(user, caller, BY_CODE[request.code], request, body)

    def may_see(self, account: str, topic: str, source: Source) -> bool:
        """Whether an account may do anything with a topic, at any broker."""
        resource, host = Resource(Kind.TOPIC, topic), source.host[:-PORT_BYTES]
        users = [table.users[account] for table in self._tables.values() if account in table.users]
        return any(user.does(action, resource, host) for user in users for action in _ROUTE)

    async def _look(self) -> None:
        try:
            names = await self._cluster.addresses.masters()
        except SparrowError as error:
            log.warning("the users are as before: %s", error)
            return
        for name in names:
            await self._read(name)
        self._tables = {name: self._tables[name] for name in names if name in self._tables}
        self.accounts, self.passwords = {}, {}
        for table in self._tables.values():
            self.accounts = {**table.users, **self.accounts}
            self.passwords = {**table.passwords, **self.passwords}

    async def _read(self, name: str) -> None:
        """Read the users of a broker. One that refuses has none, nor has one whose answer cannot be read."""
        try:
            self._tables[name] = await self._table(name)
        except NetworkError as error:
            log.warning("the users of %s are as before: %s", name, error)
        except (SparrowError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._tables.pop(name, None)
            if str(self._problems.get(name)) != str(error):
                log.error("%s gives no users, so all calls for it are denied: %s", name, error)
            self._problems[name] = error
        else:
            self._problems.pop(name, None)

    async def _table(self, name: str) -> _Table:
        ask = self._cluster.ask
        users = {user.username: user for user in decode_users(bytes((await ask(name, ListUsers())).body))}
        if not any(user.password for user in users.values()):
            raise AccessDenied("it shows no passwords, as to users that are not Super")
        policies = decode_policies(bytes((await ask(name, ListAcls())).body))
        settings = _settings(bytes((await ask(name, GetBrokerConfig())).body))
        found = principals(
            users,
            {each.subject.removeprefix(SUBJECT): each.policies for each in policies},
            is_unlimited=settings.get("authorizationEnabled") == "false",
        )
        rules = UserRules(settings.get("brokerClusterName", ""))
        passwords = {user.username: user.password for user in users.values() if user.password}
        # The broker checks the record at an offset itself, for the same user.
        return _Table(found, passwords, UserCheck(rules, lambda: found, lambda offset: None))


def _settings(raw: bytes) -> dict[str, str]:
    """The settings that count here. Apache's brokers write paths such as C:\\users, which are no valid escapes."""
    lines = raw.decode("utf-8", "replace").splitlines()
    return parse_properties("\n".join(line for line in lines if line.startswith(_USED)))


def demand_enabled(user: User) -> None:
    """Do nothing unless the user is switched off. Raises: AccessDenied."""
    if not user.is_enabled:
        raise AccessDenied(f"User:{user.access_key} is disabled").of_kind(DenialKind.UNKNOWN_ACCOUNT)
