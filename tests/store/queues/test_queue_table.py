"""All queues: which are on disk, which should be, and where those end that changed."""

from pathlib import Path

from sparrowmq.store.layout import Layout
from sparrowmq.store.queues.queue_files import OpenFiles
from sparrowmq.store.queues.queue_table import QueueTable
from sparrowmq.store.vfs import Disk, Unsynced


def table(folder: Path) -> QueueTable:
    return QueueTable(OpenFiles(Disk(), 16, Unsynced()), Layout.of(folder), 4)


def fill(queues: QueueTable, topic: str, count: int) -> None:
    queue = queues.obtain(topic, 0)
    for number in range(queue.next_offset, queue.next_offset + count):
        queue.add(100 * number, 100, -number)
    queue.write_pending()


def test_the_ends_of_queues_that_changed_are_told_once(tmp_path: Path):
    queues = table(tmp_path)
    fill(queues, "Orders", 3)
    queues.obtain("Waited for", 0)
    assert {key: end.end for key, end in queues.take_changed().items()} == {("Orders", 0): 3}
    assert queues.take_changed() == {}
    fill(queues, "Bills", 6)
    fill(queues, "Gone", 1)
    queues.remove_topic("Gone")
    changed = queues.take_changed()
    assert {key: end.end for key, end in changed.items()} == {("Bills", 0): 6}
    assert len(changed["Bills", 0].full_crcs) == 1


def test_queues_that_are_what_they_were_are_taken_as_they_are(tmp_path: Path):
    queues = table(tmp_path)
    fill(queues, "Orders", 9)
    fill(queues, "Bills", 2)
    ends = queues.take_changed()
    again = table(tmp_path)
    assert again.restore(ends, None) == {}
    assert {queue.topic: (queue.begin, queue.max_offset) for queue in again} == {
        "Orders": (0, 9),
        "Bills": (0, 2),
    }
    fill(again, "Orders", 1)
    assert again.take_changed() == {("Orders", 0): again.obtain("Orders", 0).known_end()}


def test_files_that_are_missing_short_or_other_than_they_were_are_told(tmp_path: Path):
    queues = table(tmp_path)
    fill(queues, "Orders", 14)
    ends = queues.take_changed()
    first, second, _third, last = map(Path, queues.obtain("Orders", 0).paths)
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    last.write_bytes(bytes(80))
    again = table(tmp_path)
    assert again.restore(ends, None) == {again.obtain("Orders", 0): [0, 4, 12]}


def test_a_full_file_is_looked_at_when_it_is_read_first(tmp_path: Path):
    queues = table(tmp_path)
    fill(queues, "Orders", 9)
    ends = queues.take_changed()
    path = Path(queues.obtain("Orders", 0).paths[1])
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    again = table(tmp_path)
    mended: list[int] = []
    again.files.rebuild_file = lambda queue, begin: mended.append(begin)
    assert again.restore(ends, None) == {} and mended == []
    queue = again.obtain("Orders", 0)
    for queue_offset in range(9):
        queue.read(queue_offset, 1)
    assert mended == [4]


def test_a_queue_that_goes_takes_the_folder_of_its_topic_with_it(tmp_path: Path):
    queues = table(tmp_path)
    fill(queues, "Orders", 3)
    queues.remove_topic("Orders")
    assert list(queues) == [] and list(Path(tmp_path, "consumequeue").iterdir()) == []
