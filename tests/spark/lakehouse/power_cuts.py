"""Kills a lake at one of its file operations, and compares its tables with those of a lake that was not killed.

    python -m tests.spark.lakehouse.power_cuts delta [--key] [--cut] [--first 1] [--every 4] [--most 100]

    life 1    open ... rename ... remove ..|    killed before operation 1, 5, 9, ...
    life 2    ─────────────────────────────> all messages are read, and the files merged

With `--cut` the machine dies: files of the tables that were never synced are empty then. Each life is a process of its
own, forked while this one has no threads. The workers of the lake are in it, too (`lakes.py`). It ends with 1 if some
lake lost, doubled or refused something.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from sparrowmq import sync
from sparrowmq.spark.pipelines.lake.lake import FORMATS, errors_path
from sparrowmq.spark.pipelines.table import today
from tests.interop.servers import OurBroker, OurNamesrv
from tests.spark.lakehouse.lakes import PlainWorkers, running, send, settings
from tests.spark.pipelines.lake.tables import rows_of

LIFE_S: Final = 60.0
# What is done to a file, as Python's audit hooks call it. A sync opens its file first.
OPERATIONS: Final = frozenset({"open", "os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir"})
_synced: set[int] = set()  # the inodes
_sync_file = os.fsync


def bodies() -> list[bytes]:
    """Objects, deletions by key, a column that appears late, and bodies that are none."""
    made = []
    for number in range(60):
        late = b',"more":"x"' if number > 40 else b',"op":"d"' if number % 11 == 5 else b""
        whole = b'{"id":%d,"number":%d%s}' % (number % 9, number, late)
        made.append(b"bad %d" % number if number % 7 == 3 else whole)
    return made


def live(namesrv: str, folder: Path, kind: str, has_key: bool, death: Callable[[], object]) -> str:
    """Run a lake until it has all, and merge its files. Return why it does not; `death` arranges its end."""
    given: dict[str, Any] = {"format": kind, "mode": "json"}
    if has_key:
        given |= {"key": "id", "deletes": "op=d", "replaced_stay": "0s"}
    found = settings(namesrv, folder, {"t": given}, rows_per_round=25)
    with running(found, PlainWorkers(), say=lambda _: None) as rounds:
        death()
        until = time.monotonic() + LIFE_S
        while time.monotonic() < until:
            rounds.run_round()
            table = rounds.tables.get("t")
            if table is not None and table.is_complete:
                table.merge(today())
                return ""
            if table is not None and table.is_permanent:
                return table.error or "it waits for somebody"
    return "it was too slow"


def die_before(operation: int, folder: Path, is_cut: bool) -> None:
    """Kill this process before it does something to a file in this folder for the `operation`-th time."""
    left, place = [operation], str(folder)

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event in OPERATIONS and any(place in str(each) for each in arguments[:2]):
            left[0] -= 1
            if left[0] == 0:
                if is_cut:
                    empty_unsynced(folder)
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(note)


def note_sync(fd: Any) -> None:
    """Takes the place of `os.fsync`."""
    _sync_file(fd)
    _synced.add(os.fstat(fd).st_ino)


def empty_unsynced(folder: Path) -> None:
    """Leave of the files of the tables what a power cut may leave."""
    for table in (folder / "t", errors_path(folder / "t")):
        for path in Path(str(table)).rglob("*"):
            if path.is_file() and path.name != "lock" and path.stat().st_ino not in _synced:
                os.truncate(path, 0)


def seen(folder: Path, kind: str, has_key: bool) -> list[str]:
    """What readers see of the table and of its errors."""
    table = folder / "t"
    rows = rows_of(kind, table, table.with_name("t.state"))
    errors = rows_of(kind, table.with_name("t.errors"), table.with_name("t.state") / "errors")
    shown = [f"{row['id']}: {row['number']}" for row in rows]
    return sorted(shown) + sorted(row["body"].decode() for row in errors)


def forked(work: Callable[[], Any]) -> tuple[bool, Any]:
    """Do work in a process of its own. Return whether that was killed, and what it returned, or the error as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = work()
        except BaseException:
            said = traceback.format_exc()
        os.write(writing, msgspec.json.encode(said))
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status), msgspec.json.decode(content) if content else None


class Trial:
    """Lakes of one kind, each killed elsewhere."""

    def __init__(self, namesrv: str, folder: Path, kind: str, has_key: bool, is_cut: bool) -> None:
        self._namesrv = namesrv
        self._folder = folder
        self._kind = kind
        self._has_key = has_key
        self._is_cut = is_cut
        self.deaths = 0
        self.faults: list[str] = []

    def run(self, operations: Sequence[int]) -> None:
        """Kill a lake before each of these operations, until one ends before its own."""
        wanted = self._outcome(self._folder / "whole")
        assert len(wanted) > 10, wanted
        for operation in operations:
            folder = self._folder / str(operation)
            folder.mkdir()
            died, why = forked(lambda: self._live(folder, operation))  # noqa: B023  # it is called at once
            if not died:
                if why:
                    self.faults.append(f"operation {operation}, not killed: {why}")
                return
            self.deaths += 1
            found = self._outcome(folder)
            if found != wanted:
                self.faults.append(f"operation {operation}: {found}")
            shutil.rmtree(folder)

    def _outcome(self, folder: Path) -> list[str]:
        """What readers see when a lake has ended, or why it has not."""
        folder.mkdir(exist_ok=True)
        _, why = forked(lambda: self._live(folder, 0))
        found: list[str] = [why] if why else forked(lambda: seen(folder, self._kind, self._has_key))[1]
        return found

    def _live(self, folder: Path, operation: int) -> str:
        os.fsync = note_sync
        return live(
            self._namesrv,
            folder,
            self._kind,
            self._has_key,
            lambda: die_before(operation, folder, self._is_cut),
        )


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory() as place, OurNamesrv() as namesrv:
        folder = Path(place)
        with OurBroker(namesrv.address, folder / "store"):
            forked(lambda: _fill(namesrv.address))
            trial = Trial(namesrv.address, folder, options.kind, options.key, options.cut)
            trial.run(range(options.first, options.first + options.every * options.most, options.every))
    print(*trial.faults, f"{trial.deaths} deaths, {len(trial.faults)} faults", sep="\n")
    return 1 if trial.faults else 0


def _fill(namesrv: str) -> None:
    with sync.admin(namesrv) as admin:
        admin.create_topic("t", queues=1)
    send(namesrv, {"t": bodies()})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=FORMATS)
    parser.add_argument("--key", action="store_true", help="one row for each id")
    parser.add_argument("--cut", action="store_true", help="files that were never synced are empty afterwards")
    parser.add_argument("--first", type=int, default=1, help="the first operation to die at")
    parser.add_argument("--every", type=int, default=4, help="so many operations until the next one")
    parser.add_argument("--most", type=int, default=10_000, help="at most so many deaths")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
