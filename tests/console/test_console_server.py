"""The console as a process, by its command."""

import socket
import subprocess
import sys
import urllib.request


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["console", "-n", "127.0.0.1:1", "--port", str(port)]
        run = subprocess.run(
            [sys.executable, "-m", "sparrowmq", *words], capture_output=True, text=True, timeout=60
        )
    assert run.returncode == 2
    assert (
        f"the console cannot listen on 127.0.0.1:{port} (Address already in use); choose another"
        in run.stderr
    )


def test_it_serves_without_a_cluster_and_stops_in_order(tmp_path):
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
        assert (
            line.startswith("the console is at http://127.0.0.1:") and "/mq/ (user admin, password " in line
        )
        with urllib.request.urlopen(line.split()[4] + "healthz", timeout=30) as answer:
            assert answer.read() == b"ok\n"
        process.terminate()
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
    assert list(tmp_path.iterdir()) == [], "it keeps nothing where it was started"
