"""What the metrics of a server say of its port: connections, bytes, refusals, certificates."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.cli.secure import CertificateFiles, make_authority, sign
from sparrowmq.errors import AccessDenied, RemoteError
from sparrowmq.protocol.requests.admin_headers import DeleteTopic
from sparrowmq.remoting.tls.tls_settings import TlsMode
from sparrowmq.testing import Cluster
from tests.auth.asked import SAMPLE
from tests.broker.live import live_broker, send_request
from tests.broker.metrics.visits import ON, Samples, samples

DAY_S = 86_400


async def figures(broker: Any, *labels: str) -> Samples:
    return await samples(broker.metrics_address, *labels)


async def test_bytes_count_also_those_of_connections_that_have_ended(tmp_path: Path) -> None:
    async with live_broker(tmp_path, **ON) as live:
        body = b"x" * 100_000
        await live.session.call(send_request("t"), body)
        before = await figures(live.broker)
        assert before["sparrowmq_network_received_bytes_total"][()] > 100_000
        assert 0 < before["sparrowmq_network_sent_bytes_total"][()] < 50_000
        assert before["sparrowmq_connections"][()] >= 1
        live.session.close()
        while live.broker._server.sessions:
            await asyncio.sleep(0.01)
        after = await figures(live.broker)
        assert after["sparrowmq_connections"] == {(): 0}
        for name in ("sparrowmq_network_received_bytes_total", "sparrowmq_network_sent_bytes_total"):
            assert after[name][()] >= before[name][()], name
        assert after["sparrowmq_connections_limit"][()] > 100


async def test_denials_count_as_denials_and_not_as_system_errors(tmp_path: Path) -> None:
    (tmp_path / "acl.yml").write_text(SAMPLE)
    settings: dict[str, Any] = {"acl": True, "acl_file": tmp_path / "acl.yml"}
    async with live_broker(tmp_path / "stores", **settings, **ON) as live:
        for _ in range(3):
            with pytest.raises(AccessDenied) as denied:
                await live.session.call(send_request("topicB"))
            assert denied.value.code == 1, "clients of 4.9 know no other"
        found = await figures(live.broker, "reason", "request_code", "response_code")
        answers = found["rocketmq_rpc_latency_milliseconds_count"]
        assert answers[("send_message_v2", "access_denied")] == 3
        assert ("send_message_v2", "system_error") not in answers
        assert found["sparrowmq_requests_refused_total"][("access_denied",)] == 3
        assert found["sparrowmq_denials_total"][("unknown_account",)] == 3


async def test_errors_count_by_their_reason_and_reasons_that_did_not_occur_are_0(tmp_path: Path) -> None:
    async with live_broker(tmp_path, **ON) as live:
        with pytest.raises(RemoteError):
            await live.session.call(DeleteTopic("no such\nname"))
        refused = (await figures(live.broker, "reason"))["sparrowmq_requests_refused_total"]
        assert refused[("disk_full",)] == refused[("internal_error",)] == 0
        assert sum(refused.values()) == 1


async def test_connections_above_the_limit_and_without_the_demanded_tls_count(tmp_path: Path) -> None:
    async with Cluster(tmp_path, tls_mode=TlsMode.DISABLED, **ON) as cluster:
        broker = cluster.brokers[0]
        host, _, port = broker.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\x16\x03\x01\x00\x05hello")
        assert await reader.read() == b""
        writer.close()
        server = broker._server
        server._limited_sessions._max_sessions = len(server.sessions)
        reader, writer = await asyncio.open_connection(host, int(port))
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        refused = (await figures(broker, "reason"))["sparrowmq_connections_refused_total"]
        assert refused == {("limit",): 1, ("quota",): 0, ("tls",): 1}


async def test_the_end_of_certificates_is_shown_by_brokers_and_name_servers(tmp_path: Path) -> None:
    authority, pair, own = (
        CertificateFiles(tmp_path / f"{name}.pem", tmp_path / f"{name}.key") for name in ("ca", "server", "client")
    )
    make_authority(authority, "ca", 30)
    sign(pair, "server", ("127.0.0.1",), authority, 20)
    tls: dict[str, Any] = {"tls_mode": TlsMode.PERMISSIVE, "certificate": pair.certificate, "key": pair.key}
    sign(own, "broker", (), authority, 10)
    client: dict[str, Any] = {
        "client_certificate": own.certificate,
        "client_key": own.key,
        "client_trust": authority.certificate,
    }
    name = "sparrowmq_certificate_end_timestamp_seconds"
    async with Cluster(
        tmp_path / "stores", namesrv_settings=tls | ON, tls_enabled=True, **tls, **client, **ON
    ) as cluster:
        of_broker = (await figures(cluster.brokers[0], "use"))[name]
        of_namesrv = (await samples(cluster._namesrv.metrics_address, "use"))[name]
        conditions = (await figures(cluster.brokers[0], "condition", "severity"))["sparrowmq_condition"]
    now = time.time()
    assert of_broker == {
        ("server",): pytest.approx(now + 20 * DAY_S, abs=DAY_S),
        ("client",): pytest.approx(now + 10 * DAY_S, abs=DAY_S),
    }
    assert of_namesrv == {("server",): of_broker[("server",)]}
    assert conditions == {("client_certificate", "critical"): 1}


async def test_a_server_without_certificates_shows_no_end(tmp_path: Path) -> None:
    async with Cluster(tmp_path, **ON) as cluster:
        assert "sparrowmq_certificate_end_timestamp_seconds" not in await figures(cluster.brokers[0])
