"""`mqproxy` as a process, and the command lines that it refuses."""

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from sparrowmq.cli.servers.proxy_command import proxy


def test_it_says_where_it_serves_and_stops_by_a_signal():
    command = [sys.executable, "-m", "sparrowmq", "proxy", "-n", "127.0.0.1:1", "--port", "0"]
    environment = os.environ | {"SPARROWMQ_SOURCE": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("the proxy serves clients of RocketMQ 5 at 127.0.0.1:")
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("--host 0.0.0.0", "--insecure"),
        ("--access-key a --secret-key b", "grpcServerPort"),
        ("--certificate /nowhere/cert.pem", "--key"),
        ("--certificate /nowhere/cert.pem --key /nowhere/key.pem --port 0", "/nowhere/cert.pem"),
    ],
)
def test_a_wrong_command_line_ends_with_2_and_advice(words, advice):
    found = CliRunner().invoke(proxy, [*words.split(), "-n", "127.0.0.1:1"])
    assert found.exit_code == 2 and advice in found.stderr
