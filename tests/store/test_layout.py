import os
import re

import pytest

from sparrowmq.errors import BadStore, InvalidName
from sparrowmq.store.layout import (
    BLANK,
    ENTRY,
    ENTRY_SIZE,
    GAP_ENTRY,
    Layout,
    missing_file,
    offset_name,
    parse_offset_name,
    row_of_files,
)
from tests.store.stores import put


@pytest.mark.parametrize(
    ("offset", "name"),
    [
        (0, "00000000000000000000"),
        (1 << 30, "00000000001073741824"),
        (6_000_000, "00000000000006000000"),
        ((1 << 63) - 1, "09223372036854775807"),
    ],
)
@pytest.mark.covers("S-STORE-01")
def test_a_file_is_named_after_its_first_byte_in_twenty_digits(offset, name):
    assert offset_name(offset) == name
    assert parse_offset_name(name) == offset


@pytest.mark.parametrize(
    "name", ["", "1073741824", "0000000000107374182x", "0" * 21, "٠" * 20, "-" + "0" * 19, "0" * 19 + "\n"]
)
def test_other_names_are_no_offsets(name):
    assert parse_offset_name(name) is None


def test_a_row_ends_at_the_first_hole_and_names_of_others_are_left_alone():
    names = [offset_name(8192), "lost+found", offset_name(16384), ".snapshot", offset_name(4096)]
    assert row_of_files("log", names, 4096) == ([4096, 8192], [16384])
    assert row_of_files("log", ["checkpoint"], 4096) == ([], [])


def test_a_file_of_another_size_is_refused_with_its_path():
    with pytest.raises(BadStore, match=r"log/00000000000000004096 .*file size 8192; set the size"):
        row_of_files("log", [offset_name(4096)], 8192)


def test_a_missing_file_is_told_with_its_path_and_a_remedy():
    told = str(missing_file("log", 4096, "restore it"))
    assert told == "log/00000000000000004096 is missing, but later files exist; restore it"


def test_the_log_may_lie_elsewhere():
    assert Layout.of("store").commit_log == "store/commitlog"
    assert Layout.of("store", "fast/log").commit_log == "fast/log"


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../etc", "a\0b", "é" * 128])
def test_a_topic_that_leads_out_of_the_store_is_no_name(topic):
    with pytest.raises(InvalidName, match="cannot be a topic"):
        Layout.of("store").queue(topic, 0)


def test_blank_entry_and_gap_have_the_bytes_of_java():
    assert BLANK.pack(100, 0xCBD43194 - (1 << 32)).hex() == "00000064cbd43194"
    assert ENTRY_SIZE == 20
    assert ENTRY.pack(1 << 32, 200, -1).hex() == "0000000100000000" + "000000c8" + "f" * 16
    assert GAP_ENTRY.hex() == "0" * 16 + "7fffffff" + "0" * 16


@pytest.mark.covers("S-STORE-01", "S-STORE-03")
def test_a_store_has_the_folders_and_names_that_are_drawn(stores):
    store = stores.open()
    for number in range(60):
        put(store, bytes(100), topic="Orders", queue_id=number % 2, key=f"k{number}")
    store.checkpoint()
    layout = stores.settings.layout
    assert sorted(os.listdir(layout.root)) == [
        "abort",
        "checkpoint",
        "commitlog",
        "consumequeue",
        "ends",
        "index",
        "lock",
    ]
    files = [offset_name(begin) for begin in range(0, store.end, 4096)]
    assert sorted(os.listdir(layout.commit_log)) == files and len(files) > 3
    assert sorted(os.listdir(layout.queue("Orders", 1))) == [offset_name(0), offset_name(16 * 20)]
    (index,) = os.listdir(layout.index)
    assert re.fullmatch(r"\d{17}", index)
    assert os.stat(layout.checkpoint).st_size == 4096


def test_all_folders_above_a_store_are_known_from_the_top(tmp_path):
    layout = Layout.of("/data/mq/store", "/logs/mq/commitlog")
    assert layout.above == ["/", "/data", "/data/mq", "/logs", "/logs/mq"]
    assert Layout.of("/data/store").above == ["/", "/data", "/data/store"]
    assert Layout.of("store").above[-1].endswith("/store")
