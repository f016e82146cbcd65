"""The users of the brokers, as mqproxy reads them."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from sparrowmq import Credentials
from sparrowmq.client.cluster.network import Network
from sparrowmq.errors import (
    AccessDenied,
    BrokerUnreachable,
    ConfigError,
    NameServerUnreachable,
    RemoteError,
    RemoteProtocolError,
)
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.mqproxy.cluster_brokers import ClusterBrokers
from sparrowmq.mqproxy.users import KEEP_S, POLL_S, BrokerUsers, CallPeer
from sparrowmq.protocol.requests.admin_headers import GetBrokerConfig
from sparrowmq.protocol.requests.pop_headers import AckMessage
from sparrowmq.protocol.requests.user_headers import (
    CreateAcl,
    CreateUser,
    ListAcls,
    ListUsers,
    Policy,
    PolicyRule,
    UpdateUser,
    UserEntry,
    UserPolicies,
)
from sparrowmq.testing import Cluster, ManualClock
from tests.broker.grpc_port.attacks import OPERATOR, USERS, add_users

HERE = CallPeer("127.0.0.1:5000", None)
ACK = AckMessage("g", "orders", 0, "handle", 0)


@asynccontextmanager
async def users_of(tmp_path, credentials=OPERATOR, **control):
    """The users at a broker, and the broker as mqproxy's account sees it."""
    async with Cluster(tmp_path, **(control or USERS)) as cluster:
        if not control:
            await add_users(cluster.namesrv, cluster.brokers[0].address)
        async with Network(cluster.namesrv, credentials=credentials) as network:
            brokers = ClusterBrokers(network, SystemClock())
            yield BrokerUsers(brokers, SystemClock()), brokers


async def allow(brokers, name, *rules):
    body = UserPolicies(f"User:{name}", [Policy("Custom", list(rules))]).encode()
    await brokers.ask("broker-0", CreateAcl(f"User:{name}"), body)


async def test_changes_of_users_and_policies_count_after_a_few_seconds(tmp_path):
    async with users_of(tmp_path) as (users, brokers):
        await users.start()
        assert set(users.passwords) == {"operator", "writer-1", "writer-2", "reader-1", "reader-2"}
        users.authorise("broker-0", "reader-1", HERE, ACK, b"")
        assert users.may_see("reader-1", "orders", HERE) and users.may_see("writer-1", "orders", HERE)
        assert not users.may_see("reader-2", "orders", HERE)
        for name in ("writer-1", "reader-2", "nobody"):
            with pytest.raises(AccessDenied):
                users.authorise("broker-0", name, HERE, ACK, b"")
        with pytest.raises(BrokerUnreachable, match="within seconds"):
            users.authorise("broker-9", "reader-1", HERE, ACK, b"")
        # The broker sees mqproxy's address, so only mqproxy can decide by the client's.
        await allow(brokers, "reader-1", PolicyRule("Group:g", ["Sub"], ["10.0.0.0/8"], "Deny"))
        await allow(brokers, "reader-1", PolicyRule("Group:*", ["Sub"], None, "Allow"))
        await users._read_all()
        users.authorise("broker-0", "reader-1", HERE, ACK, b"")
        with pytest.raises(AccessDenied):
            users.authorise("broker-0", "reader-1", CallPeer("10.1.2.3:5000", None), ACK, b"")
        await brokers.ask("broker-0", UpdateUser("reader-1"), UserEntry(user_status="disable").encode())
        await users._read_all()
        with pytest.raises(AccessDenied, match="disabled"):
            users.authorise("broker-0", "reader-1", HERE, ACK, b"")


async def test_a_user_sees_its_topics_and_the_retry_topics_of_its_groups(tmp_path):
    async with users_of(tmp_path) as (users, _):
        await users.start()
        for topic in ("orders", "%RETRY%g"):
            assert users.may_see("reader-1", topic, HERE)
        for topic in ("bills", "%RETRY%h", ""):
            assert not users.may_see("reader-1", topic, HERE)


async def test_policies_do_not_count_if_the_broker_ignores_them(tmp_path):
    async with users_of(tmp_path, **(USERS | {"authorization": False})) as (users, brokers):
        await brokers.ask("broker-0", CreateUser("guest"), UserEntry(password="12345678").encode())
        await users.start()
        users.authorise("broker-0", "guest", HERE, ACK, b"")


async def test_an_account_that_gets_no_users_ends_the_start(tmp_path):
    async with users_of(tmp_path, Credentials("writer-1", "12345678")) as (users, _):
        with pytest.raises(ConfigError, match="Super user"):
            await users.start()
        assert users.accounts == {}


async def test_a_broker_without_users_ends_the_start(tmp_path):
    async with users_of(tmp_path, authentication=False) as (users, _):
        with pytest.raises(ConfigError, match="authenticationEnabled=true"):
            await users.start()


async def test_users_stay_in_use_while_no_server_answers(tmp_path):
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(tmp_path, **USERS))
        async with Network(cluster.namesrv, credentials=OPERATOR) as network:
            users = BrokerUsers(ClusterBrokers(network, SystemClock()), SystemClock())
            await users.start()
            await stack.aclose()
            await users._read_all()
            assert set(users.accounts) == {"operator"}


GOOD = {
    ListUsers: b'[{"username":"op","password":"abcdefgh","userType":"Super","userStatus":"enable"}]',
    ListAcls: b"[]",
    GetBrokerConfig: b"authorizationEnabled=true\nbrokerClusterName=c\nstorePathRootDir=C:\\users\\mq\nnote=\xff\n",
}


HANGS = object()


class Answering:
    """Brokers that answer by a table; an exception is raised."""

    def __init__(self, **answers):
        self.addresses = self
        self.answers = answers

    async def masters(self):
        if "masters" in self.answers:
            raise self.answers["masters"]
        return sorted(self.answers)

    async def ask(self, name, request):
        answer = (GOOD | self.answers[name])[type(request)]
        if answer is HANGS:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(body=answer)


def users_by(brokers: Any, clock: Clock | None = None) -> BrokerUsers:
    return BrokerUsers(brokers, clock or SystemClock())


def condition(users: BrokerUsers) -> str:
    ((_, probe),) = users.probes()
    return probe()


AWAY = {kind: BrokerUnreachable("a", "it restarts") for kind in GOOD}
BUSY = {kind: RemoteError(14, "it starts") for kind in GOOD}
UNREGISTERED = None  # no name server lists it


@pytest.mark.parametrize("state", [AWAY, BUSY, UNREGISTERED], ids=["away", "busy", "unregistered"])
async def test_users_of_a_broker_that_restarts_count_for_ten_minutes(state):
    clock = ManualClock()
    only_at_a = GOOD[ListUsers].replace(b'"op"', b'"app"')
    brokers = Answering(a={ListUsers: only_at_a}, b={})
    users = users_by(brokers, clock)
    await users.start()
    assert condition(users) == ""
    brokers.answers = {"b": {}} if state is None else {"a": state, "b": {}}
    for _ in range(2):
        await clock.advance(KEEP_S / 2)
        await users._read_all()
        assert set(users.accounts) == {"app", "op"}
        users.authorise("a", "app", HERE, ACK, b"")
        assert condition(users).startswith("a: its users count until ")
    await clock.advance(1)
    await users._read_all()
    assert set(users.accounts) == {"op"}
    with pytest.raises(BrokerUnreachable):
        users.authorise("a", "app", HERE, ACK, b"")
    assert condition(users) == "" if state is None else condition(users).startswith("a: all calls")
    brokers.answers = {"a": {ListUsers: only_at_a}, "b": {}}
    await users._read_all()
    assert set(users.accounts) == {"app", "op"} and condition(users) == ""


async def test_another_password_counts_while_a_broker_with_the_former_one_is_away():
    clock = ManualClock()
    brokers = Answering(a={}, b={})
    users = users_by(brokers, clock)
    await users.start()
    changed = GOOD[ListUsers].replace(b"abcdefgh", b"12345678")
    brokers.answers = {"a": AWAY, "b": {ListUsers: changed}}
    await clock.advance(POLL_S)
    await users._read_all()
    assert users.passwords["op"] == "12345678"


async def test_users_are_read_without_name_servers():
    clock = ManualClock()
    brokers = Answering(a={})
    users = users_by(brokers, clock)
    await users.start()
    brokers.answers["masters"] = NameServerUnreachable("127.0.0.1:1", "gone")
    brokers.answers["a"] = {ListUsers: GOOD[ListUsers].replace(b'"op"', b'"app"')}
    await clock.advance(2 * KEEP_S)
    await users._read_all()
    assert set(users.accounts) == {"app"}


async def test_settings_of_a_broker_on_windows_are_read():
    users = users_by(Answering(a={}))
    await users.start()
    assert set(users.accounts) == {"op"}


@pytest.mark.parametrize(
    "odd",
    [
        {ListUsers: RemoteProtocolError("garbage")},
        {ListUsers: b"\xff"},
        {ListUsers: b'[{"username":"\xff"}]'},
        {ListAcls: b"[" * 100_000},
        {ListAcls: b"{}"},
        {GetBrokerConfig: b"brokerClusterName=\\u12"},
    ],
)
async def test_an_odd_answer_of_a_broker_leaves_the_others_alone(odd):
    users = users_by(Answering(a=odd, b={}))
    await users.start()
    await users._read_all()
    assert set(users.accounts) == {"op"}
    users.authorise("b", "op", HERE, ACK, b"")
    assert condition(users).startswith("a: all calls for it are denied: ")
    with pytest.raises(BrokerUnreachable):
        users.authorise("a", "op", HERE, ACK, b"")


async def test_a_broker_that_hangs_delays_no_users_of_others():
    users = users_by(Answering(a=dict.fromkeys(GOOD, HANGS), b={}))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(users.start(), 0.1)
    assert set(users.accounts) == {"op"}
    users.authorise("b", "op", HERE, ACK, b"")


async def test_an_odd_answer_of_a_name_server_keeps_the_users():
    brokers = Answering(a={})
    users = users_by(brokers)
    await users.start()
    brokers.answers["masters"] = RemoteProtocolError("garbage")
    await users._read_all()
    assert set(users.accounts) == {"op"}
