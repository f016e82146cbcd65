"""Apache's client on our servers and ours on Apache's, encrypted; everything that is said in between too."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparrowmq import Admin, SparrowError, connect
from tests.certificates import Pair, authority, signed
from tests.interop.apache import PLAIN, SMALL_HEAP, ApacheBroker, ApacheNamesrv, mqadmin
from tests.interop.clients import JavaClient
from tests.interop.servers import OURS, OurBroker, OurNamesrv, Target

pytestmark = pytest.mark.slow

ENCRYPTED = ("-Dtls.enable=true",)  # and by Apache's test mode, which is on, anybody is trusted
LIMIT_S = 30.0


@dataclass(frozen=True)
class Mutual:
    """Settings by which both sides show certificates of one authority: files of `tls.*` keys, as Apache's."""

    server: Path
    client: Path
    stranger: Path  # which shows none


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Mutual:
    folder = tmp_path_factory.mktemp("tls")
    ours = authority(folder)
    server, client = signed(folder, "server", ours), signed(folder, "client", ours)
    trusting = f"tls.test.mode.enable=false\ntls.client.authServer=true\ntls.client.trustCertPath={ours.certificate}\n"
    texts = {
        "server": f"{trusting}{shown('server', server)}{shown('client', server)}"
        f"tls.server.need.client.auth=require\ntls.server.authClient=true\n"
        f"tls.server.trustCertPath={ours.certificate}\n",
        "client": trusting + shown("client", client),
        "stranger": trusting,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return Mutual(*(folder / name for name in texts))


def shown(role: str, pair: Pair) -> str:
    return f"tls.{role}.certPath={pair.certificate}\ntls.{role}.keyPath={pair.key}\n"


@pytest.mark.slow
def test_a_java_client_encrypts_without_any_setting_of_ours(tmp_path: Path) -> None:
    with OurNamesrv() as namesrv, OurBroker(namesrv.address, tmp_path / "store") as broker:
        target = Target(OURS, namesrv.address, broker.address)
        target.create_topic("T")
        with JavaClient("4.9.8", target.namesrv, jvm=ENCRYPTED) as client:
            client.send("T", "hidden 消息", how="ordered", shard=0)
            client.send("T", "large ", times=200_000, how="ordered", shard=0)
            with client.consume("g", "T") as consumer:
                received = consumer.wait_for(2)
        assert sorted(len(event["body"]) for event in received) == [9, 1_200_000]
        assert "self-signed certificate" in broker.said() and "self-signed certificate" in namesrv.said()


@pytest.mark.parametrize("version", ["4.9.8", pytest.param("5.4.0", marks=pytest.mark.nightly)])
@pytest.mark.cell("tls", columns=["java-4.9.8", "java-5.4.0"])
@pytest.mark.slow
def test_java_clients_and_ours_show_certificates_to_each_other(tmp_path: Path, mutual: Mutual, version: str) -> None:
    conf = {"tls.server.mode": "enforcing", "tls.config.file": mutual.server}
    jvm = (*ENCRYPTED, f"-Dtls.config.file={mutual.client}")
    with ExitStack() as stack:
        namesrv = stack.enter_context(OurNamesrv(conf))
        broker = stack.enter_context(OurBroker(namesrv.address, tmp_path / "store", conf))
        with JavaClient(version, namesrv.address, jvm=jvm) as java:
            java.send("T", "mutual")
            with java.consume("g", "T") as consumer:
                assert [event["body"] for event in consumer.wait_for(1)] == ["mutual"]
        if version == "4.9.8":
            listed = mqadmin("4.9.7", "topicList", "-n", namesrv.address, jvm=jvm)
            assert "%RETRY%g" in listed.stdout
            stranger = mqadmin("4.9.7", "topicList", "-n", namesrv.address, jvm=ENCRYPTED)
            assert "T\n" not in stranger.stdout
            assert "peer did not return a certificate" in namesrv.said()
        assert broker.address in namesrv.said() or broker.said()


@pytest.mark.parametrize("version", ["4.9.7", pytest.param("5.4.0", marks=pytest.mark.nightly)])
@pytest.mark.cell("tls", columns=["apache-4.9.7", "apache-5.4.0"])
@pytest.mark.slow
async def test_our_client_and_apaches_servers_show_certificates_to_each_other(
    tmp_path: Path, mutual: Mutual, version: str
) -> None:
    jvm = (*SMALL_HEAP, *ENCRYPTED, "-Dtls.server.mode=enforcing", f"-Dtls.config.file={mutual.server}")
    large = b"mutual" * 100_000
    with ApacheNamesrv(version, jvm=jvm) as namesrv:
        broker = ApacheBroker(version, namesrv.address, tmp_path / "store", jvm=jvm)
        broker._wait_registered = lambda: None  # type: ignore[method-assign]  # it would ask in plain text
        with broker:
            async with Admin(namesrv.address, tls=mutual.client) as admin, asyncio.timeout(LIMIT_S):
                while not await admin.brokers():  # 5.x registers within 10 s
                    await asyncio.sleep(0.1)
                await admin.create_topic("T")
            async with connect(namesrv.address, tls=mutual.client) as mq:
                await mq.send("T", large)
                async with mq.subscribe("T", group="g") as consumer, asyncio.timeout(LIMIT_S):
                    async for message in consumer:
                        assert message.body == large
                        message.ack()
                        break
            for tls in (mutual.stranger, False):
                async with connect(namesrv.address, tls=tls) as mq:
                    with pytest.raises(SparrowError):
                        await mq.send("T", b"stranger", timeout_s=1)
            broker.kill()


@pytest.mark.nightly
def test_our_broker_registers_by_tls_at_apaches_name_server_and_apaches_at_ours(tmp_path: Path) -> None:
    careless = {"tls.enable": "true", "tls.client.authServer": "false"}
    with (
        ApacheNamesrv("4.9.7", jvm=SMALL_HEAP) as namesrv,  # encrypts if it is asked to, by default
        OurBroker(namesrv.address, tmp_path / "store", careless),
    ):
        assert "broker-a" in mqadmin("4.9.7", "clusterList", "-n", namesrv.address).stdout
    with OurNamesrv({"tls.server.mode": "enforcing"}) as ours:
        broker = ApacheBroker("4.9.7", ours.address, tmp_path / "apache", jvm=(*PLAIN, *ENCRYPTED))
        broker._wait_registered = lambda: None  # type: ignore[method-assign]  # it would ask in plain text
        with broker:
            listed = mqadmin("4.9.7", "clusterList", "-n", ours.address, jvm=ENCRYPTED).stdout
            assert "broker-a" in listed, listed
            broker.kill()
