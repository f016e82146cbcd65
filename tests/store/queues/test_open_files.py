"""Files of queues that are open: few, and rather those in use; `test_consume_queue.py` shows them in queues."""

from pathlib import Path

from sparrowmq.store.queues.queue_files import OpenFiles
from sparrowmq.store.vfs import Disk, Unsynced


def test_of_many_files_the_idle_ones_are_closed(tmp_path: Path):
    files = OpenFiles(Disk(), 2, Unsynced())
    kept = [files.create(str(tmp_path / str(number)), 10) for number in range(2)]
    for each in kept:
        each.was_used = False
    kept[0].was_used = True
    kept.append(files.open(str(tmp_path / "1"), writable=False))
    assert [each.file.fd != -1 for each in kept] == [True, False, True]
    files.close()
    assert [each.file.fd for each in kept] == [-1, -1, -1]


def test_the_older_half_is_closed_on_demand(tmp_path: Path):
    files = OpenFiles(Disk(), 10, Unsynced())
    assert not files.shrink()
    kept = [files.create(str(tmp_path / str(number)), 10) for number in range(4)]
    assert files.shrink()
    assert [each.file.fd != -1 for each in kept] == [False, False, True, True]
    files.close()
