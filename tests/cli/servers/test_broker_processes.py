"""Several brokers as one service: what each is told, that all serve, that who is killed comes back, and the end."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.cli.servers.broker_processes import BrokerProcesses, broker_command, derived_settings

GIVEN: dict[str, Any] = {
    "file": None,
    "namesrv": None,
    "log_size": None,
    "log_file": None,
    "insecure": False,
    "verbose": False,
    "log_format": "text",
    "log_keep": 5,
    "changes": (),
    "pairs": (),
    "enable_proxy": False,
    "proxy_file": None,
}


def test_each_has_a_name_ports_and_folders_of_its_own():
    settings = BrokerSettings(name="here", port=10911, store_path=Path("/data/store"))
    assert derived_settings(settings, 0)["listenPort"] == "10911"
    assert derived_settings(settings, 2) == {
        "brokerName": "here-2",
        "storePathRootDir": "/data/store-2",
        "listenPort": "10931",
        "metricsPromExporterPort": "5559",
    }
    more = BrokerSettings(port=0, ha_port=10912, commit_log_path=Path("/fast/log"))
    found = derived_settings(more, 1)
    assert (found["haListenPort"], found["storePathCommitLog"]) == ("10922", "/fast/log-1")
    assert "listenPort" not in found


def test_what_was_typed_goes_on_to_each_and_what_is_its_own_comes_last():
    given = GIVEN | {
        "file": "b.conf",
        "namesrv": "ns:9876",
        "changes": ("brokerName=x",),
        "log_file": "/l",
        "verbose": True,
    }
    words = broker_command(BrokerSettings(name="x"), given, 1)
    assert words[:6] == [sys.executable, "-m", "sparrowmq", "broker", "--ends-with-stdin", "-c"]
    assert (
        words[words.index("-n") + 1] == "ns:9876" and words[words.index("--log-file") + 1] == "/l-1" and "-v" in words
    )
    changes = [word for word in words if word.startswith("brokerName=")]
    assert changes == ["brokerName=x", "brokerName=x-1"]


class HandClock:
    """Seconds that go on when a test says so."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def wait_until(holds: Any) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_that_ends_is_started_again_and_ever_later_if_it_ends_at_once(caplog):
    clock = HandClock()
    brokers = BrokerProcesses([[sys.executable, "-c", "raise SystemExit(1)"]], clock)
    (only,) = brokers._brokers
    for pause_s in (1.0, 2.0, 4.0):
        assert brokers.start_due() == 0 and only.process is not None
        only.process.wait()
        assert brokers.start_due() == 0 and only.process is None
        assert f"ended with 1; it starts again in {pause_s:g} s" in caplog.text
        clock.s += pause_s - 0.1
        assert brokers.start_due() == 0 and only.process is None
        clock.s += 0.1
    brokers.end()


def ended(brokers: BrokerProcesses, number: int, clock: HandClock, after_s: float = 0.0) -> int:
    """What a look says once the process of one has ended by itself."""
    process = brokers._brokers[number].process
    assert process is not None
    process.wait()
    clock.s += after_s
    return brokers.start_due()


def test_settings_that_are_wrong_later_end_none_of_the_others(tmp_path, caplog):
    clock, wrong = HandClock(), tmp_path / "wrong"
    of_file = f"import os, time; os.path.exists({str(wrong)!r}) and os._exit(2); time.sleep(60)"
    brokers = BrokerProcesses(
        [[sys.executable, "-c", "import time; time.sleep(60)"], [sys.executable, "-c", of_file]], clock
    )
    assert brokers.start_due() == 0
    well, broken = brokers._brokers
    assert well.process is not None and broken.process is not None
    wrong.touch()
    broken.process.kill()
    assert ended(brokers, 1, clock) == 0 and "by SIGKILL; it starts again in 1 s" in caplog.text
    for pause_s in (1, 2):
        clock.s += pause_s
        assert brokers.start_due() == 0
        assert ended(brokers, 1, clock) == 0
        assert "with 2, as its settings are wrong now (it said which)" in caplog.text
        assert f"it starts again in {2 * pause_s} s" in caplog.text
    wrong.unlink()
    clock.s += 4
    assert brokers.start_due() == 0
    assert [each.process.poll() for each in (well, broken) if each.process is not None] == [None, None]
    brokers.end()


def test_one_that_ran_for_long_ends_no_others_by_what_it_finds_wrong_then():
    clock = HandClock()
    brokers = BrokerProcesses([[sys.executable, "-c", "raise SystemExit(2)"]], clock)
    brokers.start_due()
    assert ended(brokers, 0, clock, after_s=60) == 0
    brokers.end()


def test_wrong_settings_end_all():
    words = [[sys.executable, "-c", f"raise SystemExit({status})"] for status in (1, 2)]
    brokers = BrokerProcesses(words)
    brokers.start_due()
    for broker in brokers._brokers:
        assert broker.process is not None
        broker.process.wait()
    assert brokers.start_due() == 2
    brokers.end()


def test_an_index_that_was_cut_is_named_as_a_cause(caplog):
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGBUS)"
    brokers = BrokerProcesses([[sys.executable, "-c", kill]])
    brokers.start_due()
    (only,) = brokers._brokers
    assert only.process is not None
    only.process.wait()
    brokers.start_due()
    assert "ended by SIGBUS, as when a file of its index was cut" in caplog.text


@pytest.fixture
def two_of(start, tmp_path):
    sets = {"listenPort": 0, "fastListenPort": "off", "haListenPort": "off", "brokerName": "b"}
    sets |= {"mappedFileSizeCommitLog": "1m", "maxHashSlotNum": 5000, "maxIndexNum": 20000}
    sets["storePathRootDir"] = tmp_path / "store"
    changes = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    return lambda: start("broker", "--brokers", "2", *changes)


@pytest.fixture
def two(two_of):
    return two_of()


def names(process, count):
    """The names of that many brokers, as they say that they serve."""
    text, descriptor = "", process.stdout.fileno()
    while text.count("boot success") < count:
        assert select.select([descriptor], [], [], 30)[0], text
        text += os.read(descriptor, 4096).decode()
    return set(re.findall(r"broker\[([^,]+),", text))


@pytest.mark.slow
def test_one_that_is_killed_comes_back_while_the_other_serves_and_a_signal_ends_all_in_order(two, tmp_path):
    process = two.process
    assert names(process, 2) == {"b-0", "b-1"}
    children = psutil.Process(process.pid).children()
    assert len(children) == 2 and {path.name for path in tmp_path.glob("store-*")} == {"store-0", "store-1"}
    killed = next(child for child in children if "brokerName=b-1" in child.cmdline())
    killed.kill()
    assert names(process, 1) == {"b-1"}
    assert [child.is_running() for child in children if child != killed] == [True]
    status, log = two.stop()
    assert status == 0 and "ended by SIGKILL; it starts again in 1 s" in log
    assert not any((tmp_path / f"store-{number}" / "abort").exists() for number in (0, 1))


@pytest.mark.slow
def test_brokers_end_in_order_when_what_keeps_them_is_killed(two, tmp_path):
    assert names(two.process, 2) == {"b-0", "b-1"}
    children = psutil.Process(two.process.pid).children()
    os.kill(two.process.pid, signal.SIGKILL)
    wait_until(lambda: not any(child.is_running() for child in children))
    assert not any((tmp_path / f"store-{number}" / "abort").exists() for number in (0, 1))


@pytest.mark.slow
def test_a_start_waits_for_a_halted_broker_of_an_earlier_start_and_names_it(two_of, tmp_path):
    first = two_of()
    assert names(first.process, 2) == {"b-0", "b-1"}
    children = psutil.Process(first.process.pid).children()
    halted = next(child for child in children if "brokerName=b-1" in child.cmdline())
    halted.suspend()
    first.process.kill()
    second = two_of()
    try:
        assert names(second.process, 1) == {"b-0"}
        assert second.process.poll() is None
    finally:
        halted.resume()
    assert names(second.process, 1) == {"b-1"}
    status, log = second.stop()
    assert status == 0 and log.count(f"store-1 is in use by process {halted.pid}") == 1


def test_who_holds_a_store_is_said_again_after_a_minute(tmp_path, caplog):
    clock, lock = HandClock(), tmp_path / "lock"
    locks = "f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    program = [sys.executable, "-c", f"import fcntl, sys; {locks}", str(lock)]
    with subprocess.Popen(program, stdin=-1, stdout=-1) as holder:
        assert holder.stdout is not None and holder.stdin is not None and holder.stdout.readline()
        brokers = BrokerProcesses([[sys.executable, "-c", ""]], clock, [str(tmp_path)])
        for at_s, count in ((0, 1), (30, 1), (60, 2)):
            clock.s = at_s
            assert brokers.start_due() == 0 and brokers._brokers[0].process is None
            assert caplog.text.count(f"is in use by process {holder.pid}") == count
        holder.stdin.close()
    assert brokers.start_due() == 0 and brokers._brokers[0].process is not None
    brokers.end()
