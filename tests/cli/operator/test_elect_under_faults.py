"""`sparrowmq cluster elect`, in a group of real processes whose etcd has lost its data, while the member is unwell."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from sparrowmq.broker.failover.etcd import Etcd
from sparrowmq.loop.clock import SystemClock
from tests.crash.not_here import skipped_without
from tests.crash.small_disk import SmallDisk
from tests.interop.apache import free_ports
from tests.interop.etcd import LiveEtcd, needs_etcd
from tests.interop.servers import REPOSITORY, OurBroker, OurNamesrv

pytestmark = [needs_etcd, pytest.mark.slow]

_DISK_BYTES: Final = 64 << 20
_LIMIT_S: Final = 60.0


class Group:
    """Two members without a master: each was part of an epoch that etcd does not know any more."""

    def __init__(self, stack: ExitStack, first: Path, second: Path) -> None:
        self._etcd = stack.enter_context(LiveEtcd())
        self._namesrv = stack.enter_context(OurNamesrv()).address
        self.members = {
            number: stack.enter_context(OurBroker(self._namesrv, place / "store", self._settings(number)))
            for number, place in ((1, first), (2, second))
        }
        self.until(lambda: [1, 2] in self.in_sync(), "both members are in sync")
        for each in self.members.values():
            each.kill()
        self._etcd.kill()
        shutil.rmtree(self._etcd.home / "data")
        self._etcd.restart()
        for each in self.members.values():
            stack.enter_context(each)
        lost = "etcd has lost its data"
        self.until(
            lambda: [lost in str(row["problem"]) for row in self.rows()] == [True, True],
            "both wait for an operator",
        )

    def _settings(self, number: int) -> dict[str, object]:
        return {
            "brokerName": "group",
            "brokerId": number,
            "brokerRole": "SYNC_MASTER",
            "enableControllerMode": "true",
            "etcdEndpoints": self._etcd.endpoint,
            "masterLeaseTime": 2,
            "haListenPort": free_ports(1)[0],
            "mappedFileSizeCommitLog": 4 << 20,
        }

    def command(self, *words: str) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "sparrowmq", "cluster", *words, "-n", self._namesrv]
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=REPOSITORY)

    def elect(self, *words: str) -> tuple[int, str]:
        process = self.command("elect", "-b", "group", *words)
        said, _ = process.communicate(timeout=_LIMIT_S)
        return process.returncode, said

    def rows(self) -> list[dict[str, Any]]:
        said, _ = self.command("-o", "json").communicate(timeout=_LIMIT_S)
        try:
            return list(json.loads(said))
        except ValueError:  # a member restarts
            return []

    def in_sync(self) -> list[list[int]]:
        """The members in sync, as each member says that leads."""
        return [[int(each) for each in row["in_sync"].split(",")] for row in self.rows() if row["in_sync"]]

    def is_begun(self) -> bool:
        """Whether etcd knows the group."""
        kept = Etcd([self._etcd.endpoint], SystemClock(), _LIMIT_S).below("/sparrowmq/")
        return any(key.endswith("/group/state") for key in asyncio.run(kept))

    def until(self, is_so: Any, what: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not is_so():
            assert time.monotonic() < deadline, (what, self.rows())


@contextmanager
def group(path: Path, first: Path | None = None) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(stack, first or path / "first", path / "second")


@pytest.mark.timeout(180)
def test_a_member_with_a_full_disk_is_refused_and_the_other_one_can_begin(tmp_path: Path) -> None:
    with (
        skipped_without("a file system in memory"),
        SmallDisk(tmp_path, _DISK_BYTES) as disk,
        group(tmp_path, disk.folder) as found,
    ):
        disk.fill()
        status, said = found.elect("--member", "1")
        assert status == 1, said
        assert "no room on the disk" in said and "let another member begin with --member N" in said
        assert "Nothing has changed" in said
        assert found.elect("--member", "2") == (0, "group: member 2 leads\n")
        assert [row["member"] for row in found.rows() if row["in_sync"]] == [2]


@pytest.mark.timeout(180)
def test_a_member_that_may_open_too_few_files_is_refused(tmp_path: Path) -> None:
    with group(tmp_path) as found:
        pid = found.members[1].pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (40, hard))
        status, said = found.elect("--member", "1")
        assert status == 1 and "may open 40 files and connections together" in said, said
        assert "Nothing has changed" in said and found.in_sync() == []
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")), hard))
        status, said = found.elect("--member", "1")
        assert status == 1 and "Nothing has changed" in said, said
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
        assert found.elect("--member", "1") == (0, "group: member 1 leads\n")


@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.timeout(180)
def test_a_member_that_is_gone_after_the_order_is_told_and_never_leads_beside_another(tmp_path: Path, how: str) -> None:
    with group(tmp_path) as found:
        member = found.members[1]
        process = found.command("elect", "-b", "group", "--member", "1")
        deadline = time.monotonic() + _LIMIT_S
        while "an operator has decided" not in member.said():
            assert time.monotonic() < deadline
            time.sleep(0.001)
        os.kill(member.pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        said, _ = process.communicate(timeout=_LIMIT_S)
        if process.returncode == 0:
            return  # on a busy machine it led before it was stopped
        assert process.returncode == 1 and "member 1 of group does not lead after 20 s" in said, said
        assert "let another member begin with --member N. If it hangs, it may begin when it goes on" in said
        was_begun = found.is_begun()  # then only --force gives up what member 1 may have
        status, said = found.elect("--member", "2")
        assert status == int(was_begun), said
        if was_begun:
            assert found.elect("--member", "2", "--force", "--yes")[0] == 0
        if how == "frozen":
            os.kill(member.pid, signal.SIGCONT)
            found.until(lambda: [1, 2] in found.in_sync() or was_begun, "the thawed member follows")
        assert [row["member"] for row in found.rows() if row["in_sync"]] == [2]


@pytest.mark.timeout(180)
def test_a_member_that_does_not_answer_gets_no_order(tmp_path: Path) -> None:
    with group(tmp_path) as found:
        os.kill(found.members[1].pid, signal.SIGSTOP)
        for words, what in (
            (("--member", "1"), "no member of group that answers has the brokerId 1"),
            ((), "which member of group has most is not known"),
        ):
            status, said = found.elect(*words)
            assert status == 1 and what in said and found.members[1].address in said, said
            assert "did not answer" in said and "Nothing has changed" in said
        assert found.elect("--member", "2") == (0, "group: member 2 leads\n")
        os.kill(found.members[1].pid, signal.SIGCONT)
        found.until(lambda: found.in_sync() == [[1, 2]], "the thawed member follows")
