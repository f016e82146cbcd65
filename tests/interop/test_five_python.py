"""Apache's own Python client of RocketMQ 5, at our broker's gRPC port and at `mqproxy` in front of two brokers."""

import asyncio
import json
from pathlib import Path

import pytest

from sparrowmq import connect
from sparrowmq.mqproxy.proxy import Proxy, ProxySettings
from sparrowmq.testing import Cluster
from tests.interop.kits import five_python

PUPPET = Path(__file__).parent / "five" / "puppet.py"
EXPECTED = {
    "sends_and_receives": [
        ["later", "a", [], {}],
        *([f"m{n}", "a", [f"k{n}"], {"own": "x"}] for n in range(3)),
    ],
    "pushes": ["fifo"],
    "ends_transactions": [20000, True],
    "recalls": True,
}


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("task", EXPECTED)
async def test_official_client_of_5_works_unchanged(tmp_path, task):
    python = five_python()
    cluster = Cluster(tmp_path, grpc_port=0, transaction_timeout_ms=1000, transaction_interval_ms=1000)
    async with cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("orders", queues=2)
        assert await done(python, cluster.brokers[0].grpc_address, task, tmp_path) == EXPECTED[task]


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("task", EXPECTED)
async def test_official_client_of_5_works_through_mqproxy(tmp_path, task):
    python = five_python()
    cluster = Cluster(tmp_path, brokers=2, transaction_timeout_ms=1000, transaction_interval_ms=1000)
    async with (
        cluster,
        connect(cluster.namesrv) as mq,
        Proxy(ProxySettings(port=0), cluster.namesrv) as proxy,
    ):
        await mq.admin.create_topic("orders", queues=1)
        assert await done(python, proxy.address, task, tmp_path) == EXPECTED[task]


async def done(python, address, task, home):
    """What the client prints of a task."""
    child = await asyncio.create_subprocess_exec(
        *(python, PUPPET, address, task),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"HOME": str(home)},
    )
    said, problems = await asyncio.wait_for(child.communicate(), 100)
    assert child.returncode == 0, problems.decode()
    return json.loads(said)
