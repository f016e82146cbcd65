"""Users and policies over the wire (ACL 2.0), as in mqadmin of 5.3: createUser (3001) to listAcl (3010).

The access guard lets only Super users send these requests. Unlike Java, where a user that may update the cluster can
give itself everything. Passwords are only in answers to clients that signed as a Super user.
Source: AdminBrokerProcessor and the managers of metadata, Java 5.4.0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from sparrowmq.broker.access_control import AccessControl
from sparrowmq.broker.state.users import Users
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ConfigError, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.user_headers import (
    SUBJECT,
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
    encode_list,
)
from sparrowmq.remoting.handler import Reply, handles
from sparrowmq.remoting.peer import Peer

log = logging.getLogger(__name__)


class UsersHandler:
    def __init__(self, access: AccessControl, users: Users) -> None:
        self._access = access
        self._users = users

    @handles(CreateUser)
    async def create_user(self, header: CreateUser, body: bytes, peer: Peer) -> None:
        self._demand_users()
        from sparrowmq.auth.user_directory import completed

        if self._users.get(header.username) is not None:
            raise _refused(f"The user {header.username} exists; change it with updateUser")
        user = completed(_named(UserEntry.of_request(body), header.username))
        await self._put(user, peer, "created")

    @handles(UpdateUser)
    async def update_user(self, header: UpdateUser, body: bytes, peer: Peer) -> None:
        before = self._user(header.username)
        from sparrowmq.auth.user_directory import completed

        user = completed(_named(UserEntry.of_request(body), header.username), before)
        await self._put(user, peer, "changed")

    @handles(DeleteUser)
    async def delete_user(self, header: DeleteUser, body: bytes, peer: Peer) -> None:
        """Delete a user and its policies. As in Java, it need not exist."""
        self._demand_users()
        if self._users.delete(header.username):
            log.info("user %s was deleted by %s", shown(header.username), peer.address)
        await self._users.file.confirm(f"user {header.username} is deleted")

    @handles(GetUser)
    def get_user(self, header: GetUser, body: bytes, peer: Peer) -> Reply:
        """Return a user; no body if there is none."""
        self._demand_users()
        user = self._users.get(header.username)
        return Reply(body=_shown_to(peer, user) if user is not None else b"")

    @handles(ListUsers)
    def list_users(self, header: ListUsers, body: bytes, peer: Peer) -> Reply:
        """Return the users whose names contain the filter."""
        self._demand_users()
        part = header.filter or ""
        found = [_shown_to(peer, user) for name, user in sorted(self._users.table.items()) if part in name]
        return Reply(body=encode_list(found) if found else b"")

    @handles(CreateAcl, UpdateAcl)
    async def put_policies(self, header: CreateAcl | UpdateAcl, body: bytes, peer: Peer) -> None:
        """Add entries to the policies of a user. As in Java, both replace an entry of the same resource."""
        name = self._subject(header.subject)
        from sparrowmq.auth.user_directory import merged

        given = UserPolicies.of_request(body).policies
        if not any(policy.entries for policy in given):
            raise _refused("The policies have no entry: give a resource, actions and a decision")
        try:
            policies = merged(self._users.policies.get(name, []), given)
        except ConfigError as error:
            raise _refused(str(error)) from error
        await self._set(name, policies, peer)

    @handles(DeleteAcl)
    async def delete_policies(self, header: DeleteAcl, body: bytes, peer: Peer) -> None:
        """Delete all policies of a user, those of one kind, or the entry of one resource."""
        name = self._subject(header.subject)
        from sparrowmq.auth.user_directory import without

        if name not in self._users.policies:
            raise _refused(f"{header.subject} has no policies")
        try:
            policies = without(self._users.policies[name], header.policy_type, header.resource)
        except ConfigError as error:
            raise _refused(str(error)) from error
        await self._set(name, policies, peer)

    @handles(GetAcl)
    def get_policies(self, header: GetAcl, body: bytes, peer: Peer) -> Reply:
        """Return the policies of a user; no body if it has none."""
        found = self._users.of_subject(self._subject(header.subject))
        return Reply(body=found if found is not None else b"")

    @handles(ListAcls)
    def list_policies(self, header: ListAcls, body: bytes, peer: Peer) -> Reply:
        """Return the policies whose subject and resources contain the filters."""
        self._demand_users()
        found = []
        for name in sorted(self._users.policies):
            policies = self._users.of_subject(name)
            if policies is None or (header.subject_filter or "") not in policies.subject:
                continue
            kept = _with_resource(policies.policies, header.resource_filter or "")
            if kept:
                found.append(UserPolicies(policies.subject, kept))
        return Reply(body=encode_list(found) if found else b"")

    async def _put(self, user: UserEntry, peer: Peer, done: str) -> None:
        from sparrowmq.auth.user_directory import check_user

        try:
            check_user(user)
        except ConfigError as error:
            raise _refused(str(error)) from error
        self._users.put(user)
        log.info("user %s was %s by %s", shown(user.username), done, peer.address)
        await self._users.file.confirm(f"user {user.username} is {done}")

    async def _set(self, name: str, policies: list[Policy], peer: Peer) -> None:
        self._users.set_policies(name, policies)
        log.info("the policies of user %s were changed by %s", shown(name), peer.address)
        await self._users.file.confirm(f"the policies of user {name} are changed")

    def _subject(self, subject: str) -> str:
        """The name of the user in a subject. Raises: RemoteError, there is no such user."""
        if not subject.startswith(SUBJECT):
            raise _refused(f"The subject {shown(subject)} is invalid; write User:NAME")
        name = subject.removeprefix(SUBJECT)
        self._user(name)
        return name

    def _user(self, name: str) -> UserEntry:
        """Raises: RemoteError, there is no such user."""
        self._demand_users()
        user = self._users.get(name)
        if user is None:
            raise _refused(f"The user {shown(name)} does not exist; create it with createUser")
        return user

    def _demand_users(self) -> None:
        """Raises: RemoteError, the broker does not use users. Otherwise any client could create the first one."""
        if not self._access.has_users:
            raise RemoteError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "this broker has no users: set authenticationEnabled=true and initAuthenticationUser in its settings",
            )


def _named(user: UserEntry, name: str) -> UserEntry:
    return msgspec.structs.replace(user, username=name)


def _shown_to(peer: Peer, user: UserEntry) -> UserEntry:
    by_admin = peer.principal is not None and peer.principal.is_admin
    return user if by_admin else msgspec.structs.replace(user, password=None)


def _with_resource(policies: Iterable[Policy], part: str) -> list[Policy]:
    found = [
        Policy(policy.policy_type, [rule for rule in policy.entries if part in rule.resource]) for policy in policies
    ]
    return [policy for policy in found if policy.entries]


def _refused(reason: str) -> RemoteError:
    return RemoteError(ResponseCode.NO_PERMISSION, reason)
