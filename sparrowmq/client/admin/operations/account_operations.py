"""Requests to one broker about its accounts. Each broker has accounts of its own.

Source: the classes of org.apache.rocketmq.tools.command.acl, Java 4.9.8.
"""

from __future__ import annotations

from sparrowmq.client.admin.operations.asker import Asker
from sparrowmq.protocol.requests.admin_headers import (
    DeleteAclConfig,
    GetBrokerClusterAcl,
    GetBrokerClusterAclConfig,
    GetBrokerClusterAclReply,
    UpdateAndCreateAclConfig,
    UpdateGlobalWhiteAddrsConfig,
)
from sparrowmq.protocol.requests.bodies import AccountList


async def accounts(asker: Asker, address: str) -> AccountList:
    return AccountList.decode((await asker.ask(address, GetBrokerClusterAclConfig())).body)


async def account_versions(asker: Asker, address: str) -> GetBrokerClusterAclReply:
    return (await asker.ask(address, GetBrokerClusterAcl())).header


async def put_account(asker: Asker, address: str, account: UpdateAndCreateAclConfig) -> None:
    """Create an account, or change the given fields of one."""
    await asker.ask(address, account)


async def delete_account(asker: Asker, address: str, access_key: str) -> None:
    await asker.ask(address, DeleteAclConfig(access_key))


async def set_white_addresses(asker: Asker, address: str, patterns: str, file: str | None = None) -> None:
    """Replace the addresses that need no account.

    Args:
        patterns: with commas between them.
        file: the broker's file with accounts, if it has several.
    """
    await asker.ask(address, UpdateGlobalWhiteAddrsConfig(patterns, file))
