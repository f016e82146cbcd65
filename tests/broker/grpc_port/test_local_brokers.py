"""The one broker behind its port, for each of its clients."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sparrowmq import Credentials, connect
from sparrowmq.broker.grpc_port.local_brokers import IDLE_S, Home, LocalBrokers
from sparrowmq.client.cluster.network import Network
from sparrowmq.http2.calls import Call, Caller
from sparrowmq.protocol.requests.user_bodies import Policy, PolicyRule, UserEntry, UserPolicies
from sparrowmq.protocol.requests.user_headers import CreateAcl, CreateUser
from sparrowmq.proxy.wire_types import ClientType
from sparrowmq.remoting.session import Session
from sparrowmq.testing import Cluster, ManualClock
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
from tests.proxy.scripted import named, outgoing

ACCOUNTS = """
accounts:
- accessKey: operator
  secretKey: "abcdefgh"
  admin: true
- accessKey: writer-1
  secretKey: "12345678"
  defaultTopicPerm: DENY
  topicPerms: [orders=PUB]
- accessKey: reader-1
  secretKey: "87654321"
  defaultTopicPerm: DENY
  topicPerms: [orders=SUB]
  groupPerms: [g=SUB]
"""

OPERATOR = Credentials("operator", "abcdefgh")
USERS: dict[str, Any] = {
    "authentication": True,
    "authorization": True,
    "first_user": '{"username":"operator","password":"abcdefgh"}',
}


def signed(access_key, secret_key, age_s=0):
    """The metadata of a call, signed as Apache's clients do."""
    now = (datetime.now(UTC) - timedelta(seconds=age_s)).strftime("%Y%m%dT%H%M%SZ")
    digest = hmac.new(secret_key.encode(), now.encode(), hashlib.sha1).hexdigest().upper()
    header = f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return {"x-mq-date-time": now, "authorization": header}


async def add_users(namesrv, address):
    """Users with the rights of ACCOUNTS."""
    async with Network(namesrv, credentials=OPERATOR) as network:
        operator = await network.brokers.session(address)
        rights = [
            ("writer-1", "12345678", [("Topic:orders", ["Pub"])]),
            ("reader-1", "87654321", [("Topic:orders", ["Sub"]), ("Group:g", ["Sub"])]),
        ]
        for name, password, allowed in rights:
            await operator.call(CreateUser(name), UserEntry(password=password).encode())
            rules = [PolicyRule(resource, actions, None, "Allow") for resource, actions in allowed]
            body = UserPolicies(f"User:{name}", [Policy("Custom", rules)]).encode()
            await operator.call(CreateAcl(f"User:{name}"), body)


@pytest.mark.parametrize("has_users", [False, True])
async def test_account_of_a_call_decides_what_it_may_do(tmp_path, has_users):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    control = USERS if has_users else {"acl": True, "home": tmp_path}
    async with Cluster(tmp_path, grpc_port=0, **control) as running:
        broker = running.brokers[0]
        if has_users:
            await add_users(running.namesrv, broker.address)
        async with connect(running.namesrv, credentials=OPERATOR) as mq:
            await mq.admin.create_topic("orders", queues=1)
        async with channel_to(broker.grpc_address) as channel:
            writer = GrpcClient(channel, "w", **signed("writer-1", "12345678"))
            reader = GrpcClient(channel, "r", **signed("reader-1", "87654321"))
            forger = GrpcClient(channel, "w", **signed("writer-1", "87654321"))
            anonymous = GrpcClient(channel, "w")
            for client, code in ((forger, 40100), (anonymous, 40100), (reader, 40100), (writer, 20000)):
                sent = await client.call("SendMessage", messages=[outgoing()])
                assert sent.status.code == code, client._metadata
            await (await reader.telemetry(ClientType.SIMPLE_CONSUMER, group="g"))()
            assert (await reader.receive(wait_ms=0))[0] == 20000
            assert (await writer.call("SendMessage", messages=[outgoing()])).status.code == 20000
            [got] = (await reader.receive())[1]
            entry = {
                "message_id": got.system_properties.message_id,
                "receipt_handle": got.system_properties.receipt_handle,
            }
            names = {"topic": named("orders"), "group": named("g")}
            for client, code in ((forger, 40100), (anonymous, 40100), (writer, 40100), (reader, 20000)):
                acked = await client.call("AckMessage", **names, entries=[entry])
                assert acked.status.code == code, client._metadata


@pytest.mark.parametrize(("most_s", "code"), [(300, 40100), (500, 40402), (0, 40402)])
async def test_a_captured_signature_is_valid_for_as_long_as_the_setting_says(tmp_path, most_s, code):
    cluster = Cluster(tmp_path, grpc_port=0, grpc_signature_s=most_s, **USERS)
    async with cluster as running, channel_to(running.brokers[0].grpc_address) as channel:
        captured = GrpcClient(channel, "w", **signed("operator", "abcdefgh", age_s=400))
        assert (await captured.call("QueryRoute", topic=named("orders"))).status.code == code


async def test_connections_of_clients_end_with_them():
    clock = ManualClock()
    served = []

    def connect():
        served.append(Session(lambda session, command: None, clock))
        return served[-1]

    home = Home("c", "a", ("127.0.0.1", 1), None, None, connect)  # type: ignore[arg-type]
    brokers = LocalBrokers(home, clock, lambda work: work.close(), lambda metadata: None)

    def call(host="10.0.0.1"):
        return Call("M", {}, Caller(host, 5))

    first = brokers.brokers_for(call(), "one")
    assert brokers.brokers_for(call(), "one") is first
    assert brokers.brokers_for(call("10.0.0.2"), "one") is not first
    brokers.brokers_for(call(), "two")
    assert [session.address for session in served] == ["10.0.0.1:5", "10.0.0.2:5", "10.0.0.1:5"]
    brokers.left("one")
    assert len(brokers) == 1
    await clock.advance(IDLE_S + 1)
    brokers.expire()
    assert len(brokers) == 0
