"""The console's own figures. As a process has one console, they are read of the one that all pages' tests look at."""

import asyncio
import subprocess
import sys
import urllib.request
from contextlib import asynccontextmanager, suppress

import pytest

from sparrowmq.console.cluster_view import ClusterView
from sparrowmq.console.console_metrics import CountedRequests, metrics_port
from sparrowmq.console.troubles import Troubles
from sparrowmq.errors import NetworkError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.remoting.listener import Listener
from tests.broker.metrics.visits import samples, visit
from tests.certificates import authority, signed


async def application(scope, receive, send):
    await send({"type": "http.response.start", "status": int(scope["path"]), "headers": []})


async def receive():
    return {"type": "http.request"}


async def send(message):
    assert message["type"] == "http.response.start"


@asynccontextmanager
async def served(look, requests):
    """Serves the port; gives its address."""
    door = Listener("127.0.0.1", 0, "--metrics-port")
    door.bind()
    port = metrics_port(door, look.servers, requests, lambda: 3, lambda: 5, look.conditions, SystemClock())
    task = asyncio.gather(*(run() for run in port.tasks.values()))
    while not door.is_open:
        await asyncio.sleep(0)
    yield f"127.0.0.1:{door.port}"
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_what_came_and_what_was_asked_is_counted(two, look):
    requests = CountedRequests(application)
    for status in (200, 204, 404):
        await requests({"type": "http", "path": str(status)}, receive, send)
    await look.admin.topics()
    with pytest.raises(NetworkError):
        await look.admin.broker_figures("127.0.0.1:1")
    async with served(look, requests) as address:
        found = await samples(address, "status")
        assert found["sparrowmq_console_requests_total"] == {("2xx",): 2, ("4xx",): 1}
        assert found["sparrowmq_console_sessions"][()] == 3 and found["sparrowmq_console_pages"][()] == 5
        assert found["sparrowmq_console_calls_total"][()] == look.servers.calls >= 2
        assert found["sparrowmq_console_calls_failed_total"][()] == 1
        assert "sparrowmq_loop_lag_seconds_count" in found and "process_resident_memory_bytes" in found
        assert await visit(address, "/healthz") == await visit(address, "/readyz") == (200, "ok\n")


async def test_its_certificate_for_brokers_that_ends_is_a_condition_until_it_is_renewed(two, tmp_path):
    vouching = authority(tmp_path)
    pair, renewed = (signed(tmp_path, name, vouching, days=days) for name, days in (("old", 5), ("new", 300)))
    file = tmp_path / "tls.properties"
    file.write_text(
        f"tls.client.authServer=false\ntls.client.certPath={pair.certificate}\ntls.client.keyPath={pair.key}\n"
    )
    async with ClusterView(two.namesrv, tls=file) as look, served(look, CountedRequests(application)) as address:
        assert look.new_client()._network._pool._tls is look.client._network._pool._tls, "one look serves both"
        status, said = await visit(address, "/readyz")
        assert status == 200 and f"client_certificate: {pair.certificate} ends at " in said
        found = await samples(address, "condition", "severity")
        assert found["sparrowmq_condition"] == {("client_certificate", "critical"): 1}
        troubles = Troubles(look, SystemClock())
        await troubles.poll()
        (trouble,) = troubles.current()
        assert trouble.title == "this console: client_certificate" and "Renew" not in trouble.text
        renewed.key.replace(pair.key)
        renewed.certificate.replace(pair.certificate)
        assert await visit(address, "/readyz") == (200, "ok\n")
        await troubles.poll()
        assert troubles.current() == ()


async def test_without_a_cluster_it_is_healthy_and_not_ready():
    async with ClusterView("127.0.0.1:1") as look, served(look, CountedRequests(application)) as address:
        assert (await visit(address, "/healthz"))[0] == 200
        status, said = await visit(address, "/readyz")
        assert status == 503 and "127.0.0.1:1" in said


@pytest.mark.slow
def test_the_command_says_where_its_metrics_are():
    words = ["console", "-n", "127.0.0.1:1", "--port", "0", "--metrics-port", "0"]
    with subprocess.Popen([sys.executable, "-m", "sparrowmq", *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = process.stdout.readline().split("its metrics at ")[1].strip()
        with urllib.request.urlopen(url, timeout=30) as answer:
            text = answer.read().decode()
        process.terminate()
        assert process.wait(30) == 0
    assert 'sparrowmq_console_sessions{node_type="console"} 0.0' in text
