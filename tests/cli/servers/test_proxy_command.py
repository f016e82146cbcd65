"""`mqproxy` as a process, and the command lines that it refuses."""

import asyncio
import os
import subprocess
import sys
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from sparrowmq import connect
from sparrowmq.cli.servers.proxy import proxy
from sparrowmq.testing import Cluster
from tests.broker.grpc_port.attacks import OPERATOR, USERS, add_users, check_rights
from tests.broker.grpc_port.grpc_client import channel_to
from tests.certificates import authority, signed


def test_it_says_where_it_serves_and_stops_by_a_signal():
    command = [sys.executable, "-m", "sparrowmq", "proxy", "-n", "127.0.0.1:1", "--port", "0"]
    command += ["--metrics-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("the proxy serves clients of RocketMQ 5 at 127.0.0.1:")
    with urlopen(line.split()[-1], timeout=30) as page:
        assert b"sparrowmq_" in page.read()
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_its_log_has_the_begin_and_the_end_of_a_condition(tmp_path):
    vouching = authority(tmp_path)
    pair, renewed = (signed(tmp_path, name, vouching, days=days) for name, days in (("old", 5), ("new", 300)))
    command = [sys.executable, "-m", "sparrowmq", "proxy", "-n", "127.0.0.1:1", "--port", "0"]
    command += ["--certificate", str(pair.certificate), "--key", str(pair.key)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "condition certificate: " in line:
                renewed.key.replace(pair.key)
                renewed.certificate.replace(pair.certificate)
            if "condition certificate is over" in line:
                break
        process.terminate()
    assert process.returncode == 0


async def test_process_with_an_account_listens_for_others_and_asks_them_for_theirs(tmp_path):
    async with Cluster(tmp_path, **USERS) as running:
        await add_users(running.namesrv, running.brokers[0].address)
        async with connect(running.namesrv, credentials=OPERATOR) as mq:
            await mq.admin.create_topic("orders", queues=1)
        words = ["proxy", "-n", running.namesrv, "--port", "0", "--host", "0.0.0.0", "--address", "127.0.0.1"]
        account = {"ROCKETMQ_ACCESS_KEY": "operator", "ROCKETMQ_SECRET_KEY": "abcdefgh"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sparrowmq", *words),
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | account,
        )
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().split()[-1]
        async with channel_to(address) as channel:
            await check_rights(channel)
        process.terminate()
        assert await process.wait() == 0


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("--host 0.0.0.0", "--insecure"),
        ("--access-key a", "secret"),
        ("--certificate /nowhere/cert.pem", "--key"),
        ("--certificate /nowhere/cert.pem --key /nowhere/key.pem --port 0", "/nowhere/cert.pem"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_advice(words, advice):
    found = CliRunner().invoke(proxy, [*words.split(), "-n", "127.0.0.1:1"])
    assert found.exit_code == 2 and advice in found.stderr
