"""The one broker behind its port, for each of its clients."""

import hashlib
import hmac
from datetime import UTC, datetime

from sparrowmq import Credentials, connect
from sparrowmq.broker.grpc_port.local_brokers import IDLE_S, Home, LocalBrokers
from sparrowmq.http2.calls import Call, Caller
from sparrowmq.proxy.wire_types import ClientType
from sparrowmq.remoting.session import Session
from sparrowmq.testing import Cluster, ManualClock
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
from tests.proxy.scripted import outgoing

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


def signed(access_key, secret_key):
    """The metadata of a call, signed as Apache's clients do."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = hmac.new(secret_key.encode(), now.encode(), hashlib.sha1).hexdigest().upper()
    header = f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={digest}"
    return {"x-mq-date-time": now, "authorization": header}


async def test_account_of_a_call_decides_what_it_may_do(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    cluster = Cluster(tmp_path, grpc_port=0, acl=True, home=tmp_path)
    async with cluster as running:
        broker = running.brokers[0]
        async with connect(running.namesrv, credentials=Credentials("operator", "abcdefgh")) as mq:
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
            assert (await reader.receive(wait_ms=0))[0] in (20000, 40401)


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
