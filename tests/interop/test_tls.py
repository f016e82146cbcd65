"""Apache's own client on our servers, encrypted; everything that is said in between too."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.certificates import Pair, authority, signed
from tests.interop.apache import PLAIN, SMALL_HEAP, ApacheBroker, ApacheNamesrv, mqadmin
from tests.interop.clients import JavaClient
from tests.interop.servers import OURS, OurBroker, OurNamesrv, Target

pytestmark = [pytest.mark.interop, pytest.mark.java]

ENCRYPTED = ("-Dtls.enable=true",)  # and by Apache's test mode, which is on, anybody is trusted


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Pair, Pair]:
    """An authority's certificate, and pairs of a server and a client that it vouches for."""
    folder = tmp_path_factory.mktemp("tls")
    ours = authority(folder)
    return ours.certificate, signed(folder, "server", ours), signed(folder, "client", ours)


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


@pytest.mark.parametrize("version", ["4.9.8", pytest.param("5.4.0", marks=pytest.mark.slow)])
@pytest.mark.cell("tls", columns=["java-4.9.8", "java-5.4.0"])
def test_java_clients_and_ours_show_certificates_to_each_other(
    tmp_path: Path, certificates: tuple[Path, Pair, Pair], version: str
) -> None:
    trust, server, client = certificates
    file = tmp_path / "tls.properties"
    file.write_text(
        f"tls.test.mode.enable=false\ntls.server.certPath={server.certificate}\ntls.server.keyPath={server.key}\n"
        f"tls.server.need.client.auth=require\ntls.server.authClient=true\ntls.server.trustCertPath={trust}\n"
        f"tls.client.certPath={server.certificate}\ntls.client.keyPath={server.key}\n"
        f"tls.client.authServer=true\ntls.client.trustCertPath={trust}\n"
    )
    conf = {"tls.server.mode": "enforcing", "tls.config.file": file}
    own = tmp_path / "client.properties"
    own.write_text(
        f"tls.test.mode.enable=false\ntls.client.authServer=true\ntls.client.trustCertPath={trust}\n"
        f"tls.client.certPath={client.certificate}\ntls.client.keyPath={client.key}\n"
    )
    jvm = (*ENCRYPTED, f"-Dtls.config.file={own}")
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
