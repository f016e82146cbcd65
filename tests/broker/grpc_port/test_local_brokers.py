"""The one broker behind its port, for each of its clients."""

import asyncio
import json
from contextlib import asynccontextmanager, suppress

import pytest

from sparrowmq import connect
from sparrowmq.auth.accounts import parse_account
from sparrowmq.broker import grpc_port
from sparrowmq.broker.grpc_port import IDLE_S, LocalBrokers, ServedBroker
from sparrowmq.client.cluster.network import Network
from sparrowmq.errors import RemoteError
from sparrowmq.grpc.wire_types import MessageType
from sparrowmq.http2.calls import Call, Caller
from sparrowmq.loop.slices import at_once
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.hosts import split_address
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat
from sparrowmq.protocol.requests.headers import GetMaxOffset
from sparrowmq.protocol.requests.user_headers import UpdateUser, UserEntry
from sparrowmq.remoting.budget import Budget, BudgetLimits, SessionLimits
from sparrowmq.remoting.local_peer import LocalServer
from sparrowmq.remoting.log_limit import LINES
from sparrowmq.remoting.quota_rules import parse
from sparrowmq.testing import Cluster, ManualClock
from tests.broker.grpc_port.attacks import (
    AGES,
    OPERATOR,
    SOON,
    USERS,
    add_users,
    check_age,
    check_attacks,
    check_rights,
    check_sight,
    signed,
)
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
from tests.grpc.scripted import named, outgoing

ACCOUNTS = """
accounts:
- accessKey: operator
  secretKey: "abcdefgh"
  admin: true
- accessKey: writer-1
  secretKey: "12345678"
  defaultTopicPerm: DENY
  topicPerms: [orders=PUB]
- accessKey: writer-2
  secretKey: "12345678"
  defaultTopicPerm: PUB
  topicPerms: [bills=DENY]
- accessKey: reader-2
  secretKey: "87654321"
  defaultTopicPerm: DENY
  topicPerms: [bills=SUB]
  groupPerms: [h=SUB]
- accessKey: reader-1
  secretKey: "87654321"
  defaultTopicPerm: DENY
  topicPerms: [orders=SUB]
  groupPerms: [g=SUB]
"""


@pytest.mark.parametrize("has_users", [False, True])
async def test_account_of_a_call_decides_what_it_may_do(tmp_path, has_users):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    control = USERS if has_users else {"acl": True, "home": tmp_path}
    async with Cluster(tmp_path, grpc_port=0, **SOON, **control) as running:
        broker = running.brokers[0]
        if has_users:
            await add_users(running.namesrv, broker.address)
        async with connect(running.namesrv, credentials=OPERATOR) as mq:
            await mq.admin.create_topic("orders", queues=1)
            await mq.admin.create_topic("bills", queues=1)
        async with channel_to(broker.grpc_address) as channel:
            await check_rights(channel)
            await check_sight(channel)
            await check_attacks(channel)


async def test_denied_calls_use_the_quota_of_their_address(tmp_path):
    async def ask(client):
        return (await client.call("QueryRoute", topic=named("none"))).status.code

    right, wrong = signed("operator", "abcdefgh"), signed("operator", "guessed1")
    cluster = Cluster(tmp_path, grpc_port=0, quotas=parse("address:* requests=10/h"), **USERS)
    async with cluster as running:
        address = running.brokers[0].grpc_address
        async with channel_to(address) as own, channel_to(address) as other:
            operator, thief = GrpcClient(own, "a", **right), GrpcClient(other, "b", **wrong)
            assert await ask(operator) == 40402
            assert await ask(GrpcClient(other, "c", **right)) == 40402
            codes = [await ask(thief) for _ in range(20)]
            assert codes == [40100] * 10 + [42900] * 10
            store = running.brokers[0].settings.store_path
            async with asyncio.timeout(20):
                while not (lines := list(store.glob("audit-denied.log"))) or "QueryRoute" not in (lines[0].read_text()):
                    await asyncio.sleep(0.05)
            noted = [json.loads(line) for line in lines[0].read_text().splitlines()]
            assert {each["reason"] for each in noted} == {"wrong_signature"}
            assert noted[0]["request"] == "/apache.rocketmq.v2.MessagingService/QueryRoute"
            assert await ask(GrpcClient(other, "c", **right)) == 42900
            assert await ask(operator) == 40402


async def test_client_goes_on_after_its_password_changed(tmp_path):
    async with Cluster(tmp_path, grpc_port=0, **USERS) as running:
        broker = running.brokers[0]
        await add_users(running.namesrv, broker.address)
        async with connect(running.namesrv, credentials=OPERATOR) as mq:
            await mq.admin.create_topic("orders", queues=1)
        async with channel_to(broker.grpc_address) as channel:
            old = GrpcClient(channel, "w", **signed("writer-1", "12345678"))
            new = GrpcClient(channel, "w", **signed("writer-1", "newpass12"))
            assert (await old.call("SendMessage", messages=[outgoing()])).status.code == 20000
            async with Network(running.namesrv, credentials=OPERATOR) as network:
                operator = await network.brokers.session(broker.address)
                await operator.call(UpdateUser("writer-1"), UserEntry(password="newpass12").encode())
            for client, code in ((new, 20000), (old, 40100), (new, 20000)):
                assert (await client.call("SendMessage", messages=[outgoing()])).status.code == code


async def test_address_without_an_account_cannot_take_a_client_of_a_trusted_address(tmp_path):
    file = tmp_path / "accounts.yml"
    file.write_text(f"globalWhiteRemoteAddresses: [127.0.0.1]\n{ACCOUNTS}")
    async with Cluster(tmp_path / "store", grpc_port=0, acl=True, acl_file=file, **SOON) as running:
        async with connect(running.namesrv, credentials=OPERATOR) as mq:
            await mq.admin.create_topic("orders", queues=1)
        address = running.brokers[0].grpc_address
        async with channel_to(address) as local_broker, passed_on(address, "127.0.0.2") as elsewhere:
            owner, thief = GrpcClient(local_broker, "w"), GrpcClient(elsewhere, "w")
            assert (await thief.call("SendMessage", messages=[outgoing()])).status.code == 40100
            asked, stolen = await owner.telemetry(topic="orders"), await thief.telemetry(topic="orders")
            await asked()
            await stolen()
            leak = asyncio.create_task(stolen())
            half = outgoing(message_type=MessageType.TRANSACTION)
            assert (await owner.call("SendMessage", messages=[half])).status.code == 20000
            question = await asyncio.wait_for(asked(), 60)
            assert question.recover_orphaned_transaction_command.message.body == b"hello"
            assert not leak.done()
            leak.cancel()
            await thief.call("NotifyClientTermination", group=named("g"))
            assert (await owner.call("Heartbeat", group=named("g"))).status.code == 20000


@asynccontextmanager
async def passed_on(address, source):
    """A connection to a port that comes from another address of this machine."""

    async def serve(*here):
        there = await asyncio.open_connection(*split_address(address), local_addr=(source, 0))
        await asyncio.gather(pump(here[0], there[1]), pump(there[0], here[1]))

    async with (
        await asyncio.start_server(serve, "127.0.0.1", 0) as server,
        channel_to(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as channel,
    ):
        yield channel


async def pump(reader, writer):
    with suppress(ConnectionError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
    writer.close()


@AGES
async def test_a_captured_signature_is_valid_for_as_long_as_the_setting_says(tmp_path, most_s, code):
    cluster = Cluster(tmp_path, grpc_port=0, grpc_signature_s=most_s, **USERS)
    async with cluster as running, channel_to(running.brokers[0].grpc_address) as channel:
        await check_age(channel, code)


def connections(got=lambda session, command: None, budget=None):
    """The brokers of a port without a broker, and their clock."""
    clock = ManualClock()
    server = LocalServer(got, clock, "127.0.0.1:1", SessionLimits(waiting_requests=1), budget=budget)
    home = ServedBroker("c", "a", server, None, None)  # type: ignore[arg-type]
    return LocalBrokers(home, clock, asyncio.ensure_future), clock


def call(host="10.0.0.1", certificate=None):
    return Call("M", {}, Caller(host, 5, certificate=certificate))


async def test_requests_above_the_memory_of_those_that_wait_are_refused_as_busy():
    arrived, answers, body = [], [], bytes(100_000)
    budget = Budget(ManualClock(), BudgetLimits(waiting_bytes=len(body)))
    brokers, _ = connections(lambda session, command: arrived.append(command), budget)
    link = brokers.brokers_for(call(), "c1")
    link._peer.hold(2)
    for _ in range(2):
        link.ask_soon(GetMaxOffset("orders", 0), body, lambda *answer: answers.append(answer))
    assert not answers, "it is never answered at once"
    await asyncio.sleep(0)
    [(answer, error)] = answers
    assert answer is None and error.code == ResponseCode.SYSTEM_BUSY
    with pytest.raises(RemoteError, match="send this again later"):
        await link.ask("a", GetMaxOffset("orders", 0), body)
    link.announce(["orders"], None)
    link._peer.hold(-2)
    await asyncio.sleep(0)
    assert [command.code for command in arrived] == [RequestCode.GET_MAX_OFFSET]
    link.announce(["orders"], None)
    await asyncio.sleep(0)
    assert arrived[-1].code == RequestCode.HEART_BEAT


async def test_an_address_that_invents_ids_is_refused(monkeypatch):
    monkeypatch.setattr(grpc_port, "MAX_CLIENTS", 3)
    brokers, clock = connections()
    known = [brokers.brokers_for(call(), f"c{number}") for number in range(3)]
    with pytest.raises(RemoteError, match=r"10\.0\.0\.1 has 10,000 clients here") as refused:
        brokers.brokers_for(call(), "c3")
    assert refused.value.code == 42900
    assert brokers.brokers_for(call(), "c0") is known[0]
    assert brokers.brokers_for(call("10.0.0.2"), "c3") is not None
    assert brokers.brokers_for(call(certificate="alice"), "c3") is not None
    await clock.advance(IDLE_S + 1)
    at_once(brokers.expire())
    brokers.brokers_for(call(), "c3")
    assert len(brokers) == 1


async def test_a_client_is_known_by_a_signature_or_by_a_request_that_the_broker_allowed():
    brokers, _ = connections()
    unsigned = brokers.brokers_for(call(), "c")
    assert not unsigned.is_known
    unsigned._peer.is_introduced = True
    assert unsigned.is_known
    account = parse_account({"accessKey": "reader-1", "secretKey": "87654321"})
    brokers = LocalBrokers(brokers.broker, ManualClock(), asyncio.ensure_future, lambda metadata: account)
    assert brokers.brokers_for(call(), "c").is_known


async def test_certificates_with_one_client_id_are_two_clients():
    brokers, _ = connections()
    one, two = (brokers.brokers_for(call(certificate=name), "c") for name in ("alice", "bob"))
    brokers.client_left(one.client_id)
    assert len(brokers) == 1
    assert brokers.brokers_for(call(certificate="bob"), "c") is two


async def test_connections_of_clients_end_with_them():
    brokers, clock = connections()
    first = brokers.brokers_for(call(), "one")
    assert brokers.brokers_for(call(), "one") is first
    other = brokers.brokers_for(call("10.0.0.2"), "one")
    assert other is not first
    brokers.brokers_for(call(), "two")
    assert [link._peer.address for link in (first, other)] == ["10.0.0.1:5", "10.0.0.2:5"]
    brokers.client_left("one")
    assert len(brokers) == 1
    await clock.advance(IDLE_S + 1)
    at_once(brokers.expire())
    assert len(brokers) == 0


async def test_a_client_leaves_the_groups_that_it_announces_no_more():
    got: list[tuple] = []

    def note(session, command):
        fields = command.ext_fields()
        got.append((command.code, fields.get("producerGroup"), fields.get("consumerGroup")))

    brokers, _ = connections(note)
    link = brokers.brokers_for(call(), "c")
    link.announce(["orders", "bills"], None)
    link.announce(["bills"], ConsumerBeat("g"))
    link.announce(["bills"], ConsumerBeat("g"))
    link.announce([], ConsumerBeat("h"))
    link.announce([], None)
    await until(lambda: len(got) == 8)
    beat, leave = RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT
    assert [each for each in got if each[0] == leave] == [
        (leave, "orders", None),
        (leave, "bills", None),
        (leave, None, "g"),
        (leave, None, "h"),
    ]
    assert got[-2][0] == beat  # a broker leaves first, so that the limit of groups is that of the new ones


async def test_a_refused_heartbeat_is_logged_once(caplog):
    refusals: list[str] = []

    def refuse(session, command):
        refusals.append(command.code)
        session.reply(command, 1, remark="no more than 500 groups")

    brokers, _ = connections(refuse)
    link = brokers.brokers_for(call(), "c")
    for _ in range(3):
        link.announce(["orders"], None)
    await until(lambda: link._last_refusal)
    link.announce(["orders"], None)
    await until(lambda: len(refusals) == 4)
    for _ in range(20):
        await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records if "is refused" in record.getMessage()] == [
        "the heartbeat of gRPC client c is refused: " + link._last_refusal
    ]
    assert "no more than 500 groups" in link._last_refusal


async def test_few_refused_heartbeats_are_logged_whatever_the_ids_and_groups(caplog):
    brokers, _ = connections(lambda session, command: session.reply(command, 1, remark="no such right"))
    links = [brokers.brokers_for(call(), f"c{number}") for number in range(LINES + 20)]
    for link in links:
        link.announce(["orders"], None)
    await until(lambda: all(link._last_refusal for link in links))
    assert len([each for each in caplog.records if "is refused" in each.getMessage()]) == LINES


async def until(holds):
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.001)


async def test_thousands_of_idle_connections_are_closed_step_by_step():
    brokers, clock = connections()
    for number in range(3):
        brokers.brokers_for(call(), f"c{number}")
    await clock.advance(IDLE_S + 1)
    steps = brokers.expire()
    next(steps)
    assert len(brokers) == 2
    brokers.brokers_for(call(), "c1")  # it comes back meanwhile
    brokers.client_left("c2")
    at_once(steps)
    assert len(brokers) == 1


async def test_the_end_of_a_client_looks_at_no_other_client():
    """Ten thousand clients may end at the same time."""
    brokers, _ = connections()
    _, two = (brokers.brokers_for(call(), name) for name in ("one", "two"))
    [links] = brokers._links.values()
    links["two"] = None
    brokers.client_left("one")
    links["two"] = two
    assert list(links.values()) == [two]
