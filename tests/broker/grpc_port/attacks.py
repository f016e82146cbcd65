"""Accounts at a gRPC port, and the attacks of clients on what belongs to other accounts. The port is a broker's own, or
that of `mqproxy`."""

import asyncio
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from grpc.aio import AioRpcError

from sparrowmq import Credentials
from sparrowmq.client.cluster.network import Network
from sparrowmq.grpc.wire_types import ClientType, MessageType, Resolution
from sparrowmq.protocol.requests.user_headers import CreateAcl, CreateUser, Policy, PolicyRule, UserEntry, UserPolicies
from tests.broker.grpc_port.grpc_client import GrpcClient
from tests.grpc.scripted import named, outgoing

OPERATOR = Credentials("operator", "abcdefgh")
USERS: dict[str, Any] = {
    "authentication": True,
    "authorization": True,
    "first_user": '{"username":"operator","password":"abcdefgh"}',
}
SOON: dict[str, Any] = {"transaction_timeout_ms": 100, "transaction_interval_ms": 100}
RIGHTS: dict[str, tuple[str, list[tuple[str, list[str], str]]]] = {
    "writer-1": ("12345678", [("Topic:orders", ["Pub"], "Allow")]),
    "writer-2": ("12345678", [("Topic:*", ["Pub"], "Allow"), ("Topic:bills", ["Pub"], "Deny")]),
    "reader-1": ("87654321", [("Topic:orders", ["Sub"], "Allow"), ("Group:g", ["Sub"], "Allow")]),
    "reader-2": ("87654321", [("Topic:bills", ["Sub"], "Allow"), ("Group:h", ["Sub"], "Allow")]),
}


def signed(access_key, secret_key, age_s=0):
    """The metadata of a call, signed as Apache's clients do."""
    now = (datetime.now(UTC) - timedelta(seconds=age_s)).strftime("%Y%m%dT%H%M%SZ")
    digest = hmac.new(secret_key.encode(), now.encode(), hashlib.sha1).hexdigest().upper()
    header = f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return {"x-mq-date-time": now, "authorization": header}


def client_of(channel, name, client_id=""):
    """A client with one of the accounts."""
    return GrpcClient(channel, client_id or name, **signed(name, RIGHTS[name][0]))


async def add_users(namesrv, *addresses):
    """Create the users at brokers."""
    async with Network(namesrv, credentials=OPERATOR) as network:
        for address in addresses:
            operator = await network.brokers.session(address)
            for name, (password, rules) in RIGHTS.items():
                await operator.call(CreateUser(name), UserEntry(password=password).encode())
                entries = [PolicyRule(resource, actions, None, how) for resource, actions, how in rules]
                body = UserPolicies(f"User:{name}", [Policy("Custom", entries)]).encode()
                await operator.call(CreateAcl(f"User:{name}"), body)


async def check_rights(channel):
    """Try to send, to receive and to acknowledge without the right to do so, and with it."""
    writer, reader = client_of(channel, "writer-1", "w"), client_of(channel, "reader-1", "r")
    forger = GrpcClient(channel, "w", **signed("writer-1", "87654321"))
    stranger = GrpcClient(channel, "w", **signed("nobody", "87654321"))
    anonymous = GrpcClient(channel, "w")
    bad = (forger, stranger, anonymous)
    for client, code in (*((each, 40100) for each in bad), (reader, 40100), (writer, 20000)):
        sent = await client.call("SendMessage", messages=[outgoing()])
        assert sent.status.code == code, client._metadata
    # The client for Go signs the retry of a send once more, and sends both signatures.
    writer._metadata = (*forger._metadata, *client_of(channel, "writer-1", "w")._metadata)
    await (await reader.telemetry(ClientType.SIMPLE_CONSUMER, group="g"))()
    assert (await reader.receive(wait_ms=0))[0] == 20000
    assert (await writer.call("SendMessage", messages=[outgoing()])).status.code == 20000
    [got] = (await reader.receive())[1]
    entry = {
        "message_id": got.system_properties.message_id,
        "receipt_handle": got.system_properties.receipt_handle,
    }
    names = {"topic": named("orders"), "group": named("g")}
    for client, code in (*((each, 40100) for each in bad), (writer, 40100), (reader, 20000)):
        acked = await client.call("AckMessage", **names, entries=[entry])
        assert acked.status.code == code, client._metadata


async def check_sight(channel):
    """Ask about a topic and a group of others: whether they exist, what they are, and how they are consumed."""
    reader = client_of(channel, "reader-1", "sees")
    strangers = (client_of(channel, "reader-2", "sees"), GrpcClient(channel, "anonymous"))
    place = {"topic": named("orders"), "group": named("g")}
    for client, code in (*((each, 40100) for each in strangers), (reader, 20000)):
        for topic in ("orders", "none"):
            route = await client.call("QueryRoute", topic=named(topic))
            assert route.status.code == (40100 if topic == "none" else code)
        assert (await client.call("QueryAssignment", **place)).status.code == code
    thief = strangers[0]
    for topic in ("orders", "none"):  # a send of a wrong type to a topic that does not exist
        sent = await thief.call("SendMessage", messages=[outgoing(topic, message_group="one")])
        assert sent.status.code == 40100
    for client, is_refused in ((thief, True), (reader, False)):
        read = await client.telemetry(ClientType.SIMPLE_CONSUMER, group="g")
        if is_refused:
            with pytest.raises(AioRpcError, match="UNAUTHENTICATED"):
                await read()
        else:
            assert (await read()).settings.subscription.group.name == "g"


async def check_attacks(channel):
    """Use a handle, a transaction and a client id that are another account's. The topics are `orders` and `bills`."""
    owner, other = client_of(channel, "writer-1", "w"), client_of(channel, "writer-2", "w")
    reader, thief = client_of(channel, "reader-1"), client_of(channel, "reader-2")
    assert (await other.call("SendMessage", messages=[outgoing("bills")])).status.code == 40100  # Deny wins
    assert (await owner.call("SendMessage", messages=[outgoing("bills")])).status.code == 40100
    await (await reader.telemetry(ClientType.SIMPLE_CONSUMER, group="g"))()
    await reader.receive(wait_ms=0)
    await owner.call("SendMessage", messages=[outgoing()])
    [got] = (await reader.receive())[1]
    handle = {"receipt_handle": got.system_properties.receipt_handle}
    mine = {"topic": named("bills"), "group": named("h")}
    theirs = {"topic": named("orders"), "group": named("g")}
    for names in (mine, theirs):
        moved = await thief.call("ForwardMessageToDeadLetterQueue", **names, **handle)
        assert moved.status.code == 40100
    for names, code in ((mine, 40013), (theirs, 40100)):
        assert (await thief.call("AckMessage", **names, entries=[handle])).status.code == code
        duration = got.system_properties.invisible_duration
        kept = await thief.call("ChangeInvisibleDuration", **names, **handle, invisible_duration=duration)
        assert kept.status.code == code
    assert (await reader.call("AckMessage", **theirs, entries=[handle])).status.code == 20000

    asked, stolen = await owner.telemetry(topic="orders"), await other.telemetry(topic="orders")
    await asked()
    await stolen()
    half = outgoing(message_type=MessageType.TRANSACTION)
    sent = (await owner.call("SendMessage", messages=[half])).entries[0]
    end = {"topic": named("orders"), "transaction_id": sent.transaction_id, "resolution": Resolution.COMMIT}
    assert (await other.call("EndTransaction", **end)).status.code == 40100
    leak = asyncio.create_task(stolen())
    question = await asyncio.wait_for(asked(), 60)
    assert question.recover_orphaned_transaction_command.message.body == b"hello"
    await asyncio.wait_for(asked(), 60)  # another account with the same client id would be the one to be asked
    assert not leak.done()
    leak.cancel()
    await other.call("NotifyClientTermination", group=named("g"))
    await asyncio.wait_for(asked(), 60)  # and its end is not the owner's
    assert (await owner.call("EndTransaction", **end)).status.code == 20000


async def check_age(channel, code):
    """A captured signature of 400 s ago."""
    captured = GrpcClient(channel, "w", **signed("operator", "abcdefgh", age_s=400))
    assert (await captured.call("QueryRoute", topic=named("orders"))).status.code == code


AGES = pytest.mark.parametrize(("most_s", "code"), [(300, 40100), (500, 40402), (0, 40402)])
