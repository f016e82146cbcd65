"""The folder of the history: the usual one, one that is named, and none."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.console.history import lock_history_folder
from sparrowmq.errors import ConfigError
from tests.interop.servers import REPOSITORY

CLUSTER = "127.0.0.1:9876"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "sparrowmq" / "console"


def test_each_cluster_has_a_folder_of_its_own_that_only_the_user_reads(state: Path) -> None:
    with (
        lock_history_folder(None, "b;a:9877") as first,
        lock_history_folder(None, CLUSTER) as second,
        lock_history_folder(None, "http://c/nsaddr") as third,
    ):
        assert first == state / "a_9877,b_9876"
        assert second == state / "127.0.0.1_9876" and third == state / "http___c_nsaddr"
        assert stat.S_IMODE(os.stat(state / "127.0.0.1_9876").st_mode) == 0o700
    with lock_history_folder(None, "a:9877;b:9876") as again:
        assert again == first, "the order of the addresses does not count"


def test_many_addresses_make_no_name_that_is_too_long(state: Path) -> None:
    names = [f"name-server-{number}.example.com" for number in range(20)]
    with lock_history_folder(None, ";".join(names)) as one, lock_history_folder(None, ";".join(names[:19])) as other:
        assert one is not None and other is not None and one != other


def test_without_the_variable_it_is_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    with lock_history_folder(None, CLUSTER) as folder:
        assert folder == tmp_path / ".local/state/sparrowmq/console/127.0.0.1_9876"


def test_a_second_console_of_a_cluster_leaves_the_files_alone(state: Path, caplog: pytest.LogCaptureFixture) -> None:
    with lock_history_folder(None, CLUSTER) as first:
        with lock_history_folder(None, CLUSTER) as second:
            assert first is not None and second is None
        assert f"not kept in {first} (another console keeps its history there)" in caplog.text
        with (
            pytest.raises(ConfigError, match=r"another console .*name another folder"),
            lock_history_folder(str(first), CLUSTER),
        ):
            pass
    caplog.clear()
    with lock_history_folder(None, CLUSTER) as third:
        assert third == first and "not kept" not in caplog.text


@pytest.mark.parametrize(
    ("variable", "why"),
    [
        ("/dev/null/state", "it cannot be written to: Not a directory"),
        ("state", "this user has no home"),
    ],
)
def test_a_home_that_cannot_be_used_is_named_once_and_ends_no_console(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str, why: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", variable)
    with lock_history_folder(None, CLUSTER) as folder:
        assert folder is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert why in record.message and "by --history FOLDER, or --history off" in record.message


def test_a_user_without_a_home_is_told_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as it does for a user id without an entry
    with lock_history_folder(None, CLUSTER) as folder:
        assert folder is None and "this user has no home" in caplog.text


def test_a_folder_can_be_named_and_the_history_switched_off(
    state: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with lock_history_folder(str(tmp_path / "named"), CLUSTER) as named, lock_history_folder("off", CLUSTER) as none:
        assert named == tmp_path / "named" and none is None
    assert not state.exists() and not caplog.text


@pytest.mark.slow
def test_the_command_keeps_its_history_unless_it_is_off(state: Path) -> None:
    folder = state / "127.0.0.1_1"
    folder.mkdir(parents=True)
    (folder / "last-hour.json").write_text("damaged")
    for words, reads in (((), True), (("--history", "off"), False)):
        command = [sys.executable, "-m", "sparrowmq", "console", "-n", "127.0.0.1:1", "--port", "0", *words]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.readline()
            said = process.stderr.readline() if reads else ""
            process.terminate()
            assert process.wait(30) == 0
            assert ("the figures of the last hour are lost" in said + process.stderr.read()) is reads
            assert (folder / "lock").exists() is reads
        (folder / "lock").unlink(missing_ok=True)
