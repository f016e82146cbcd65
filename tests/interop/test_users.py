"""Users and policies (ACL 2.0): both admin tools, at Apache's broker 5.4.0 and at ours, say the same."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from sparrowmq import connect
from sparrowmq.cli.mqadmin.main import run
from sparrowmq.grpc.wire_types import ClientType
from sparrowmq.mqproxy.proxy import Proxy, ProxySettings
from sparrowmq.protocol.codes import RequestCode
from tests.broker.grpc_port import attacks
from tests.broker.grpc_port.grpc_client import GrpcClient, channel_to
from tests.grpc.scripted import named, outgoing
from tests.interop.apache import ApacheBroker, ApacheNamesrv
from tests.interop.servers import OURS, SETTINGS, OurBroker, OurNamesrv, Target
from tests.interop.test_access import AUTH_OF_5
from tests.interop.test_asked_consumers import wait_until
from tests.interop.test_mqadmin import Admin
from tests.interop.wire import Wire

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

VERSION: Final = "5.4.0"
KEYS: Final = "accessKey: admin\nsecretKey: secretOfAdmin\n"
USERS: Final = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"secretOfAdmin"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secretOfInner"}',
}
SCRIPT: Final = [
    "createUser -b {broker} -u alice -p secretOfAlice -t Normal",
    "getUser -b {broker} -u alice",
    "listUser -c DefaultCluster",
    "updateUser -b {broker} -u alice -s disable",
    "createAcl -c DefaultCluster -s User:alice -r Topic:orders,Group:* -a Pub,Sub -d Allow -i 10.0.0.0/8",
    "updateAcl -b {broker} -s User:alice -r Topic:ord* -a all -d Deny",
    "updateAcl -b {broker} -s User:alice -r Topic:orders -a Sub,Get -d Allow",
    "getAcl -b {broker} -s User:alice",
    "deleteAcl -b {broker} -s User:alice -r Topic:ord*",
    "listAcl -b {broker} -s alice",
    "deleteUser -b {broker} -u alice",
    "getUser -b {broker} -u alice",
]


@contextmanager
def broker(side: str, folder: Path) -> Iterator[Target]:
    """A broker with a Super user, and its name server."""
    if side == OURS:
        with OurNamesrv() as ours, OurBroker(ours.address, folder / "store", USERS) as started:
            yield Target(side, ours.address, started.address)
        return
    providers = {key: value for key, value in AUTH_OF_5.items() if key.endswith("Provider")}
    conf = SETTINGS | providers | USERS | {"authConfigPath": folder / "auth"}
    with (
        ApacheNamesrv(VERSION) as namesrv,
        ApacheBroker(VERSION, namesrv.address, folder / "store", conf) as apaches,
    ):
        yield Target(side, namesrv.address, apaches.address)
        apaches.kill()


@contextmanager
def javas_tool() -> Iterator[Callable[[list[str]], str]]:
    """Java's tool, which reads its keys below its ROCKETMQ_HOME. One process runs all commands."""
    with Admin(version=VERSION) as admin:
        (admin.home / "conf" / "tools.yml").write_text(KEYS)

        def run_tool(words: list[str]) -> str:
            answer = admin.call(*words)
            return str(answer["out"] + answer["err"])

        yield run_tool


@contextmanager
def our_tool(home: Path) -> Iterator[Callable[[list[str]], str]]:
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text(KEYS)

    def run_tool(words: list[str]) -> str:
        out, err = io.StringIO(), io.StringIO()
        run(words, out, err)
        return out.getvalue() + err.getvalue()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCKETMQ_HOME", str(home))
        yield run_tool


def said(side: str, tool: str, folder: Path) -> dict[str, list[str]]:
    """By command, the lines of its answer."""
    answers = {}
    started = our_tool(folder / "home") if tool == "ours" else javas_tool()
    with broker(side, folder) as target, started as run_tool:
        for number, line in enumerate(SCRIPT):
            words = [*line.format(broker=target.broker).split(), "-n", target.namesrv]
            text = run_tool(words)
            text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
            # 5.4.0 writes how it reads its logging configuration.
            lines = [each for each in text.splitlines() if each and "|-" not in each]
            answers[f"{number} {line}"] = lines
        answers["signed searches"] = searches(run_tool, target)
    return answers


def searches(run_tool: Callable[[list[str]], str], target: Target) -> list[str]:
    """Send a message with a key, and search for it by key and by id. Returns for each whether it was found."""

    def ids(*words: str) -> list[str]:
        return re.findall(r"\b[0-9A-F]{32,}\b", run_tool([*words, "-n", target.namesrv]))

    run_tool(["updateTopic", "-b", target.broker, "-t", "orders", "-r", "1", "-w", "1"])
    (sent,) = ids("sendMessage", "-t", "orders", "-p", "paid", "-k", "one")
    by_key = ["queryMsgByKey", "-t", "orders", "-k", "one"]
    wait_until(lambda: sent in ids(*by_key), lambda: run_tool(by_key))  # Apache's index is written a little later
    found = ids("queryMsgByUniqueKey", "-t", "orders", "-i", sent)
    return ["by key", "by id" if sent in found else "not by id"]


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What our tool says at our broker."""
    return said(OURS, "ours", tmp_path_factory.mktemp("ours") / "ours")


@pytest.mark.parametrize(("side", "tool"), [(OURS, "java"), (f"apache-{VERSION}", "ours")])
def test_the_other_tool_and_the_other_broker_say_the_same(
    wanted: dict[str, list[str]], side: str, tool: str, tmp_path: Path
) -> None:
    found = said(side, tool, tmp_path / "other")
    assert found == wanted


def test_the_script_did_what_it_says(wanted: dict[str, list[str]]) -> None:
    by_number = list(wanted.values())
    assert by_number[0] == ["create user to ADDRESS success."]
    assert [line.split()[0] for line in by_number[2][1:-1]] == ["admin", "alice", "inner"]
    assert len(by_number[7]) == 4 and len(by_number[9]) == 3 and by_number[-2] == []
    assert by_number[-1] == ["by key", "by id"]


async def test_mqproxy_decides_by_the_users_of_apaches_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(USERS, "initAuthenticationUser", attacks.USERS["first_user"])
    with broker(f"apache-{VERSION}", tmp_path) as target:
        await attacks.add_users(target.namesrv, target.broker)
        async with connect(target.namesrv, credentials=attacks.OPERATOR) as mq:
            await mq.admin.create_topic("orders", queues=1)
            await mq.admin.create_topic("bills", queues=1)
            await mq.admin.create_group("g")
            await mq.admin.reset("g", "orders", "earliest")
        settings = ProxySettings(port=0, credentials=attacks.OPERATOR)
        async with Proxy(settings, target.namesrv) as proxy, channel_to(proxy.address) as channel:
            forger = GrpcClient(channel, **attacks.signed("writer-1", "wrong"))
            writer, reader, thief = (attacks.client_of(channel, name) for name in ("writer-1", "reader-1", "reader-2"))
            for client, code in (
                (GrpcClient(channel), 40100),
                (forger, 40100),
                (reader, 40100),
                (writer, 20000),
            ):
                assert (await client.call("SendMessage", messages=[outgoing()])).status.code == code
            denied = attacks.client_of(channel, "writer-2")
            assert (await denied.call("SendMessage", messages=[outgoing("bills")])).status.code == 40100
            await (await reader.telemetry(ClientType.SIMPLE_CONSUMER, group="g"))()
            code, [got] = await reader.receive(broker="broker-a")
            assert code == 20000
            entries = [{"receipt_handle": got.system_properties.receipt_handle}]
            names = {"topic": named("orders"), "group": named("g")}
            for client, code in ((thief, 40100), (writer, 40100), (reader, 20000)):
                acked = await client.call("AckMessage", **names, entries=entries)
                assert acked.status.code == code


def test_apaches_broker_registers_at_our_name_server_as_a_super_user(tmp_path: Path) -> None:
    providers = {key: value for key, value in AUTH_OF_5.items() if key.endswith("Provider")}
    conf = SETTINGS | providers | USERS | {"authConfigPath": tmp_path / "auth"}
    public = {"aclPublicRoutes": "true"}
    with (
        OurNamesrv(USERS | public) as namesrv,
        ApacheBroker(VERSION, namesrv.address, tmp_path / "store", conf) as apaches,  # returns once registered
        Wire(int(namesrv.address.rpartition(":")[2])) as stranger,
    ):
        fields = {"brokerName": "broker-a", "brokerAddr": apaches.address, "clusterName": "DefaultCluster"}
        assert stranger.ask(RequestCode.UNREGISTER_BROKER, fields | {"brokerId": "0"}).code == 16
        assert apaches.address.encode() in stranger.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body
        apaches.kill()
