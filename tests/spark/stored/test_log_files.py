"""sparrowmq.spark.source.log_files: which log files there are, and what of them is to be read."""

import logging
import shutil

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import BadStore
from sparrowmq.spark.source.log_files import full_files, log_files, plan_spans
from sparrowmq.spark.source.partition_ranges import RowsLost
from sparrowmq.spark.source_and_sink import RocketMQSource
from sparrowmq.testing.clock import ManualClock
from tests import records
from tests.store.stores import put


def filled(stores, count):
    """A closed store with so many messages of the topic Orders; gives its folder and where each one lies."""
    store = stores.open()
    places = [put(store, b"%d" % number) for number in range(count)]
    store.close()
    return stores.settings.path, places


def bodies(rows):
    return [int(row[3]) for row in rows]


def found(path, at_least=1, since_ms=None, fail=True):
    return [(span.file.begin, span.start, span.end) for span in plan_spans(str(path), at_least, since_ms, fail=fail)]


def test_files_have_whole_names_as_workers_are_in_other_folders(stores, monkeypatch):
    store, _ = filled(stores, 6)
    monkeypatch.chdir(store.parent)
    [file] = log_files(store.name)
    assert file.path == str(next((store / "commitlog").iterdir()))


def test_a_store_its_log_and_one_file_of_it_can_be_named(stores, read):
    store, _ = filled(stores, 60)
    log = store / "commitlog"
    assert bodies(read(store)) == bodies(read(log)) == bodies(read(f"file://{store}")) == list(range(60))
    each = [bodies(read(file)) for file in sorted(log.iterdir())]
    assert len(each) > 1
    assert [number for file in each for number in file] == list(range(60))


def test_each_file_is_a_span_and_the_last_one_ends_behind_its_last_record(stores):
    store, places = filled(stores, 60)
    (store / "commitlog" / f"{8192:020}").write_bytes(bytes(4096))  # made in advance
    last = places[-1]
    assert found(store) == [(0, 0, 4096), (4096, 0, last.end - 4096)]
    assert 4096 < last.end < 8192


def test_files_are_full_once_the_log_goes_on_behind_them(stores):
    store, _ = filled(stores, 60)
    (store / "commitlog" / f"{8192:020}").write_bytes(bytes(4096))  # made in advance
    first, second, _ = files = log_files(str(store))
    assert full_files(files) == [first]
    assert full_files([second, *files[2:]]) == []


def test_a_log_that_its_broker_has_open_is_read_as_far_as_it_is_written(stores, read):
    store = stores.open()
    for number in range(30):
        put(store, b"%d" % number)
    store.flush()
    assert bodies(read(stores.settings.path)) == list(range(30))
    put(store, b"30")
    store.flush()
    assert bodies(read(stores.settings.path)) == list(range(31))


@pytest.mark.parametrize("there", [1, 4, 8, 60, 110])
def test_a_record_in_the_writing_is_left_to_the_next_query(stores, read, there):
    store, places = filled(stores, 3)
    file = store / "commitlog" / f"{0:020}"
    whole = records.encoded(
        topic="Orders", body=b"3", queue_offset=3, physical_offset=places[-1].end, store_timestamp_ms=2**40
    )
    assert there < len(whole)
    stores.leave_damaged()
    for piece, expected in (whole[:there], [0, 1, 2]), (whole, [0, 1, 2, 3]):
        content = bytearray(file.read_bytes())
        content[places[-1].end : places[-1].end + len(piece)] = piece
        file.write_bytes(content)
        assert bodies(read(store)) == expected


def test_a_copy_that_ends_early_is_read_as_far_as_it_goes(stores, read):
    store, places = filled(stores, 10)
    copy = store.parent / "copy"
    copy.mkdir()
    content = (store / "commitlog" / f"{0:020}").read_bytes()
    (copy / f"{0:020}").write_bytes(content[: places[7].end + 20])
    assert bodies(read(copy)) == list(range(8))


def test_a_file_that_is_missing_between_others_is_told(stores, read, caplog):
    store, _ = filled(stores, 100)
    copy = shutil.copytree(store, store.parent / "copy")
    (copy / "commitlog" / f"{4096:020}").unlink()
    with pytest.raises(RowsLost, match=r"do not go on at offset 4096.*failOnDataLoss=false"):
        read(copy)
    with caplog.at_level(logging.WARNING):
        some = bodies(read(copy, failOnDataLoss="false"))
    assert "do not go on at offset 4096" in caplog.text
    assert 0 < len(some) < 100
    assert set(some) < set(range(100))


@pytest.mark.parametrize("fails", [True, False])
def test_a_file_that_goes_before_it_is_read_is_told(stores, fails, caplog):
    store, _ = filled(stores, 60)
    copy = shutil.copytree(store, store.parent / "copy")
    options = {"path": str(copy), "topic": "Orders", "failOnDataLoss": str(fails)}
    reader = RocketMQSource(options).reader(RocketMQSource(options).schema())
    first, second = reader.partitions()
    (copy / "commitlog" / f"{0:020}").unlink()
    if fails:
        with pytest.raises(RowsLost, match="is gone"):
            list(reader.read(first))
    else:
        assert list(reader.read(first)) == []
        assert "is gone" in caplog.text
    assert list(reader.read(second))


async def test_files_that_ended_before_the_time_are_not_opened(stores, read):
    clock = ManualClock()
    store = stores.open(clock=clock)
    times = []
    for number in range(100):
        await clock.advance(1)
        times.append(put(store, b"%d" % number).store_timestamp_ms)
        store.publish()
    store.close()
    path = stores.settings.path
    last_file = found(path)[-1]
    assert found(path, since_ms=times[-1]) == [last_file]
    assert len(found(path, since_ms=0)) == 3
    assert bodies(read(path, startingTimestamp=str(times[40]))) == list(range(40, 100))
    assert bodies(read(path, startingTimestamp=str(times[40]), endingTimestamp=str(times[60]))) == list(range(40, 60))


def test_a_file_is_not_left_out_by_a_damaged_time_of_the_one_behind_it(stores, read):
    clock = ManualClock()
    store = stores.open(clock=clock)
    begin_ms = clock.now_ms()
    for number in range(100):
        put(store, b"%d" % number)
    store.close()
    path = stores.settings.path
    second = sorted((path / "commitlog").iterdir())[1]
    content = bytearray(second.read_bytes())
    content[56 + 2] ^= 1  # its first record's store time, some years back
    second.write_bytes(content)
    stores.leave_damaged()
    assert len(found(path, since_ms=begin_ms)) == 3
    with pytest.raises(RowsLost, match="damaged"):
        read(path, startingTimestamp=str(begin_ms))


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 16, 1000])
def test_files_are_cut_into_as_many_spans_as_asked_for_and_each_row_is_read_once(stores, read, parts):
    store, _ = filled(stores, 100)
    count = len(found(store, at_least=parts))
    assert count >= min(parts, 90)
    assert sorted(bodies(read(store, minPartitions=str(parts)))) == list(range(100))


@pytest.mark.parametrize("name", ["nothing", "empty", "notes.txt"])
def test_what_has_no_log_files_is_refused(tmp_path, read, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no log")
    with pytest.raises(BadStore, match="has no log files; option path names a store"):
        read(tmp_path / name)


def test_a_store_without_messages_has_no_rows(stores, read):
    store, _ = filled(stores, 0)
    if (store / "commitlog").exists() and any((store / "commitlog").iterdir()):
        assert read(store) == []
    log = store / "commitlog"
    log.mkdir(exist_ok=True)
    (log / f"{0:020}").write_bytes(bytes(4096))
    assert read(store) == []
    stores.leave_damaged()


def test_damage_before_sound_records_does_not_pass_for_the_end(stores, read):
    store, places = filled(stores, 20)
    stores.leave_damaged()
    file = store / "commitlog" / f"{0:020}"
    content = bytearray(file.read_bytes())
    content[places[5].offset : places[6].end] = bytes(places[6].end - places[5].offset)
    file.write_bytes(content)
    with pytest.raises(RowsLost, match=f"damaged from offset {places[5].offset} to {places[6].end}"):
        read(store)
    assert bodies(read(store, failOnDataLoss="false")) == [*range(5), *range(7, 20)]
