"""A server speaks to systemd: real processes, and a socket as systemd's."""

import asyncio
import os
import signal
import socket
import time

import psutil
import pytest

from sparrowmq.cli.servers.systemd import ALIVE, READY, STOPPING, Listener, Notifier
from tests.interop.apache import free_ports

LIMIT_S = 30.0


class Systemd:
    """Systemd's end of the socket, with all lines that came."""

    def __init__(self, address):
        self.environment = {"NOTIFY_SOCKET": address.replace("\0", "@")}
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(LIMIT_S)
        self.lines = []

    def next(self):
        """Wait for the next message; returns its lines."""
        self.lines += (lines := self.socket.recv(4096).decode().split("\n"))
        return lines

    def until(self, line):
        while line not in self.next():
            pass

    def empty(self):
        """Forget what came so far."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(4096):
                pass
        except BlockingIOError:
            self.socket.settimeout(LIMIT_S)

    def is_silent(self, for_s):
        self.socket.settimeout(for_s)
        try:
            return not self.socket.recv(4096)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(LIMIT_S)


@pytest.fixture(params=["path", "abstract"])
def systemd(request, tmp_path):
    name = f"\0sparrowmq-test-{os.getpid()}" if request.param == "abstract" else str(tmp_path / "notify")
    listening = Systemd(name)
    yield listening
    listening.socket.close()


def test_a_broker_says_that_it_serves_runs_and_stops(start, broker_args, systemd):
    broker = start(*broker_args, env={**systemd.environment, "WATCHDOG_USEC": "300000"})
    assert systemd.next() == [READY, "STATUS=serves"]
    broker.ready()
    for _ in range(3):
        assert systemd.next() == [ALIVE]
    broker.process.send_signal(signal.SIGTERM)
    systemd.until(STOPPING)
    assert broker.end()[0] == 0


def test_a_hung_server_says_nothing(start, namesrv_args, tmp_path):
    systemd = Systemd(str(tmp_path / "notify"))
    environment = {**systemd.environment, "WATCHDOG_USEC": "300000"}
    process = start(*namesrv_args, env=environment).ready().process
    systemd.until(ALIVE)
    os.kill(process.pid, signal.SIGSTOP)
    while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    systemd.empty()
    assert systemd.is_silent(for_s=1.5)
    os.kill(process.pid, signal.SIGCONT)
    assert systemd.next() == [ALIVE]
    systemd.socket.close()  # a server goes on without systemd
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(LIMIT_S) == 0


@pytest.fixture
def namesrv_args(tmp_path):
    return ["namesrv", "--set", "listenPort=0", "--set", f"kvConfigPath={tmp_path}/kvConfig.json"]


def test_the_status_names_what_keeps_a_broker_from_its_work(start, broker_args, tmp_path):
    systemd = Systemd(str(tmp_path / "notify"))
    [nothing] = free_ports(1)
    environment = {**systemd.environment, "WATCHDOG_USEC": "300000"}
    start(*broker_args, "-n", f"127.0.0.1:{nothing}", env=environment)
    while not any(line.startswith("STATUS=not ready: ") for line in systemd.lines):
        systemd.next()
    systemd.socket.close()


@pytest.mark.slow
def test_of_several_brokers_one_that_hangs_is_started_again(start, tmp_path):
    systemd = Systemd(str(tmp_path / "notify"))
    sets = {"listenPort": 0, "fastListenPort": "off", "haListenPort": "off", "brokerName": "b"}
    sets["storePathRootDir"] = tmp_path / "store"
    changes = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    environment = {**systemd.environment, "WATCHDOG_USEC": "3000000"}
    process = start("broker", "--brokers", "2", *changes, env=environment).process
    assert systemd.next() == [READY, "STATUS=2 brokers serve"]
    said = [process.stdout.readline() for _ in range(2)]
    assert all("boot success" in line for line in said), "before, it was not ready"
    hung, other = psutil.Process(process.pid).children()
    hung.suspend()
    assert "boot success" in process.stdout.readline()
    assert not hung.is_running() and other.is_running()
    systemd.empty()
    assert systemd.next() == [ALIVE]
    process.terminate()
    systemd.until(STOPPING)
    _, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and f"process {hung.pid} hangs" in log
    systemd.socket.close()


def test_only_the_process_that_is_meant_takes_the_watchdog_and_its_children_inherit_nothing():
    for pid, watchdog_s in ((str(os.getpid()), 60.0), ("1", 0.0), ("", 60.0)):
        environment = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": pid, "HOME": "/h"}
        notifier = Notifier.from_environment(environment)
        assert (bool(notifier), notifier.watchdog_s, environment) == (True, watchdog_s, {"HOME": "/h"})
    assert not Notifier.from_environment({})


def test_a_listener_knows_who_speaks():
    listener = Listener()
    Notifier.from_environment(dict(listener.environment(2.0))).say(READY, "STATUS=x")
    assert list(listener.receive()) == [(os.getpid(), [READY, "STATUS=x"])]
    assert listener.environment(2.5)["WATCHDOG_USEC"] == "2500000" and list(listener.receive()) == []
    listener.close()


async def test_a_status_is_one_line_and_sent_again_when_it_changes(tmp_path):
    systemd = Systemd(str(tmp_path / "notify"))
    notifier = Notifier(str(tmp_path / "notify"), 0.03)
    text = "a\nb"
    notifier.report_serving(lambda: text)
    assert systemd.next() == [READY, "STATUS=a b"]
    text = "c"
    assert await asyncio.to_thread(systemd.next) == [ALIVE, "STATUS=c"]
    notifier.keep_status()
    text = "d"
    systemd.empty()
    assert [await asyncio.to_thread(systemd.next) for _ in range(2)] == [[ALIVE], [ALIVE]]
    systemd.socket.close()
