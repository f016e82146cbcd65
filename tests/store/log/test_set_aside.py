from pathlib import Path

from sparrowmq.store.log.set_aside import ranges, set_aside
from sparrowmq.store.vfs import Disk
from tests.store.crash_states import RecordVfs
from tests.store.stores import Stores, put

DISK = Disk()


def test_bytes_of_several_files_are_kept_with_their_place_and_why(stores: Stores):
    store = stores.open()
    while store.end < 9000:
        put(store, b"x" * 900)
    store.dispatch()
    content = b"".join(path.read_bytes() for path in sorted(Path(store.settings.layout.commit_log).iterdir()))
    set_aside(DISK, store.settings.layout, store._log, 100, 8500, "damaged")
    set_aside(DISK, store.settings.layout, store._log, 8500, 8500, "damaged")
    set_aside(DISK, store.settings.layout, store._log, 20, 30, "cut")
    layout = store.settings.layout
    assert Path(layout.set_aside, f"{100:020d}-{8500:020d}.damaged").read_bytes() == content[100:8500]
    assert list(ranges(DISK, layout, "damaged")) == [(100, 8500)]
    assert list(ranges(DISK, layout, "cut")) == [(20, 30)] and list(ranges(DISK, layout, "forked")) == []


def test_what_is_there_stays(stores: Stores):
    store = stores.open()
    put(store)
    store.dispatch()
    layout = store.settings.layout
    path = Path(layout.set_aside, f"{0:020d}-{50:020d}.cut")
    path.parent.mkdir()
    path.write_bytes(b"saved before a crash")
    set_aside(DISK, layout, store._log, 0, 50, "cut")
    assert path.read_bytes() == b"saved before a crash"


def test_names_of_others_are_no_ranges(stores: Stores):
    folder = stores.settings.layout.set_aside
    files = [f"{folder}/{name}" for name in ("README.damaged", "1-.damaged", "3-7.damaged")]
    vfs = RecordVfs()
    vfs.make_folder(folder)
    for file in files:
        vfs.create(file, 1, allocate=True)
    assert list(ranges(vfs, stores.settings.layout, "damaged")) == [(3, 7)]
