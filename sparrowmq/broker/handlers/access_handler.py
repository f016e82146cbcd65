"""Accounts, users and policies over the wire.

    accounts, as in mqadmin of 4.9             updateAclConfig (50), deleteAclConfig (51), clusterAclConfigVersion (52),
                                               updateGlobalWhiteAddr (53), getAclConfig (54)
    users and policies, as in mqadmin of 5.3   createUser (3001) to listAcl (3010)

The access guard lets only administrators send requests about accounts. Unlike Java: secret keys are only for a client
that signed as an administrator. Java shows them to every client at a white-listed address and to every account. Only
Super users may send requests about users, and get passwords. Unlike Java, where a user that may update the cluster can
give itself everything.
Source: AdminBrokerProcessor and PlainPermissionManager, Java 4.9.7; the managers of metadata, Java 5.4.0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrowmq.broker.access_control import AccessControl, Users
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ConfigError, RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.admin_headers import (
    DeleteAclConfig,
    GetBrokerClusterAcl,
    GetBrokerClusterAclConfig,
    GetBrokerClusterAclReply,
    UpdateAndCreateAclConfig,
    UpdateGlobalWhiteAddrsConfig,
)
from sparrowmq.protocol.requests.bodies import AccountEntry, AccountList, DataVersion
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
from sparrowmq.protocol.wire import json
from sparrowmq.remoting.handler import Reply, handles
from sparrowmq.remoting.peer import Peer

if TYPE_CHECKING:
    from sparrowmq.auth.account_files import AccountChange, AccountFiles

log = logging.getLogger(__name__)
# Response codes of 4.9; 5.x uses these numbers for other errors.
UPDATE_FAILED: Final = 209
DELETE_FAILED: Final = 210
WHITE_LIST_FAILED: Final = 211


class AccessHandler:
    """Change and show the accounts. `identity` is the broker's cluster, name and address."""

    def __init__(self, access: AccessControl, identity: tuple[str, str, str], clock: Clock) -> None:
        self._access = access
        self._identity = identity
        self._clock = clock
        self._change_lock = asyncio.Lock()

    @handles(UpdateAndCreateAclConfig)
    async def update(self, header: UpdateAndCreateAclConfig, body: bytes, peer: Peer) -> None:
        from sparrowmq.auth import accounts  # a broker without access control loads nothing of auth/

        header_fields = {
            accounts.ACCESS_KEY: header.access_key,
            accounts.SECRET_KEY: header.secret_key or None,
            accounts.ADDRESS: header.white_remote_address,
            accounts.ADMIN: header.admin,
            accounts.TOPIC_PERM: header.default_topic_perm or None,
            accounts.GROUP_PERM: header.default_group_perm or None,
            accounts.TOPIC_PERMS: _split_list(header.topic_perms),
            accounts.GROUP_PERMS: _split_list(header.group_perms),
        }
        fields = {name: value for name, value in header_fields.items() if value is not None}
        if words := accounts.unknown_words(fields):
            raise RemoteError(
                UPDATE_FAILED, f"{words[0]!r} is not a permission; write one of {', '.join(accounts.PERMS)}"
            )
        await self._apply_change(lambda files: files.with_account(fields, self._clock.now_ms()), UPDATE_FAILED)
        log.info("account %s was changed by %s", shown(header.access_key), peer.address)

    @handles(DeleteAclConfig)
    async def delete(self, header: DeleteAclConfig, body: bytes, peer: Peer) -> None:
        def change(files: AccountFiles) -> AccountChange:
            change = files.without_account(header.access_key, self._clock.now_ms())
            if change is None:
                raise ConfigError(f"there is no account {header.access_key}")
            return change

        await self._apply_change(change, DELETE_FAILED)
        log.info("account %s was removed by %s", shown(header.access_key), peer.address)

    @handles(UpdateGlobalWhiteAddrsConfig)
    async def white_list(self, header: UpdateGlobalWhiteAddrsConfig, body: bytes, peer: Peer) -> None:
        patterns = _split_list(header.global_white_addrs) or []
        await self._apply_change(
            lambda files: files.with_addresses(patterns, header.acl_file_full_path or "", self._clock.now_ms()),
            WHITE_LIST_FAILED,
        )
        log.info("the addresses that need no account were set to %s by %s", shown(patterns), peer.address)

    @handles(GetBrokerClusterAcl)
    def versions(self, header: GetBrokerClusterAcl, body: bytes, peer: Peer) -> GetBrokerClusterAclReply:
        files = self._files()
        cluster, name, address = self._identity
        versions = files.current.versions
        main = versions.get(str(files.main), DataVersion())
        return GetBrokerClusterAclReply(
            version=main.encode().decode(),
            broker_name=name,
            broker_addr=address,
            cluster_name=cluster,
            all_acl_file_version=json.dumps(versions).decode(),
        )

    @handles(GetBrokerClusterAclConfig)
    def show(self, header: GetBrokerClusterAclConfig, body: bytes, peer: Peer) -> Reply:
        """Return all accounts. Secret keys are only for an administrator who has signed the request."""
        documents = self._files().current.documents.values()
        by_admin = peer.principal is not None and peer.principal.is_admin
        entries: dict[str, AccountEntry] = {}
        for document in documents:
            for fields in document.accounts:
                entry = _account_entry(fields, with_secret=by_admin)
                entries.setdefault(entry.access_key, entry)
        patterns = [pattern for document in documents for pattern in document.addresses]
        return Reply(body=AccountList(patterns, list(entries.values())))

    async def _apply_change(self, change: Callable[[AccountFiles], AccountChange], error_code: int) -> None:
        files = self._files()
        async with self._change_lock:
            try:
                account_change = change(files)
                await asyncio.to_thread(account_change.write)
            except (ConfigError, ValueError) as error:
                raise RemoteError(error_code, str(error)) from error
            except OSError as error:
                reason = error.strerror or error
                raise RemoteError(error_code, f"{error.filename} cannot be written ({reason})") from error
            files.apply(account_change)

    def _files(self) -> AccountFiles:
        if self._access.files is None:
            raise RemoteError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "access control is not supported here: this broker keeps no accounts (aclEnable)",
            )
        return self._access.files


def _split_list(text: str | None) -> list[str] | None:
    return None if text is None else [item.strip() for item in text.split(",") if item.strip()]


def _account_entry(fields: Any, *, with_secret: bool) -> AccountEntry:
    from sparrowmq.auth import accounts

    text_of, list_of = accounts.text_of, accounts.list_of
    return AccountEntry(
        access_key=text_of(fields, accounts.ACCESS_KEY),
        secret_key=text_of(fields, accounts.SECRET_KEY) if with_secret else None,
        white_remote_address=text_of(fields, accounts.ADDRESS) or None,
        admin=accounts.parse_flag(fields, accounts.ADMIN),
        default_topic_perm=text_of(fields, accounts.TOPIC_PERM) or None,
        default_group_perm=text_of(fields, accounts.GROUP_PERM) or None,
        topic_perms=list_of(fields, accounts.TOPIC_PERMS) or None,
        group_perms=list_of(fields, accounts.GROUP_PERMS) or None,
    )


class UsersHandler:
    def __init__(self, access: AccessControl) -> None:
        self._access = access

    @handles(CreateUser)
    async def create_user(self, header: CreateUser, body: bytes, peer: Peer) -> None:
        if self._users.get(header.username) is not None:
            raise _refusal(f"The user {header.username} exists; change it with updateUser")
        await self._put_user(header.username, body, None, peer, "created")

    @handles(UpdateUser)
    async def update_user(self, header: UpdateUser, body: bytes, peer: Peer) -> None:
        await self._put_user(header.username, body, self._known_user(header.username), peer, "changed")

    @handles(DeleteUser)
    async def delete_user(self, header: DeleteUser, body: bytes, peer: Peer) -> None:
        """Delete a user and its policies. As in Java, it need not exist."""
        if self._users.delete(header.username):
            log.info("user %s was deleted by %s", shown(header.username), peer.address)
        await self._users.file.confirm(f"user {header.username} is deleted")

    @handles(GetUser)
    def get_user(self, header: GetUser, body: bytes, peer: Peer) -> Reply:
        user = self._users.get(header.username)
        return Reply(body=_shown_to(peer, user) if user is not None else b"")

    @handles(ListUsers)
    def list_users(self, header: ListUsers, body: bytes, peer: Peer) -> Reply:
        name_filter = header.filter or ""
        entries = [_shown_to(peer, user) for name, user in sorted(self._users.table.items()) if name_filter in name]
        return Reply(body=encode_list(entries) if entries else b"")

    @handles(CreateAcl, UpdateAcl)
    async def put_policies(self, header: CreateAcl | UpdateAcl, body: bytes, peer: Peer) -> None:
        """Add entries to the policies of a user. As in Java, both replace an entry of the same resource."""
        name = self._user_of_subject(header.subject)
        from sparrowmq.auth.users import merge_policies

        policies_to_add = UserPolicies.of_request(body).policies
        if not any(policy.entries for policy in policies_to_add):
            raise _refusal("The policies have no entry: give a resource, actions and a decision")
        await self._change_policies(name, peer, lambda policies: merge_policies(policies, policies_to_add))

    @handles(DeleteAcl)
    async def delete_policies(self, header: DeleteAcl, body: bytes, peer: Peer) -> None:
        name = self._user_of_subject(header.subject)
        from sparrowmq.auth.users import remove_policies

        if name not in self._users.policies:
            raise _refusal(f"{header.subject} has no policies")
        await self._change_policies(
            name, peer, lambda policies: remove_policies(policies, header.policy_type, header.resource)
        )

    @handles(GetAcl)
    def get_policies(self, header: GetAcl, body: bytes, peer: Peer) -> Reply:
        policies = self._users.of_subject(self._user_of_subject(header.subject))
        return Reply(body=policies if policies is not None else b"")

    @handles(ListAcls)
    def list_policies(self, header: ListAcls, body: bytes, peer: Peer) -> Reply:
        subjects = filter(None, map(self._users.of_subject, sorted(self._users.policies)))
        selected = [each for each in subjects if (header.subject_filter or "") in each.subject]
        entries = [UserPolicies(each.subject, _policies_of(each, header.resource_filter or "")) for each in selected]
        entries = [entry for entry in entries if entry.policies]
        return Reply(body=encode_list(entries) if entries else b"")

    @property
    def _users(self) -> Users:
        """Raises: RemoteError, the broker does not use users. Otherwise any client could create the first one."""
        if self._access.users is None:
            raise RemoteError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "this broker has no users: set authenticationEnabled=true and initAuthenticationUser in its settings",
            )
        return self._access.users

    async def _put_user(self, name: str, body: bytes, former: UserEntry | None, peer: Peer, action: str) -> None:
        from sparrowmq.auth.users import complete_user

        entry = msgspec.structs.replace(UserEntry.of_request(body), username=name)
        try:
            user = complete_user(entry, former)
        except ConfigError as error:
            raise _refusal(str(error)) from error
        self._users.put(user)
        log.info("user %s was %s by %s", shown(name), action, peer.address)
        await self._users.file.confirm(f"user {name} is {action}")

    async def _change_policies(self, name: str, peer: Peer, change: Callable[[list[Policy]], list[Policy]]) -> None:
        try:
            policies = change(self._users.policies.get(name, []))
        except ConfigError as error:
            raise _refusal(str(error)) from error
        self._users.set_policies(name, policies)
        log.info("the policies of user %s were changed by %s", shown(name), peer.address)
        await self._users.file.confirm(f"the policies of user {name} are changed")

    def _user_of_subject(self, subject: str) -> str:
        if not subject.startswith(SUBJECT):
            raise _refusal(f"The subject {shown(subject)} is invalid; write User:NAME")
        return self._known_user(subject.removeprefix(SUBJECT)).username

    def _known_user(self, name: str) -> UserEntry:
        user = self._users.get(name)
        if user is None:
            raise _refusal(f"The user {shown(name)} does not exist; create it with createUser")
        return user


def _shown_to(peer: Peer, user: UserEntry) -> UserEntry:
    by_admin = peer.principal is not None and peer.principal.is_admin
    return user if by_admin else msgspec.structs.replace(user, password=None)


def _policies_of(subject: UserPolicies, resource: str) -> list[Policy]:
    """Return the entries of a subject whose resources contain a text."""
    policies = [
        Policy(policy.policy_type, [rule for rule in policy.entries if resource in rule.resource])
        for policy in subject.policies
    ]
    return [policy for policy in policies if policy.entries]


def _refusal(reason: str) -> RemoteError:
    return RemoteError(ResponseCode.NO_PERMISSION, reason)
