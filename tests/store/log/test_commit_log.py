from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import CorruptRecord, DiskFull, MessageTooLarge, StoreError
from sparrowmq.kernel.record_layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_SIZE_BYTES
from sparrowmq.protocol.messages import record as records
from sparrowmq.store.layout import BLANK, BLANK_SIZE
from sparrowmq.store.log.commit_log import CommitLog
from sparrowmq.store.vfs import Disk
from tests.records import encoded
from tests.store.crash_states import RecordVfs
from tests.store.faulty_disk import FaultyDisk

FILE_SIZE = 1024
TOPIC = "T"


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "commitlog")


@pytest.fixture
def log(folder):
    log = CommitLog(Disk(), folder, FILE_SIZE)
    log.start_at(0)
    yield log
    log.close()


def record(offset, size, body=b""):
    """A record of exactly `size` bytes; without property CRC, which would cost 20."""
    body = body.ljust(size - MIN_SIZE_BYTES - len(TOPIC), b"x")
    made = encoded(TOPIC, 0, body, physical_offset=offset, crc=False)
    assert len(made) == size
    return made


def append(log, size, body=b""):
    """What the store does: encode, and encode again if the record has to go to another file."""
    if log.end + size > log.limit:
        log.make_room(size)
    offset = log.end
    log.append(record(offset, size, body))
    log.write_out()
    return offset


def sizes(log):
    return [len(found) for found in log.walk(log.begin, log.end)]


def test_a_new_log_has_no_file_until_something_is_appended(log, folder):
    assert (log.begin, log.end, Disk().list_folder(folder)) == (0, 0, [])
    assert append(log, 100) == 0
    assert log.end == 100 and Disk().list_folder(folder) == ["0" * 20]


@pytest.mark.covers("S-STORE-02")
def test_records_lie_one_behind_the_other(log):
    assert [append(log, size) for size in (100, 200, 300)] == [0, 100, 300]
    assert sizes(log) == [100, 200, 300]
    assert [records.physical_offset(found) for found in log.walk(0, 600)] == [0, 100, 300]


@pytest.mark.covers("S-STORE-01")
def test_a_record_that_does_not_fit_goes_to_the_next_file_and_a_blank_fills_this_one(log):
    append(log, 600)
    assert append(log, 417) == FILE_SIZE
    assert bytes(log.row.files[0].read(600, 8)) == BLANK.pack(424, MAGIC_BLANK)
    assert not any(log.row.files[0].read(608, FILE_SIZE))
    assert log.parse(600) == (None, FILE_SIZE)
    assert sizes(log) == [600, 417]


@pytest.mark.parametrize(("size", "lies_at"), [(FILE_SIZE - 600 - 8, 600), (FILE_SIZE - 600 - 7, FILE_SIZE)])
def test_the_last_eight_bytes_are_kept_for_the_blank(log, size, lies_at):
    append(log, 600)
    assert append(log, size) == lies_at
    append(log, 900)
    assert sizes(log) == [600, size, 900]


def test_a_record_as_large_as_a_file_less_its_blank_fits_and_one_byte_more_never_does(log):
    assert append(log, FILE_SIZE - BLANK_SIZE) == 0
    with pytest.raises(MessageTooLarge, match="1017 bytes do not fit into a log file of 1024; raise mappedFileSize"):
        append(log, FILE_SIZE - BLANK_SIZE + 1)
    assert log.end == FILE_SIZE - BLANK_SIZE
    assert append(log, 100) == FILE_SIZE


@given(st.lists(st.integers(MIN_SIZE_BYTES + 1, FILE_SIZE - BLANK_SIZE), max_size=30))
def test_records_of_any_sizes_are_found_again(wanted):
    log = CommitLog(RecordVfs(), "/log", FILE_SIZE)
    log.start_at(0)
    offsets = [append(log, size) for size in wanted]
    assert sizes(log) == wanted
    assert [records.physical_offset(found) for found in log.walk(0, log.end)] == offsets
    ends = [offset + size + BLANK_SIZE for offset, size in zip(offsets, wanted, strict=True)]
    assert all(offset // FILE_SIZE == (end - 1) // FILE_SIZE for offset, end in zip(offsets, ends, strict=True))


def test_a_full_disk_changes_nothing(folder):
    disk = FaultyDisk()
    log = CommitLog(disk, folder, FILE_SIZE)
    log.start_at(0)
    append(log, 600)
    disk.full_for = ("commitlog",)
    for _ in range(2):
        with pytest.raises(DiskFull):
            append(log, 500)
    assert log.end == 600 and not any(log.row.files[0].read(600, FILE_SIZE))
    assert append(log, 400) == 600  # what fits into the file is still taken
    disk.full_for = ()
    assert append(log, 500) == FILE_SIZE
    log.close()


def test_the_next_file_is_there_before_the_blank_says_so():
    vfs = RecordVfs()
    log = CommitLog(vfs, "/log", FILE_SIZE)
    log.start_at(0)
    append(log, 600)
    before = len(vfs.effects)
    append(log, 500)
    assert [effect[0] for effect in vfs.effects[before:]] == [
        "create",
        "sync",
        "sync_folder",
        "write",
        "write",
    ]
    assert vfs.effects[-2][2:] == (600, BLANK.pack(424, MAGIC_BLANK))


def test_a_log_that_refuses_takes_nothing_and_can_be_read(log):
    append(log, 100)
    log.refuse(StoreError("closed"))
    with pytest.raises(StoreError, match="closed"):
        append(log, 100)
    with pytest.raises(StoreError, match="closed"):
        log.make_room(0)
    assert sizes(log) == [100]


def test_a_log_that_holds_is_asked_for_room_and_goes_on_in_the_same_file(log):
    append(log, 100)
    log.hold()
    assert log.limit == -1
    assert append(log, 100) == 100
    assert log.limit == FILE_SIZE - BLANK_SIZE


def test_a_log_goes_on_where_recovery_says(log, folder):
    append(log, 600)
    append(log, 500)
    again = CommitLog(Disk(), folder, FILE_SIZE)
    again.start_at(FILE_SIZE + 500)
    assert append(again, 200) == FILE_SIZE + 500
    assert sizes(again) == [600, 500, 200]
    again.close()


def test_a_log_that_ends_with_its_last_file_goes_on_in_a_new_one(log, folder):
    append(log, 600)
    again = CommitLog(Disk(), folder, FILE_SIZE)
    again.start_at(FILE_SIZE)
    assert append(again, 100) == FILE_SIZE
    again.close()


@pytest.mark.parametrize(
    ("at", "written", "expected"),
    [
        (100, b"", "a record; found magic 0x00000000 and size 0"),
        (50, b"", "a record; found magic"),
        (100, BLANK.pack(100, MAGIC_BLANK), "a record; found magic 0xcbd43194 and size 100"),
        (100, BLANK.pack(90, MAGIC_V1), "a size from 91 to 916, found 90"),
        (100, BLANK.pack(917, MAGIC_V1), "a size from 91 to 916, found 917"),
        (100, BLANK.pack(-1, MAGIC_V2), "a size from 91 to 916, found -1"),
        (FILE_SIZE - 7, b"", "a record; found magic 0x00000000 and size 0"),
        (FILE_SIZE, b"", "a file of the log; none has this offset"),
        (-1, b"", "a file of the log; none has this offset"),
    ],
)
def test_where_no_record_begins_the_error_says_what_is_there(log, at, written, expected):
    append(log, 100)
    log.row.files[0].write(100, written)
    with pytest.raises(CorruptRecord) as caught:
        log.parse(at)
    assert caught.value.offset == at and caught.value.expected.startswith(expected)


def test_a_walk_stops_at_damage_with_an_error(log):
    append(log, 100)
    append(log, 100)
    log.row.files[0].write(100, bytes(8))
    walk = log.walk(0, log.end)
    assert len(next(walk)) == 100
    with pytest.raises(CorruptRecord):
        next(walk)


def test_only_a_record_that_is_whole_and_in_its_place_is_sound(log):
    append(log, 100)
    append(log, 100)
    assert log.sound_record(100) is not None
    log.row.files[0].write(100, record(0, 100))  # sound, but it says that it lies elsewhere
    assert log.sound_record(100) is None
    log.row.files[0].write(100, record(100, 100).replace(b"x", b"y", 1))
    assert log.sound_record(100) is None
    assert log.sound_record(50) is None


def test_a_record_without_property_crc_is_sound_only_before_the_log_had_them(log):
    append(log, 100)
    log.crc_from = 1
    assert log.sound_record(0) is not None
    log.crc_from = 0
    assert log.sound_record(0) is None


def test_the_next_sound_record_is_found_behind_damage(log):
    offsets = [append(log, size) for size in (100, 150, 300, 700, 100)]
    end = log.end
    log.row.files[0].write(100, b"damage" * 10)
    assert log.next_sound(100, end) == offsets[2]
    assert log.next_sound(offsets[2], end) == offsets[3] == FILE_SIZE  # in the next file
    assert log.next_sound(offsets[3], end) == offsets[4]
    assert log.next_sound(offsets[4], end) is None


def test_a_body_that_looks_like_a_record_is_not_taken_for_one(log):
    append(log, 100)
    append(log, 300, body=record(0, 100))
    append(log, 100)
    assert log.next_sound(100, log.end) == 400


@pytest.mark.parametrize("used", [0, 1, 500, FILE_SIZE - 1, FILE_SIZE, FILE_SIZE + 1, 2 * FILE_SIZE])
def test_the_last_used_byte_is_found_across_files(log, used):
    append(log, 600)
    append(log, 600)
    for file in log.row.files:
        file.write(0, bytes(FILE_SIZE))
    if used:
        log.row.files[(used - 1) // FILE_SIZE].write((used - 1) % FILE_SIZE, b"\1")
    assert log.last_used_byte(0) == used
    assert log.last_used_byte(700) == max(used, 700)


def test_a_view_shows_bytes_of_one_file_up_to_the_end(log):
    append(log, 600)
    append(log, 500)
    whole = log.view(0, 600)
    assert whole is not None and bytes(whole) == record(0, 600) and whole.readonly
    assert log.view(600, FILE_SIZE - 600) is not None
    assert log.view(600, FILE_SIZE - 599) is None  # two files
    assert log.view(FILE_SIZE, 501) is None  # past the end
    assert log.view(-1, 1) is None
    assert log.copy(0, 600) == bytes(whole) and log.copy(600, FILE_SIZE - 599) is None


def test_bytes_of_another_log_are_taken_as_they_are(log, folder):
    append(log, 600)
    append(log, 500)
    content = b"".join(file.read(0, FILE_SIZE) for file in log.row.files)[: log.end]
    copy = CommitLog(Disk(), f"{folder}-copy", FILE_SIZE)
    copy.start_at(0)
    for position in range(0, len(content), 90):
        copy.append_raw(content[position : position + 90])
    assert copy.end == log.end and sizes(copy) == [600, 500]
    copy.refuse(StoreError("closed"))
    copy.append_raw(memoryview(b"fits"))
    with pytest.raises(StoreError, match="closed"):
        copy.append_raw(bytes(FILE_SIZE))
    copy.close()


def test_the_next_file_is_made_early_in_another_thread(log, folder):
    with ThreadPoolExecutor(1) as executor:
        append(log, 400)
        log.prepare(executor)
        assert log._next_file is None  # more than half of the file is free
        append(log, 200)
        log.prepare(executor)
        log.prepare(executor)
    assert len(Disk().list_folder(folder)) == 2 and len(log.row.files) == 1
    assert append(log, 500) == FILE_SIZE and len(log.row.files) == 2


def test_a_file_that_could_not_be_made_early_is_made_when_it_is_needed(folder):
    disk = FaultyDisk()
    log = CommitLog(disk, folder, FILE_SIZE)
    log.start_at(0)
    append(log, 600)
    with ThreadPoolExecutor(1) as executor:
        disk.full_for = ("commitlog",)
        log.prepare(executor)
    with pytest.raises(DiskFull):
        append(log, 500)
    with ThreadPoolExecutor(1) as executor:
        log.prepare(executor)
    disk.full_for = ()
    assert append(log, 500) == FILE_SIZE
    log.close()


def test_a_file_that_was_made_early_and_not_used_is_closed_and_found_again(log, folder):
    append(log, 600)
    with ThreadPoolExecutor(1) as executor:
        log.prepare(executor)
        log.close()
    assert [file.file.fd for file in log.row.files] == [-1, -1]
    again = CommitLog(Disk(), folder, FILE_SIZE)
    again.start_at(600)
    assert append(again, 500) == FILE_SIZE
    again.close()


def test_a_log_that_was_closed_or_failed_makes_no_files(log, folder):
    append(log, 600)
    log.refuse(StoreError("closed"))
    with ThreadPoolExecutor(1) as executor:
        log.prepare(executor)
    assert len(Disk().list_folder(folder)) == 1


class FillingDisk(Disk):
    """Has room for so many writes."""

    room = 1 << 30

    def write(self, file, offset, content):
        if not self.room:
            raise DiskFull("no room")
        self.room -= 1
        super().write(file, offset, content)


@pytest.mark.parametrize("room", [1 << 30, 0])
def test_a_large_burst_is_written_at_once_and_again_where_there_was_no_room(tmp_path, room):
    disk = FillingDisk()
    log = CommitLog(disk, str(tmp_path / "commitlog"), 1 << 22)
    log.start_at(0)
    in_kib = [1] * 130 + [300, 1, 1, 127, 2, 128, 129, 1]
    log.make_room(sum(in_kib) << 10)
    parts = [record(0, size << 10, b"%d" % at) for at, size in enumerate(in_kib)]
    for part in parts:
        log.append(part)
    disk.room = room
    if room == 0:
        with pytest.raises(DiskFull):
            log.write_out()
        assert log.written == 0 < log.end
    disk.room = 1
    assert log.write_out() == log.end == log.written == sum(in_kib) << 10
    assert (disk.room, log.copy(0, log.end)) == (0, b"".join(parts))
    log.close()
