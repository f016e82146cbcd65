"""Accounts over the wire, as in mqadmin of 4.9: updateAclConfig (50), deleteAclConfig (51),
clusterAclConfigVersion (52), updateGlobalWhiteAddr (53), getAclConfig (54).

The access guard lets only administrators send these requests. Unlike Java: the broker shows secret keys only to a
client that signed as an administrator. Java shows them to every client at a white-listed address and to every account.
Source: AdminBrokerProcessor and PlainPermissionManager, Java 4.9.7.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.broker.access_control import AccessControl
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
from sparrowmq.protocol.wire import json
from sparrowmq.remoting.handler import Reply, handles
from sparrowmq.remoting.peer import Peer

if TYPE_CHECKING:
    from sparrowmq.auth.account_files import AccountFiles, Change

log = logging.getLogger(__name__)

# Response codes of 4.9; 5.x uses these numbers for other errors.
UPDATE_FAILED: Final = 209
DELETE_FAILED: Final = 210
WHITE_LIST_FAILED: Final = 211


class AccessHandler:
    """Change and show the accounts.

    Args:
        who: the broker's cluster, name and address.
    """

    def __init__(self, access: AccessControl, identity: tuple[str, str, str], clock: Clock) -> None:
        self._access = access
        self._identity = identity
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    @handles(UpdateAndCreateAclConfig)
    async def update(self, header: UpdateAndCreateAclConfig, body: bytes, peer: Peer) -> None:
        """Create an account, or change the fields of it that the header names."""
        from sparrowmq.auth import accounts  # a broker without access control loads nothing of auth/

        given = {
            accounts.ACCESS_KEY: header.access_key,
            accounts.SECRET_KEY: header.secret_key or None,
            accounts.ADDRESS: header.white_remote_address,
            accounts.ADMIN: header.admin,
            accounts.TOPIC_PERM: header.default_topic_perm or None,
            accounts.GROUP_PERM: header.default_group_perm or None,
            accounts.TOPIC_PERMS: _listed(header.topic_perms),
            accounts.GROUP_PERMS: _listed(header.group_perms),
        }
        fields = {name: value for name, value in given.items() if value is not None}
        if words := accounts.unknown_words(fields):
            raise RemoteError(
                UPDATE_FAILED,
                f"{words[0]!r} is no permission; write one of {', '.join(accounts.PERMS)}",
            )
        await self._do(
            lambda files: files.with_account(fields, self._clock.now_ms()),
            UPDATE_FAILED,
        )
        log.info("account %s was changed by %s", shown(header.access_key), peer.address)

    @handles(DeleteAclConfig)
    async def delete(self, header: DeleteAclConfig, body: bytes, peer: Peer) -> None:
        def change(files: AccountFiles) -> Change:
            change = files.without_account(header.access_key, self._clock.now_ms())
            if change is None:
                raise ConfigError(f"there is no account {header.access_key}")
            return change

        await self._do(change, DELETE_FAILED)
        log.info("account %s was removed by %s", shown(header.access_key), peer.address)

    @handles(UpdateGlobalWhiteAddrsConfig)
    async def white_list(self, header: UpdateGlobalWhiteAddrsConfig, body: bytes, peer: Peer) -> None:
        patterns = _listed(header.global_white_addrs) or []
        await self._do(
            lambda files: files.with_addresses(patterns, header.acl_file_full_path or "", self._clock.now_ms()),
            WHITE_LIST_FAILED,
        )
        log.info("the addresses that need no account were set to %s by %s", shown(patterns), peer.address)

    @handles(GetBrokerClusterAcl)
    def versions(self, header: GetBrokerClusterAcl, body: bytes, peer: Peer) -> GetBrokerClusterAclReply:
        """Return the number of changes over the wire, for each file."""
        files = self._files()
        cluster, name, address = self._identity
        versions = files.now.versions
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
        now = self._files().now
        by_admin = peer.principal is not None and peer.principal.is_admin
        entries: dict[str, AccountEntry] = {}
        for document in now.documents.values():
            for fields in document.accounts:
                entry = _entry(fields, with_secret=by_admin)
                entries.setdefault(entry.access_key, entry)
        patterns = [pattern for document in now.documents.values() for pattern in document.addresses]
        return Reply(body=AccountList(patterns, list(entries.values())))

    async def _do(self, change: Callable[[AccountFiles], Change], failed: int) -> None:
        """Write a change to its files and put it into effect."""
        files = self._files()
        async with self._one_at_a_time:
            try:
                changed = change(files)
                await asyncio.to_thread(changed.write)
            except (ConfigError, ValueError) as error:
                raise RemoteError(failed, str(error)) from error
            except OSError as error:
                why = error.strerror or error
                raise RemoteError(failed, f"{error.filename} cannot be written ({why})") from error
            files.take(changed)

    def _files(self) -> AccountFiles:
        """Raises: RemoteError, the broker has no accounts."""
        if self._access.files is None:
            raise RemoteError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                "access control is not supported here: this broker keeps no accounts (aclEnable, aclCheck)",
            )
        return self._access.files


def _listed(text: str | None) -> list[str] | None:
    return None if text is None else [each.strip() for each in text.split(",") if each.strip()]


def _entry(fields: Any, *, with_secret: bool) -> AccountEntry:
    from sparrowmq.auth import accounts

    text, listed = accounts.text_of, accounts.list_of
    return AccountEntry(
        access_key=text(fields, accounts.ACCESS_KEY),
        secret_key=text(fields, accounts.SECRET_KEY) if with_secret else None,
        white_remote_address=text(fields, accounts.ADDRESS) or None,
        admin=accounts.is_admin(fields),
        default_topic_perm=text(fields, accounts.TOPIC_PERM) or None,
        default_group_perm=text(fields, accounts.GROUP_PERM) or None,
        topic_perms=list(listed(fields, accounts.TOPIC_PERMS)) or None,
        group_perms=list(listed(fields, accounts.GROUP_PERMS)) or None,
    )
