"""Requests to one broker about users and their policies (ACL 2.0). Slaves have those of their master.

Source: the classes of org.apache.rocketmq.tools.command.auth, Java 5.4.0.
"""

from __future__ import annotations

from sparrowmq.client.admin.operations.asker import Asker
from sparrowmq.protocol.requests.user_headers import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    Policy,
    UpdateAcl,
    UpdateUser,
    UserEntry,
    UserPolicies,
    decode_policies,
    decode_users,
)


async def user(asker: Asker, address: str, name: str) -> UserEntry | None:
    body = (await asker.ask(address, GetUser(name))).body
    return UserEntry.decode(body) if body else None


async def users(asker: Asker, address: str, part: str = "") -> list[UserEntry]:
    """Return the users whose names contain a text."""
    return decode_users(bytes((await asker.ask(address, ListUsers(part or None))).body))


async def create_user(asker: Asker, address: str, entry: UserEntry) -> None:
    await asker.ask(address, CreateUser(entry.username), entry.encode())


async def update_user(asker: Asker, address: str, entry: UserEntry) -> None:
    await asker.ask(address, UpdateUser(entry.username), entry.encode())


async def delete_user(asker: Asker, address: str, name: str) -> None:
    await asker.ask(address, DeleteUser(name))


async def policies(asker: Asker, address: str, subject: str) -> UserPolicies | None:
    body = (await asker.ask(address, GetAcl(subject))).body
    return UserPolicies.decode(body) if body else None


async def all_policies(asker: Asker, address: str, subject: str = "", resource: str = "") -> list[UserPolicies]:
    """Return the policies whose subject and resources contain the texts."""
    request = ListAcls(subject or None, resource or None)
    return decode_policies(bytes((await asker.ask(address, request)).body))


async def create_policies(asker: Asker, address: str, subject: str, policies: list[Policy]) -> None:
    await asker.ask(address, CreateAcl(subject), UserPolicies(subject, policies).encode())


async def update_policies(asker: Asker, address: str, subject: str, policies: list[Policy]) -> None:
    """Likewise; entries of the same resource are replaced."""
    await asker.ask(address, UpdateAcl(subject), UserPolicies(subject, policies).encode())


async def delete_policies(asker: Asker, address: str, subject: str, resource: str | None) -> None:
    """Delete the entry of a resource, or all policies of a subject."""
    await asker.ask(address, DeleteAcl(subject, resource=resource))
