"""The console as a process, by its command."""

import re
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from urllib.parse import urlsplit

import pytest

from sparrowmq.remoting.log_limit import LINES
from tests.certificates import authority, signed


@pytest.mark.slow
def test_a_port_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["console", "-n", "127.0.0.1:1", "--port", str(port)]
        run = subprocess.run([sys.executable, "-m", "sparrowmq", *words], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert f"the console cannot listen on 127.0.0.1:{port} (Address already in use); choose another" in run.stderr


@pytest.mark.slow
def test_it_serves_without_a_cluster_limits_lines_of_strangers_and_stops_in_order(tmp_path):
    words = ["console", "-n", "127.0.0.1:1", "--port", "0", "--prefix", "/mq"]
    with subprocess.Popen(
        [sys.executable, "-m", "sparrowmq", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout and process.stderr
        line = process.stdout.readline()
        assert line.startswith("the console is at http://127.0.0.1:") and "/mq/ (user admin, password " in line
        with urllib.request.urlopen(line.split()[4] + "healthz", timeout=30) as answer:
            assert answer.read() == b"ok\n"
        for _ in range(LINES + 5):
            with socket.create_connection(("127.0.0.1", urlsplit(line.split()[4]).port), timeout=30) as stranger:
                stranger.sendall(b"no HTTP\r\n\r\n")
                assert stranger.recv(100).startswith(b"HTTP/1.1 400")
        process.terminate()
        assert process.wait(30) == 0
        assert process.stderr.read() == LINES * "WARNING uvicorn.error: Invalid HTTP request received.\n"
    assert list(tmp_path.iterdir()) == [], "it keeps nothing where it was started"


@pytest.mark.slow
def test_its_certificate_that_ends_is_a_condition_until_it_is_renewed(tmp_path):
    vouching = authority(tmp_path)
    pair, renewed = (signed(tmp_path, name, vouching, days=days) for name, days in (("old", 5), ("new", 300)))
    words = ["console", "-n", "127.0.0.1:1", "--port", "0", "--metrics-port", "0"]
    files = ["--certificate", str(pair.certificate), "--key", str(pair.key)]
    with subprocess.Popen(
        [sys.executable, "-m", "sparrowmq", *words, *files], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            metrics = line.split("its metrics at ")[1].strip()
            (port,) = re.findall(r"https://127.0.0.1:(\d+)/", line)
            assert is_ending(metrics)
            trust = ssl.create_default_context(cafile=vouching.certificate)
            health = f"https://127.0.0.1:{port}/healthz"
            with urllib.request.urlopen(health, timeout=30, context=trust) as answer:
                assert answer.read() == b"ok\n"
            renewed.key.replace(pair.key)
            new = renewed.certificate.read_text()
            renewed.certificate.replace(pair.certificate)
            deadline = time.monotonic() + 30
            while is_ending(metrics) and time.monotonic() < deadline:
                time.sleep(0.2)
            assert ssl.get_server_certificate(("127.0.0.1", int(port))).split() == new.split()
        finally:
            process.terminate()


def is_ending(metrics: str) -> bool:
    with urllib.request.urlopen(metrics, timeout=30) as answer:
        return 'sparrowmq_condition{condition="certificate"' in answer.read().decode()
