"""A store is one broker's, whatever becomes of its lock file; `test_opening.py` shows it of whole stores."""

import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.errors import StoreLocked
from sparrowmq.store.layout import Layout
from sparrowmq.store.vfs import Disk, StoreLock, lock_holder


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout.of(tmp_path / "store")
    Path(made.commit_log).mkdir(parents=True)
    return made


def test_a_store_is_locked_once_and_again_after_closing(layout: Layout):
    lock = StoreLock(Disk(), layout)
    with pytest.raises(StoreLocked):
        StoreLock(Disk(), layout)
    lock.close()
    lock.close()
    StoreLock(Disk(), layout).close()


def test_who_does_not_get_all_locks_keeps_none(layout: Layout, tmp_path: Path):
    lock = StoreLock(Disk(), layout)
    other = Layout.of(tmp_path / "other", layout.commit_log)
    Path(other.root).mkdir()
    with pytest.raises(StoreLocked, match=layout.commit_log):
        StoreLock(Disk(), other)
    lock.close()
    StoreLock(Disk(), other).close()


def test_a_log_that_is_reached_by_two_names_is_one(layout: Layout, tmp_path: Path):
    link = tmp_path / "link"
    link.symlink_to(layout.commit_log)
    lock = StoreLock(Disk(), layout)
    other = Layout.of(tmp_path / "other", link)
    Path(other.root).mkdir()
    with pytest.raises(StoreLocked):
        StoreLock(Disk(), other)
    lock.close()


def test_the_process_that_has_a_store_open_is_named(layout: Layout) -> None:
    program = (
        "import sys; from sparrowmq.store.vfs import StoreLock; from sparrowmq.store.vfs import Disk;"
        "from sparrowmq.store.layout import Layout; lock = StoreLock(Disk(), Layout.of(sys.argv[1]));"
        "print(flush=True); sys.stdin.read()"
    )
    assert lock_holder(layout.lock) == 0  # without a file
    with subprocess.Popen([sys.executable, "-c", program, layout.root], stdin=-1, stdout=-1) as holder:
        assert holder.stdin is not None and holder.stdout is not None and holder.stdout.readline()
        with pytest.raises(StoreLocked, match=rf"in use by another broker \(process {holder.pid}\); stop that"):
            StoreLock(Disk(), layout)
        holder.stdin.close()
    assert lock_holder(layout.lock) == 0
    lock = StoreLock(Disk(), layout)
    assert lock_holder(layout.lock) == 0  # this process itself
    lock.close()
