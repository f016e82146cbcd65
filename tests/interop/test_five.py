"""Apache's own clients of RocketMQ 5, at our broker's gRPC port and at `mqproxy` in front of two brokers."""

import asyncio
import io
import json
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparrowmq import connect
from sparrowmq.cli.mqadmin.main import run as mqadmin
from sparrowmq.client.client import Client
from sparrowmq.client.cluster.network import Network
from sparrowmq.errors import SparrowError
from sparrowmq.mqproxy.proxy import Proxy, ProxySettings
from sparrowmq.protocol.requests.client_bodies import ConsumeOutcome, ConsumerRunning
from sparrowmq.protocol.requests.headers import ConsumeMessageDirectly, GetConsumerRunning
from sparrowmq.protocol.requests.pop_headers import Polling
from sparrowmq.protocol.requests.user_headers import CreateAcl, CreateUser, Policy, PolicyRule, UserEntry, UserPolicies
from sparrowmq.remoting.tls.tls_settings import ClientAuth
from sparrowmq.testing import Cluster
from tests.broker.grpc_port.attacks import OPERATOR, USERS
from tests.broker.live import live_broker
from tests.certificates import authority, settings_of, signed
from tests.interop.kits import (
    FIVE_JAVA_VERSIONS,
    five_java_jars,
    five_python,
    go_puppet,
    java,
    node_puppet,
    oldest_five_python,
    rust_puppet,
)
from tests.interop.servers import running

HERE = Path(__file__).parent / "five"


def java_client(version: str = FIVE_JAVA_VERSIONS[-1]) -> list[str]:
    return [java(), "-cp", f"{five_java_jars(version)}/*", str(HERE / "java" / "Puppet.java")]


OLDER: dict[str, Callable[[], list[str]]] = {
    **{f"five-java-{version}": partial(java_client, version) for version in FIVE_JAVA_VERSIONS[:-1]},
    "five-python-5.0.1": lambda: [str(oldest_five_python()), str(HERE / "puppet.py")],
}
CLIENTS: dict[str, Callable[[], list[str]]] = {
    "five-python": lambda: [str(five_python()), str(HERE / "puppet.py")],
    "five-java": java_client,
    "five-go": lambda: [str(go_puppet("five/go"))],
    "five-node": lambda: node_puppet("five/node"),
    "five-rust": lambda: [str(rust_puppet())],
    **OLDER,
}
# The rows of matrix.toml that an older release does not have.
LACKING = {
    "five-java-5.0.5": {"five-recall"},
    "five-java-5.0.7": {"five-recall"},
    "five-python-5.0.1": {"five-push", "five-recall", "five-tls"},
}
EXPECTED = {
    "sends_and_receives": [
        ["later", "a", [], {}],
        *sorted([f"m{n}", "a", [f"k{n}"], {"own": "x"}] for n in range(19)),
    ],
    "pushes": sorted(f"f{n}" for n in range(20)),
    "keeps_groups_apart": ["quick 0", "quick 1", "quick 2", "stuck 0", "stuck 1"],
    "ends_transactions": [20000, True],
    "recalls": True,
    "settles": [["large", 1], ["large", 2], True],
    "sends_batches": ["b0", "b1", "b2"],
}
IS_ASKED = ["good", "bad"]
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # Java lives some seconds here
SOON: dict[str, Any] = {
    "transaction_timeout_ms": 1000,
    "transaction_interval_ms": 1000,
    "property_filter": True,
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first builds the clients


async def check(client: str, task: str, address: str, home: Path, **account: str) -> None:
    """Let a client do a task."""
    command = await asyncio.to_thread(CLIENTS[client])
    child = await asyncio.create_subprocess_exec(
        *(*command, address, task),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "JAVA_TOOL_OPTIONS": f"-Duser.home={home} {QUICK}",
            **account,
        },
    )
    said, problems = await asyncio.wait_for(child.communicate(), 100)
    assert child.returncode == 0, problems.decode()
    assert json.loads(said) == EXPECTED.get(task, IS_ASKED)


# Cargo takes minutes to build one, and Java seconds to start the others.
AT_NIGHT = dict.fromkeys(("five-rust", *OLDER), pytest.mark.nightly)


@pytest.fixture(params=[pytest.param(client, marks=AT_NIGHT.get(client, ())) for client in CLIENTS])
def five(request) -> str:
    """A client, by its column of matrix.toml, or an older release of it."""
    for mark in request.node.iter_markers("cell"):
        if not LACKING.get(request.param, set()).isdisjoint(mark.args):
            pytest.skip(f"{request.param} cannot: it is older than this")
    return str(request.param)


async def prepare(mq: Client, queues: int, ordered: bool) -> None:
    """Create topics and groups."""
    await mq.admin.create_topic("orders", queues=queues)
    await mq.admin.create_topic("fifo", queues=1, message_type="FIFO")
    for group in ("simple", "push"):
        await mq.admin.create_group(group, ordered=ordered)


@asynccontextmanager
async def broker(tmp_path: Path, ordered: bool) -> AsyncIterator[str]:
    """The gRPC port of a broker."""
    cluster = Cluster(tmp_path, grpc_port=0, **SOON)
    async with cluster, connect(cluster.namesrv) as mq:
        await prepare(mq, 4, ordered)
        yield cluster.brokers[0].grpc_address


@asynccontextmanager
async def mqproxy(tmp_path: Path, ordered: bool) -> AsyncIterator[str]:
    """The port of `mqproxy` in front of two brokers."""
    cluster = Cluster(tmp_path, brokers=2, **SOON)
    async with (
        cluster,
        connect(cluster.namesrv) as mq,
        Proxy(ProxySettings(port=0), cluster.namesrv) as proxy,
    ):
        await prepare(mq, 2, ordered)
        yield proxy.address


@asynccontextmanager
async def before_apache(tmp_path: Path, ordered: bool) -> AsyncIterator[str]:
    """The port of `mqproxy` in front of Apache's broker."""
    with running("apache-5.4.0", tmp_path) as target:
        async with (
            connect(target.namesrv) as mq,
            Proxy(ProxySettings(port=0), target.namesrv) as proxy,
        ):
            await prepare(mq, 4, ordered)
            yield proxy.address


@pytest.fixture
def ordered() -> bool:
    """Whether the groups get messages in order."""
    return False


@pytest.fixture(params=[broker, mqproxy])
async def endpoint(request, tmp_path, ordered) -> AsyncIterator[str]:
    async with request.param(tmp_path, ordered) as address:
        yield address


PLAIN_AND_FIFO = pytest.mark.parametrize("ordered", [False, True], ids=["plain", "fifo"])


@pytest.mark.cell("five-send", "five-simple", "five-tags", "five-mqproxy")
@PLAIN_AND_FIFO
async def test_new_group_of_a_simple_consumer_receives_what_is_there(five, endpoint, tmp_path):
    await check(five, "sends_and_receives", endpoint, tmp_path)


# Each takes ten seconds. What the other clients say to `mqproxy` they say to a broker as well.
SETTLING = [
    *(pytest.param(client, broker, marks=AT_NIGHT.get(client, ())) for client in CLIENTS),
    *(pytest.param(client, mqproxy, marks=() if client == "five-java" else pytest.mark.nightly) for client in CLIENTS),
]


@pytest.mark.cell("five-retry", "five-invisible", "five-sql", "five-type")
@pytest.mark.parametrize(("five", "endpoint"), SETTLING, indirect=True)
async def test_message_that_is_left_comes_again_and_filters_and_types_count(five, endpoint, tmp_path):
    await check(five, "settles", endpoint, tmp_path)


@pytest.mark.nightly  # tests/grpc/test_sending.py sends several messages in a call
@pytest.mark.cell("five-batch", columns=["five-rust"])
async def test_batch_of_an_official_client_arrives(endpoint, tmp_path):
    await check("five-rust", "sends_batches", endpoint, tmp_path)


@pytest.mark.cell("five-tls")
async def test_official_client_of_5_reaches_a_port_that_only_encrypts(five, tmp_path):
    trusted = authority(tmp_path)
    own = signed(tmp_path, "broker", trusted)
    tls: dict[str, Any] = settings_of(trusted, own) | {"client_auth": ClientAuth.NONE}
    async with Cluster(tmp_path / "cluster", grpc_port=0, namesrv_settings=tls, **tls) as cluster:
        trusting = ssl.create_default_context(cafile=str(trusted.certificate))
        async with connect(cluster.namesrv, tls=trusting) as mq:
            await mq.admin.create_topic("orders", queues=1)
        roots = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(trusted.certificate)}
        address = cluster.brokers[0].grpc_address
        await check(five, "sends_and_receives", address, tmp_path, TLS="1", **roots)


@pytest.mark.cell("five-push")
@PLAIN_AND_FIFO
async def test_new_group_of_a_push_consumer_receives_what_is_there(five, endpoint, tmp_path):
    await check(five, "pushes", endpoint, tmp_path)


async def test_oldest_client_of_java_produces_and_consumes(endpoint, tmp_path):
    await check("five-java-5.0.5", "pushes", endpoint, tmp_path)


@pytest.mark.nightly
@PLAIN_AND_FIFO
@pytest.mark.parametrize("endpoint", [before_apache], indirect=True)
@pytest.mark.parametrize("task", ["sends_and_receives", "pushes"])
async def test_new_group_at_mqproxy_before_apache_receives_what_is_there(task, endpoint, tmp_path):
    await check("five-python", task, endpoint, tmp_path)


async def test_stuck_message_group_delays_no_other_of_a_push_consumer(tmp_path):
    async with live_broker(tmp_path, grpc_port=0) as live:
        async with connect(live.cluster.namesrv) as mq:
            await mq.admin.create_topic("fifo", queues=1, message_type="FIFO")
            await mq.admin.create_group("ordered", ordered=True)
        await check("five-python", "keeps_groups_apart", live.broker.grpc_address, tmp_path)


@pytest.mark.cell("five-transaction", "five-check")
async def test_transaction_ends_by_its_producer_or_by_a_check(five, endpoint, tmp_path):
    await check(five, "ends_transactions", endpoint, tmp_path)


@pytest.mark.cell("five-recall")
@pytest.mark.cell("five-delay", columns=["five-java", "five-go", "five-node"])
async def test_delayed_message_is_recalled(five, endpoint, tmp_path):
    await check(five, "recalls", endpoint, tmp_path)


@pytest.mark.cell("five-accounts", columns=["five-python"])
@pytest.mark.parametrize("task", ["sends_and_receives", "ends_transactions"])
async def test_official_client_of_5_works_through_mqproxy_with_an_account(tmp_path, task):
    async with Cluster(tmp_path, brokers=2, **SOON, **USERS) as cluster:
        async with Network(cluster.namesrv, credentials=OPERATOR) as network:
            rules = [
                PolicyRule("Topic:orders", ["Pub", "Sub"], None, "Allow"),
                PolicyRule("Group:simple", ["Sub"], None, "Allow"),
            ]
            body = UserPolicies("User:app", [Policy("Custom", rules)]).encode()
            for broker in cluster.brokers:
                session = await network.brokers.session(broker.address)
                await session.call(CreateUser("app"), UserEntry(password="12345678").encode())
                await session.call(CreateAcl("User:app"), body)
        async with connect(cluster.namesrv, credentials=OPERATOR) as mq:
            await mq.admin.create_topic("orders", queues=1)
        settings = ProxySettings(port=0, credentials=OPERATOR)
        async with Proxy(settings, cluster.namesrv) as proxy:
            account = {"ACCESS_KEY": "app", "SECRET_KEY": "12345678"}
            await check("five-python", task, proxy.address, tmp_path, **account)
            with pytest.raises(AssertionError):
                await check("five-python", task, proxy.address, tmp_path, **account | {"SECRET_KEY": "wrong"})


async def test_tool_gets_the_stacks_of_an_official_client_and_has_it_handle_messages(tmp_path):
    async with Cluster(tmp_path, grpc_port=0) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=1)
        producer = mq.producer("p")
        good, bad = [await producer.send("orders", body) for body in (b"good", b"bad")]
        await mq.admin.create_group("push")
        await mq.admin.reset("push", "orders", "latest")  # it gets these messages only from the tool
        broker = cluster.brokers[0]
        async with asyncio.TaskGroup() as tasks, Network(cluster.namesrv) as network:
            tasks.create_task(check("five-java", "is_asked", broker.grpc_address, tmp_path))
            while not (members := await group_members(mq, "push")):
                await asyncio.sleep(0.2)
            session = await network.brokers.session(broker.address)
            while not (await session.call(Polling("push", "orders", 0))).header.polling_num:
                await asyncio.sleep(0.2)  # a client that only starts never answers
            ask = GetConsumerRunning("push", members[0], True)
            running = ConsumerRunning.decode((await session.call(ask, timeout_s=15)).body)
            assert running.jstack is not None and "java.lang.Thread" in running.jstack
            assert [each.topic for each in running.subscription_set] == ["orders"]
            words = ["consumerStatus", "-g", "push", "-i", members[0], "-s", "-n", cluster.namesrv]
            shown, problems = io.StringIO(), io.StringIO()
            await asyncio.to_thread(mqadmin, words, shown, problems)
            assert "#Consumer jstack#" in shown.getvalue(), problems.getvalue()
            for sent, result in ((good, "CR_SUCCESS"), (bad, "CR_LATER")):
                directly = ConsumeMessageDirectly("push", members[0], sent.offset_msg_id)
                outcome = ConsumeOutcome.decode((await session.call(directly, timeout_s=15)).body)
                assert outcome.consume_result == result


async def group_members(mq: Client, group: str) -> list[str]:
    try:
        return [member.client_id for member in await mq.admin.members(group)]
    except SparrowError:
        return []
