"""A cluster that takes encrypted connections only, and all ways of ours into it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparrowmq.admin.admin import Admin
from sparrowmq.cli.main import main
from sparrowmq.client.client import connect
from sparrowmq.client.cluster.credentials import Tls
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.errors import SparrowError
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.worker import connect as connect_for_spark
from sparrowmq.testing.background import BackgroundCluster
from tests.certificates import Pair, authority, settings_of, signed


@dataclass
class Closed:
    """The cluster, and with what one gets in: a client's certificate that its authority signed."""

    cluster: BackgroundCluster
    client: Pair
    trust: Path
    file: Path

    @property
    def namesrv(self) -> str:
        return self.cluster.namesrv


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    folder = tmp_path_factory.mktemp("tls")
    ours = authority(folder)
    server, client = signed(folder, "server", ours), signed(folder, "client", ours)
    tls = settings_of(ours, server)
    file = folder / "tls.properties"
    file.write_text(
        f"tls.client.certPath={client.certificate}\ntls.client.keyPath={client.key}\n"
        f"tls.client.trustCertPath={ours.certificate}\ntls.server.mode=enforcing\n"
    )
    with BackgroundCluster(folder / "store", namesrv_settings=tls, **tls) as cluster:
        yield Closed(cluster, client, ours.certificate, file)


@pytest.mark.cell("tls", columns=["ours"])
async def test_a_client_sends_consumes_and_administers_by_tls(closed: Closed) -> None:
    async with Admin(closed.namesrv, tls=closed.file) as admin:
        await admin.create_topic("orders", queues=2)
    async with connect(closed.namesrv, tls=closed.file) as mq:
        sent = [await mq.send("orders", f"{number}".encode()) for number in range(10)]
        assert {result.queue.queue_id for result in sent} == {0, 1}
        got = set()
        async with mq.subscribe("orders", group="billing", start="earliest") as consumer:
            async for message in consumer:
                got.add(bytes(message.body))
                message.ack()
                if len(got) == 10:
                    break
    assert got == {f"{number}".encode() for number in range(10)}


@pytest.mark.parametrize(
    ("tls", "why"),
    [
        (False, "if it takes encrypted connections only, connect by TLS"),
        (True, "certificate is refused: .*; trust the one that signed it"),
    ],
)
async def test_who_comes_otherwise_is_told_why_not(closed: Closed, tls: Tls, why: str) -> None:
    settings = ProducerSettings(timeout_s=1.0, retries=0)
    async with connect(closed.namesrv, tls=tls, settings=settings) as mq:
        with pytest.raises(SparrowError, match=why):
            await mq.send("orders", b"x")


async def test_who_has_no_certificate_of_its_own_is_not_let_in(closed: Closed, tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(f"tls.client.trustCertPath={closed.trust}\n")
    settings = ProducerSettings(timeout_s=1.0, retries=0)
    async with connect(closed.namesrv, tls=file, settings=settings) as mq:
        with pytest.raises(
            SparrowError,
            match=r"it demands a certificate of its clients\); give one by tls\.client\.certPath",
        ):
            await mq.send("orders", b"x")


def test_the_commands_go_in_by_a_file_of_tls(closed: Closed) -> None:
    asked = ["topic", "list", "-n", closed.namesrv]
    refused = CliRunner().invoke(main, asked)
    assert refused.exit_code == 1 and "connect by TLS (tls=True, or --tls)" in refused.stderr
    strange = CliRunner().invoke(main, [*asked, "--tls"])
    assert strange.exit_code == 1 and "certificate is refused" in strange.stderr
    for options, env in (
        (["--tls-config", str(closed.file)], {}),
        ([], {"SPARROWMQ_TLS_CONFIG": str(closed.file)}),
    ):
        done = CliRunner().invoke(main, [*asked, *options, "--timeout", "10"], env=env)
        assert done.exit_code == 0, done.stderr


def test_spark_reads_by_tls(closed: Closed) -> None:
    tls = {
        "tls.enable": "true",
        "tls.client.trustCertPath": str(closed.trust),
        "tls.client.certPath": str(closed.client.certificate),
        "tls.client.keyPath": str(closed.client.key),
    }
    given = {"nameServer": closed.namesrv, "topic": "T", "retries": "0"}
    with connect_for_spark(parse(SourceOptions, given | tls)) as network:
        assert network.route_for_sending("T").writable
    strange = parse(SourceOptions, given | {"tls.enable": "true"})
    with connect_for_spark(strange) as network, pytest.raises(SparrowError, match="certificate is refused"):
        network.topics()
    with (
        connect_for_spark(parse(SourceOptions, given)) as network,
        pytest.raises(SparrowError, match="by TLS"),
    ):
        network.topics()
