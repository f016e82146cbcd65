"""A topic is deleted for all readers in one step; the files of its queues go in slices, whatever comes in between."""

from itertools import pairwise
from pathlib import Path

import pytest

from sparrowmq.errors import DiskFull
from sparrowmq.loop.slices import Steps, at_once
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.vfs import Disk
from tests.store.faulty_disk import FaultyDisk
from tests.store.stores import Stores, bodies, put

QUEUES = 12


def filled(stores: Stores, disk: FaultyDisk | None = None) -> MessageStore:
    store = stores.open(vfs=disk)
    for queue_id in range(QUEUES):
        put(store, b"old", queue_id=queue_id)
    put(store, b"neighbour", "Flights")
    store.publish()
    return store


def some(steps: Steps[None], count: int) -> None:
    for _ in range(count):
        next(steps)


def folders(store: MessageStore) -> int:
    """The number of queues of the topic that have files."""
    folder = Path(store.settings.layout.topic("Orders"))
    return len(list(folder.iterdir())) if folder.exists() else 0


def test_no_reader_finds_a_part_of_a_topic_that_is_being_deleted(stores: Stores):
    store = filled(stores)
    steps = store.deletion.begin("Orders")
    for left in range(QUEUES, 0, -1):
        assert folders(store) == left
        assert store.queues.topics() == ["Flights"] and store.queues.of_topic("Orders") == []
        assert all(store.queues.max_offset("Orders", each) == 0 for each in range(QUEUES))
        next(steps)
    at_once(steps)
    assert not Path(store.settings.layout.topic("Orders")).exists()
    assert store.wants_checkpoint.is_set()


@pytest.mark.parametrize("done", [0, 3, QUEUES])
@pytest.mark.parametrize("leave", ["go on", "close", "crash"])
def test_a_new_topic_of_the_same_name_may_begin_meanwhile(stores: Stores, done: int, leave: str):
    store = filled(stores)
    steps = store.deletion.begin("Orders")
    some(steps, done)
    for queue_id in (1, QUEUES - 2):
        assert put(store, b"new", queue_id=queue_id).queue_offset == 0
    store.publish()
    if leave == "go on":
        at_once(steps)
    elif leave == "close":
        store.close()
    else:
        stores.crash(store)
    if leave != "go on":
        store = stores.open()
    found = {queue_id: bodies(store, queue_id=queue_id) for queue_id in range(QUEUES)}
    assert {queue_id: texts for queue_id, texts in found.items() if texts} == {
        1: [b"new"],
        QUEUES - 2: [b"new"],
    }
    assert folders(store) == 2 and bodies(store, "Flights") == [b"neighbour"]


@pytest.mark.parametrize("leave", ["close", "crash"])
@pytest.mark.parametrize("done", [0, 1, QUEUES - 1])
def test_a_topic_stays_deleted_when_the_process_ends_before_its_files_are_gone(stores: Stores, done: int, leave: str):
    store = filled(stores)
    store.checkpoint()
    some(store.deletion.begin("Orders"), done)
    if leave == "close":
        store.close()
        assert folders(store) == 0
    else:
        stores.crash(store)
        assert folders(store) == QUEUES - done
    store = stores.open()
    assert store.queues.topics() == ["Flights"] and folders(store) == 0
    assert put(store, b"new").queue_offset == 0


def test_a_checkpoint_that_is_being_written_does_not_bring_back_a_topic_that_a_slave_deletes(stores: Stores):
    store = filled(stores)
    deleted_at = store.end
    put(store, b"later", "Flights")  # a slave applies a deletion after it has shown later messages
    end, now_ms = store.prepare_checkpoint()
    store.flush()
    write = store.begin_checkpoint(end, now_ms)
    at_once(store.deletion.steps("Orders", deleted_at))
    write()
    stores.crash(store)
    assert stores.open().queues.topics() == ["Flights"]


def test_a_checkpoint_for_which_there_was_no_room_does_not_bring_back_a_deleted_topic(stores: Stores):
    disk = FaultyDisk()
    store = filled(stores, disk)
    disk.full_for = ("checkpoint",)
    with pytest.raises(DiskFull):
        store.checkpoint()
    disk.full_for = ()
    at_once(store.deletion.begin("Orders"))
    put(store, b"later", "Flights")
    store.checkpoint()
    stores.crash(store)
    assert stores.open().queues.topics() == ["Flights"]


def test_a_topic_is_deleted_again_before_the_files_of_the_first_are_gone(stores: Stores):
    store = filled(stores)
    first = store.deletion.begin("Orders")
    some(first, 2)
    put(store, b"second", queue_id=1)
    second = store.deletion.begin("Orders")
    assert store.queues.topics() == ["Flights"]
    some(second, 2)
    at_once(first)
    at_once(second)
    assert not Path(store.settings.layout.topic("Orders")).exists()


def test_a_queue_of_a_new_topic_stays_even_if_its_first_message_comes_during_the_search(stores: Stores):
    store = filled(stores)
    before = store.end
    put(store, b"new", queue_id=3)
    steps = store.deletion.steps("Orders", before)
    some(steps, QUEUES)  # it has looked at all queues
    put(store, b"newer", queue_id=5)
    at_once(steps)
    assert sorted(store.queues.ids("Orders")) == [3, 5]
    assert bodies(store, queue_id=3)[-1] == b"new" and bodies(store, queue_id=5)[-1] == b"newer"


def test_a_start_lists_the_folder_of_a_half_deleted_topic_only_a_few_times(stores: Stores):
    class Listing(Disk):
        lists = 0

        def list_folder(self, path: str) -> list[str]:
            self.lists += path.endswith("/Orders")
            return super().list_folder(path)

    store = filled(stores)
    store.checkpoint()
    store.deletion.begin("Orders")
    stores.crash(store)
    disk = Listing()
    store = stores.open(vfs=disk)
    assert folders(store) == 0
    assert disk.lists < QUEUES / 2


@pytest.mark.parametrize("shown_at_deletion", [False, True])
@pytest.mark.parametrize("shown", range(9))
def test_a_slave_that_may_show_a_part_of_the_log_gets_the_new_topic_whole(
    stores: Stores, tmp_path: Path, shown: int, shown_at_deletion: bool
):
    """The slave may hold entries of the old topic, and of the new one, when it comes to the deletion."""
    master = stores.open()
    ends = [0]
    for number in range(8):
        if number == 4:
            master.delete_topic("Orders")
        put(master, b"%d" % number, queue_id=number % 2)
        ends.append(master.end)
    master.publish()
    limit = ends[shown]
    slave = stores.open(path=tmp_path / "slave")
    show = slave.limit_visibility(lambda: limit)
    for begin, end in pairwise(ends):
        slave.follow(begin, master.log_bytes(begin, end - begin) or b"")
        slave.publish()
    if shown_at_deletion:
        limit = slave.end
        show()
        slave.publish()
    at_once(slave.deletion.steps("Orders", ends[4]))
    for queue_id in range(2):
        seen = bodies(slave, queue_id=queue_id)
        assert bodies(master, queue_id=queue_id)[: len(seen)] == seen
    limit = slave.end
    show()
    slave.publish()
    for queue_id in range(2):
        new = [b"%d" % number for number in (4, 5, 6, 7) if number % 2 == queue_id]
        assert bodies(slave, queue_id=queue_id) == bodies(master, queue_id=queue_id) == new
