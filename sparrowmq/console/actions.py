"""Everything that the console changes, and who may: the only file of it that changes anything.

Each asks for a role when it is carried out, whatever the page showed, and leaves a line in the log: who did what.
`NEEDED` is the table of them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from sparrowmq.client.admin.groups import ResetTo
from sparrowmq.client.admin.operations import account_operations, group_operations
from sparrowmq.client.admin.operations.broker_operations import change_broker_settings
from sparrowmq.client.admin.topics import TopicPerm
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.client.sending.outcome import SendResult
from sparrowmq.console.login.sessions import Session
from sparrowmq.console.reading.cluster_view import Look
from sparrowmq.console.users import Role
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateAclConfig
from sparrowmq.protocol.requests.bodies import ConsumeOutcome

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

NEEDED: Final[dict[str, Role]] = {}


class Forbidden(SparrowError):
    """Whoever asked for an action has no role for it, or is logged in no longer."""


def needs(
    role: Role,
) -> Callable[
    [Callable[Concatenate[Actions, P], Awaitable[R]]],
    Callable[Concatenate[Actions, P], Coroutine[Any, Any, R]],
]:
    """Makes a method an action that needs a role."""

    def bind(
        method: Callable[Concatenate[Actions, P], Awaitable[R]],
    ) -> Callable[Concatenate[Actions, P], Coroutine[Any, Any, R]]:
        name = method.__name__
        NEEDED[name] = role

        @wraps(method)
        async def call(self: Actions, /, *args: P.args, **kwargs: P.kwargs) -> R:
            self.demand(role, name)
            log.info("%s: %s %s", self.session.name, name, " ".join(_words(args, kwargs)))
            return await method(self, *args, **kwargs)

        return call

    return bind


def _words(args: Sequence[object], kwargs: Mapping[str, object]) -> list[str]:
    """What the log tells of the arguments: names and numbers; bodies, secrets and settings stay untold."""
    given = [*enumerate(args), *kwargs.items()]
    return [
        f"{key}={value}" if isinstance(key, str) else f"{value}" for key, value in given if _is_plain(value)
    ]


def _is_plain(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and len(value) < 256 and value.isprintable())


class Actions:
    """What one visitor may do."""

    def __init__(self, look: Look, session: Session) -> None:
        self.session = session
        self._look = look
        self._admin = look.admin
        self._servers = look.servers

    def may(self, name: str) -> bool:
        """Whether an action is worth a button."""
        return self.session.may(NEEDED[name])

    def demand(self, role: Role, name: str) -> None:
        """Raises: Forbidden."""
        if not self.session.is_alive:
            raise Forbidden("you are logged out; log in again")
        if not self.session.may(role):
            log.warning("%s may not %s", self.session.name, name)
            needed, had = role.name.lower(), self.session.role.name.lower()
            raise Forbidden(f"{name.replace('_', ' ')} needs the role {needed}; you have {had}")

    # Messages and offsets -------------------------------------------------------------------------------------------

    @needs(Role.OPERATE)
    async def send(
        self,
        topic: str,
        *,
        body: bytes,
        tag: str | None,
        keys: list[str],
        properties: dict[str, str],
        delay: str | None,
    ) -> SendResult:
        """Send a message to try a topic with."""
        options: dict[str, Any] = {"delay": delay} if delay else {}
        return await self._look.client.send(topic, body, tag=tag, keys=keys, properties=properties, **options)

    @needs(Role.OPERATE)
    async def reset(self, group: str, topic: str, to: ResetTo) -> dict[MessageQueue, int]:
        """Move a group to other offsets."""
        return await self._admin.reset(group, topic, to)

    @needs(Role.OPERATE)
    async def skip(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Move a group over all that waits for it."""
        return await self._admin.reset(group, topic, "latest")

    @needs(Role.OPERATE)
    async def consume_directly(self, message: ReceivedMessage, group: str, client_id: str) -> ConsumeOutcome:
        """Have one member handle a message now."""
        stored = message.stored
        return await group_operations.consume_directly(
            self._servers, stored.store_host, group, client_id, stored.offset_id, message.queue.broker_name
        )

    @needs(Role.OPERATE)
    async def resend(self, letter: ReceivedMessage) -> None:
        """Let a group try a dead letter again."""
        await self._admin.resend(letter)

    # Topics and groups ----------------------------------------------------------------------------------------------

    @needs(Role.ADMIN)
    async def create_topic(
        self, name: str, *, queues: int, perm: TopicPerm, cluster: str | None
    ) -> list[str]:
        """Make a topic at every master."""
        try:
            return await self._admin.create_topic(name, queues=queues, perm=perm, cluster=cluster)
        finally:
            self._look.forget()

    @needs(Role.ADMIN)
    async def change_topic(
        self, name: str, *, read_queues: int, write_queues: int, perm: TopicPerm
    ) -> list[str]:
        """Change a topic at every master that has it."""
        try:
            return await self._admin.change_topic(
                name, read_queues=read_queues, write_queues=write_queues, perm=perm
            )
        finally:
            self._look.forget()

    @needs(Role.ADMIN)
    async def delete_topic(self, name: str) -> list[str]:
        """Delete a topic and its messages."""
        try:
            return await self._admin.delete_topic(name)
        finally:
            self._look.forget()

    @needs(Role.ADMIN)
    async def create_group(self, name: str, *, max_retries: int, cluster: str | None) -> list[str]:
        """Make a consumer group at every master."""
        try:
            return await self._admin.create_group(name, max_retries=max_retries, cluster=cluster)
        finally:
            self._look.forget()

    @needs(Role.ADMIN)
    async def change_group(
        self, name: str, *, max_retries: int, retry_queues: int, may_consume: bool, may_broadcast: bool
    ) -> list[str]:
        """Change a group at every master."""
        return await self._admin.change_group(
            name,
            max_retries=max_retries,
            retry_queues=retry_queues,
            may_consume=may_consume,
            may_broadcast=may_broadcast,
        )

    @needs(Role.ADMIN)
    async def delete_group(self, name: str) -> list[str]:
        """Delete a group, its offsets, retries and dead letters."""
        try:
            return await self._admin.delete_group(name)
        finally:
            self._look.forget()

    # Brokers and accounts -------------------------------------------------------------------------------------------

    @needs(Role.ADMIN)
    async def change_settings(self, address: str, changes: Mapping[str, str]) -> None:
        """Change settings of a broker while it runs."""
        await change_broker_settings(self._servers, address, changes)

    @needs(Role.ADMIN)
    async def use_name_servers(self, addresses: str) -> None:
        """Have the console ask other name servers, until it stops."""
        await self._look.use_name_servers(addresses)

    @needs(Role.ADMIN)
    async def put_account(self, addresses: list[str], wanted: UpdateAndCreateAclConfig) -> None:
        """Make an account, or change it, at some brokers."""
        for address in addresses:
            await account_operations.put_account(self._servers, address, wanted)

    @needs(Role.ADMIN)
    async def delete_account(self, addresses: list[str], access_key: str) -> None:
        """Remove an account from some brokers."""
        for address in addresses:
            await account_operations.delete_account(self._servers, address, access_key)

    @needs(Role.ADMIN)
    async def set_white_addresses(self, addresses: list[str], patterns: str) -> None:
        """Replace the addresses that need no account, at some brokers."""
        for address in addresses:
            await account_operations.set_white_addresses(self._servers, address, patterns)
