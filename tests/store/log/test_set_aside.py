from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.store.log.set_aside import (
    Piece,
    delete_expired,
    expired_pieces,
    list_pieces,
    set_aside,
    set_aside_ranges,
)
from sparrowmq.store.vfs import Disk
from tests.store.crash_states import RecordVfs
from tests.store.stores import Stores, put

DISK = Disk()


def test_bytes_of_several_files_are_kept_with_their_place_and_why(stores: Stores):
    store = stores.open()
    while store.end < 9000:
        put(store, b"x" * 900)
    store.publish()
    content = b"".join(path.read_bytes() for path in sorted(Path(store.settings.layout.commit_log).iterdir()))
    set_aside(DISK, store.settings.layout, store._log, 100, 8500, "damaged")
    set_aside(DISK, store.settings.layout, store._log, 8500, 8500, "damaged")
    set_aside(DISK, store.settings.layout, store._log, 20, 30, "cut")
    layout = store.settings.layout
    assert Path(layout.set_aside, f"{100:020d}-{8500:020d}.damaged").read_bytes() == content[100:8500]
    assert list(set_aside_ranges(DISK, layout, "damaged")) == [(100, 8500)]
    assert (
        list(set_aside_ranges(DISK, layout, "cut")) == [(20, 30)]
        and list(set_aside_ranges(DISK, layout, "forked")) == []
    )


def test_what_is_there_stays(stores: Stores):
    store = stores.open()
    put(store)
    store.publish()
    layout = store.settings.layout
    path = Path(layout.set_aside, f"{0:020d}-{50:020d}.cut")
    path.parent.mkdir()
    path.write_bytes(b"saved before a crash")
    set_aside(DISK, layout, store._log, 0, 50, "cut")
    assert path.read_bytes() == b"saved before a crash"


def test_names_of_others_are_no_ranges(stores: Stores):
    folder = stores.settings.layout.set_aside
    files = [
        f"{folder}/{name}" for name in ("README.damaged", "1-.damaged", "3-7.damaged", f"{3:020d}-{7:020d}.damaged")
    ]
    vfs = RecordVfs()
    vfs.make_folder(folder)
    for file in files:
        vfs.create(file, 1, allocate=True)
    assert list(set_aside_ranges(vfs, stores.settings.layout, "damaged")) == [(3, 7)]


DAY_MS = 86_400_000
NOW_MS = 1000 * DAY_MS


def piece(why: str, days: int, size: int = 10, end: int = 50) -> Piece:
    return Piece(f"{why}-{days}", why, end, size, NOW_MS - days * DAY_MS)


def test_pieces_are_kept_as_long_as_somebody_may_need_them(stores: Stores) -> None:
    """Of a log that begins at 100; the setting is 30 days."""
    kept = [
        *(piece(why, 40) for why in ("cut", "index", "forked", "lost")),
        piece("damaged", 40, end=101),
        piece("damaged", 39, end=100),
        *(piece(why, 29) for why in ("cut", "damaged", "forked")),
        Piece("unknown age", "cut", 1, 10, 0),
    ]

    def left(is_short: bool = False, log_begin: int = 100, **changes: int) -> list[str]:
        settings = replace(stores.settings, **changes)  # type: ignore[arg-type]
        gone = expired_pieces(kept, settings, NOW_MS, log_begin, is_short=is_short)
        return [each.name for each in kept if each not in gone]

    assert left() == ["damaged-40", "cut-29", "damaged-29", "forked-29", "unknown age"]
    assert left(retention_hours=41 * 24) == ["forked-40", "lost-40", *left()], "as long as messages are kept"
    assert left(set_aside_days=41) == [each.name for each in kept]
    assert left(set_aside_days=0) == [each.name for each in kept]
    assert left(is_short=True) == ["damaged-40", "forked-29"]
    assert left(is_short=True, log_begin=0) == ["damaged-40", "damaged-39", "damaged-29", "forked-29"]
    assert left(set_aside_limit=40) == ["damaged-40", "damaged-29", "forked-29", "unknown age"]
    assert left(set_aside_limit=0) == left(is_short=True)


def test_what_is_too_old_is_deleted_with_a_word_and_nothing_else(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(stores.settings.layout.set_aside)
    folder.mkdir(parents=True)
    names = [f"{0:020d}-{50:020d}.cut", f"{0:020d}-{60:020d}.forked", "20261123034522001.index", "README"]
    for name in names:
        (folder / name).write_bytes(b"x" * 7)
    now_ms = int((folder / names[0]).stat().st_mtime * 1000)
    found = [(each.name, each.reason, each.end, each.size) for each in list_pieces(DISK, stores.settings.layout)]
    assert sorted(found) == sorted([(names[0], "cut", 50, 7), (names[1], "forked", 60, 7), (names[2], "index", 0, 7)])
    delete_expired(DISK, stores.settings, now_ms + 29 * DAY_MS, 0, is_short=False)
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    delete_expired(DISK, stores.settings, now_ms + 31 * DAY_MS + 60_000, 0, is_short=False)
    assert [path.name for path in folder.iterdir()] == ["README"]
    assert f"{names[1]} is deleted after 31 days (7 bytes)" in caplog.text


def test_a_folder_that_cannot_be_cleaned_ends_nothing(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(Disk):
        def unlink(self, path: str) -> None:
            raise PermissionError(13, "Permission denied", path)

    folder = Path(stores.settings.layout.set_aside)
    folder.mkdir(parents=True)
    (folder / "1-2.cut").touch()
    delete_expired(Refusing(), stores.settings, 1 << 60, 0, is_short=False)
    assert "cannot be deleted: [Errno 13] Permission denied" in caplog.text
