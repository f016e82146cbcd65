"""`sparrowmq dev`, as somebody starts it who wants to try something."""

import json
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from sparrowmq import sync
from tests.interop.apache import free_ports


@pytest.fixture
def dev():
    """`dev(*ARGS)`: the process, and what it said when it was ready."""
    started = []

    def begin(*args):
        command = [sys.executable, "-m", "sparrowmq", "dev", "--port", "0", *args]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout
        return process, process.stdout.readline()

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def stop(process, number=signal.SIGINT):
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    return process.returncode, said


def test_one_line_of_json_tells_a_script_where_it_is(dev):
    process, line = dev("--json", "--topic", "orders", "--topic", "bills")
    ready = json.loads(line)
    assert ready["topics"] == ["orders", "bills"]
    with sync.connect(ready["namesrv"]) as mq:
        assert {"orders", "bills"} <= set(mq.admin.topics())
        assert mq.send("orders", b"hello").offset == 0
    assert stop(process) == (0, "")


def test_a_person_is_told_what_to_paste(dev):
    process, line = dev("--topic", "orders")
    (namesrv,) = re.findall(r"name server (\S+),", line)
    said = line + "".join(iter(process.stdout.readline, "\n")) + "".join(process.stdout.readline() for _ in range(7))
    for who in ("shell", "Python", "Java", "Go", "Node", "Spark"):
        (told,) = [each for each in said.splitlines() if each.split()[:1] == [who]]
        assert namesrv in told
    assert re.search(r'  5.x      ClientConfiguration\("127.0.0.1:\d+", Credentials\(\)\)', said)
    assert "gone at the end (--store DIR keeps them)" in said


@pytest.mark.slow
def test_messages_stay_where_a_folder_is_given(dev, tmp_path):
    for offset in (0, 1):
        process, line = dev("--json", "--store", str(tmp_path / "kept"), "--topic", "t")
        with sync.connect(json.loads(line)["namesrv"]) as mq:
            assert mq.send("t", b"x", fifo="one queue").offset == offset
        assert stop(process, signal.SIGTERM)[0] == 0


def test_without_a_folder_nothing_stays(dev, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    process, _ = dev("--json")
    assert len(list(tmp_path.iterdir())) == 1
    stop(process)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--topic", "no blanks please"], "no blanks please"),
        (["--set", "flushDiskType=NEVER"], "flushDiskType"),
        (["--set", "flushDiskType"], "is not key=value"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(dev, args, words):
    process, _ = dev(*args)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2 and words in said and "Traceback" not in said


def test_a_port_that_is_taken_is_told(dev):
    _, line = dev("--json")
    port = json.loads(line)["namesrv"].rpartition(":")[2]
    other, _ = dev("--port", port)
    _, said = other.communicate(timeout=30)
    assert other.returncode == 2 and f"127.0.0.1:{port}" in said and "Traceback" not in said


def test_a_brokers_port_can_be_chosen(dev):
    port = free_ports(1)[0]
    _, line = dev("--json", "--broker-port", str(port))
    assert json.loads(line)["broker"] == f"127.0.0.1:{port}"


@pytest.mark.slow
def test_a_console_shows_it_if_one_wants(dev, tmp_path):
    kept = tmp_path / "kept"
    (kept / "console").mkdir(parents=True)
    (kept / "console" / "last-hour.json").write_text("damaged")
    process, line = dev("--json", "--console", "--console-port", "0", "--store", str(kept))
    ready = json.loads(line)
    with urllib.request.urlopen(ready["console"] + "login", timeout=30) as page:
        assert b"Password" in page.read()
    assert ready["user"] == "admin" and len(ready["password"]) >= 12
    status, said = stop(process)
    assert status == 0 and "the figures of the last hour are lost" in said, "they are kept beside the messages"
