"""Accounts of brokers with access control, each broker by itself.

Source: the classes of org.apache.rocketmq.tools.command.acl, Java 4.9.8.
"""

from __future__ import annotations

from sparrowmq.client.admin.servers import Servers
from sparrowmq.protocol.requests.admin_headers import (
    DeleteAclConfig,
    GetBrokerClusterAclConfig,
    UpdateAndCreateAclConfig,
    UpdateGlobalWhiteAddrsConfig,
)
from sparrowmq.protocol.requests.bodies import AccountList


async def accounts(servers: Servers, address: str) -> AccountList:
    """The accounts of a broker with access control, and which addresses need none."""
    return AccountList.decode((await servers.ask(address, GetBrokerClusterAclConfig())).body)


async def put_account(servers: Servers, address: str, wanted: UpdateAndCreateAclConfig) -> None:
    """Make an account, or change what is given of one."""
    await servers.ask(address, wanted)


async def delete_account(servers: Servers, address: str, access_key: str) -> None:
    """Remove an account."""
    await servers.ask(address, DeleteAclConfig(access_key))


async def set_white_addresses(servers: Servers, address: str, patterns: str) -> None:
    """Replace the addresses that need no account; `patterns` has commas."""
    await servers.ask(address, UpdateGlobalWhiteAddrsConfig(patterns))
