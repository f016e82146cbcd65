import random
import shutil
from pathlib import Path

import pytest

from sparrowmq.errors import BadStore
from sparrowmq.store.care.inspect import describe
from sparrowmq.store.layout import BLANK, ENTRY, GAP_ENTRY
from tests.golden import STORES
from tests.golden.stores import LONG_TOPIC
from tests.store.stores import descriptors, put

VERSIONS = ["4.9.7", "4.9.7-killed", "5.4.0", "5.4.0-crc"]


@pytest.fixture
def copy(tmp_path):
    """`copy("5.4.0")`: a store of Java that may be damaged."""
    return lambda version: Path(shutil.copytree(STORES / version, tmp_path / version))


@pytest.fixture
def log(copy):
    """A file of 23 records, at 0, 259, 501, ..., 7674, and of a blank at 8040."""
    return copy("5.4.0") / "commitlog" / f"{0:020d}"


def words(path, **how):
    """What is said by the number it is said of, and what is said at the end."""
    lines = list(describe(path, **how))[1:]
    numbered = {int(line[:12]): line[14:] for line in lines if line[:12].strip().isdigit()}
    return numbered, lines[-1].strip()


def change(path, at, content):
    data = bytearray(path.read_bytes())
    data[at : at + len(content)] = content
    path.write_bytes(data)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_record_of_java_is_sound(version):
    before = descriptors()
    for path in sorted((STORES / version / "commitlog").iterdir()):
        said, _ = words(path)
        assert all(line.endswith("sound") or line.startswith(("blank", "unused")) for line in said.values())
    assert descriptors() == before


def test_a_record_is_told_with_all_that_finds_it(log):
    said, end = words(log)
    assert said[0].startswith("StoreTopic/0 #0, 259 bytes with a body of 5, stored 2026-11-20 ")
    assert said[0].endswith(", tag TagA, keys key-1 key-2, id 7F000001000000000000000000000001, sound")
    assert "tag 标签, keys 键," in said[259]
    assert ", committed, " in said[1146]
    assert said[8040] == "blank, 152 bytes: the log continues in the next file"
    assert end == "23 sound records"


def test_what_is_unused_and_a_long_topic_are_told():
    said, _ = words(STORES / "5.4.0" / "commitlog" / f"{8192:020d}")
    assert said[9719] == "unused up to 16384"
    assert said[8924].startswith(f"{LONG_TOPIC}/0 #0,")


@pytest.mark.parametrize(
    ("at", "content", "place", "expected"),
    [
        (259 + 90, b"?", 259, "DAMAGED up to 501: its CRC does not fit its body (StoreTopic/0 #1, 242 bytes"),
        (259, b"\0" * 8, 259, "DAMAGED up to 501: there should be a record; found magic 0x00000000 and size 0"),
        (259, b"\0\0\1\0", 259, "DAMAGED up to 501: its parts do not add up to its size"),
        (259, b"\0\0\0\5", 259, "DAMAGED up to 501: there should be a size from 91 to 7925, found 5"),
        (
            259,
            b"\x7f\0\0\0",
            259,
            "DAMAGED up to 501: there should be a size from 91 to 7925, found 2130706432",
        ),
        (259 + 84, b"\x7f\0\0\0", 259, "DAMAGED up to 501: its body does not fit into it"),
        (259 + 28, b"\xff", 259, "DAMAGED up to 501: its own offset is"),
        (7674 + 95, b"?", 7674, "DAMAGED up to 8040: its CRC does not fit its body (StoreTopic/1 #8,"),
    ],
)
def test_damage_is_told_and_passed_over(log, at, content, place, expected):
    change(log, at, content)
    said, end = words(log)
    assert said[place].startswith(expected)
    assert said[8040].startswith("blank")
    assert end == "22 sound records, damage in 1 place"


def test_a_body_full_of_records_does_not_mislead_the_search_behind_damage(stores):
    with stores.open() as store:
        inner = bytes(store.record_at(put(store, b"inner")[0]))
        outer = put(store, inner * 3)[0]
        behind = put(store, b"behind")[0]
    log = Path(stores.settings.layout.commit_log) / f"{0:020d}"
    change(log, outer, b"\0" * 8)
    stores.leave_damaged()
    said, _ = words(log)
    assert said[outer].startswith(f"DAMAGED up to {behind}: ") and said[behind].endswith("sound")


def test_from_the_middle_of_a_record_the_next_one_is_found(log):
    said, end = words(log, start=300)
    assert said[300].startswith("no sound record begins here: ") and said[300].endswith("up to 501 there is none")
    assert said[501].endswith("sound") and end == "21 sound records"


def test_a_file_that_was_cut_short_is_read_to_its_end(log):
    log.write_bytes(log.read_bytes()[:400])
    said, end = words(log)
    assert said[259] == "DAMAGED up to 400: there should be a size from 91 to 133, found 242"
    assert end == "1 sound record, damage in 1 place"


def test_a_record_without_the_crc_that_the_checkpoint_promises_is_damaged(stores):
    with stores.open() as store:
        put(store)
        second = put(store, b"second", tag="A")[0]
        end = store.end
    log = Path(stores.settings.layout.commit_log) / f"{0:020d}"
    change(log, end - 20, b"\0" * 20)
    stores.leave_damaged()
    assert "it has no CRC over all of its bytes" in words(log)[0][second]


def test_a_piece_in_set_aside_is_told_like_the_log(log, tmp_path):
    content = log.read_bytes()
    piece = tmp_path / "set-aside" / f"{7674:020d}-{8208:020d}.cut"
    piece.parent.mkdir()
    following = (log.parent / f"{8192:020d}").read_bytes()
    piece.write_bytes(content[7674:] + following[:366])
    said, end = words(piece)
    assert list(said) == [7674, 8040, 8192] and end == "2 sound records"


def test_control_characters_of_a_sender_do_not_reach_the_terminal(stores):
    with stores.open() as store:
        put(store, tag="\x1b[2J\n", key="\x07" + "k" * 1000)
    log = Path(stores.settings.layout.commit_log) / f"{0:020d}"
    (line,) = [line for line in describe(log) if line.endswith("sound")]
    assert line.isprintable() and r"tag '\x1b[2J\n'" in line and len(line) < 600


def test_entries_of_a_queue_are_told():
    said, _ = words(STORES / "4.9.7" / "consumequeue" / "StoreTopic" / "0" / f"{160:020d}")
    assert said[8] == "log offset 4633, 316 bytes, tags code 2598919"
    assert list(said) == [8, 9, 10, 11, 12, 13] and said[13] == "unused up to 16"


def test_an_entry_of_the_schedule_tells_when_it_is_due():
    said, _ = words(STORES / "4.9.7" / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "2" / f"{0:020d}")
    assert said[0].startswith("log offset 576, 242 bytes, due 2026-11-20 ")


def test_gaps_holes_and_wrong_entries_of_a_queue_are_told(copy):
    queue = copy("4.9.7") / "consumequeue" / "StoreTopic" / "0" / f"{0:020d}"
    change(queue, 0, GAP_ENTRY * 2 + ENTRY.pack(700, 0, 0) + ENTRY.pack(600, 9, 0) + bytes(40))
    queue.write_bytes(queue.read_bytes() + b"xyz")
    said, end = words(queue)
    assert said[0] == "gap up to 2"
    assert said[2].endswith("WRONG: no size of a record")
    assert said[3].endswith("WRONG: not behind the entry before it, of offset 700")
    assert said[4] == "unused up to 6, though entries follow"
    assert list(said) == [0, 2, 3, 4, 6, 7] and end == "3 bytes behind the last whole entry"


def test_entries_of_an_index_are_told_whatever_number_of_slots_it_has(copy):
    (path,) = (copy("5.4.0") / "index").iterdir()
    assert next(describe(path)).startswith("index, 79 entries in 38 slots of 64, log offsets 0 to 9446, stored")
    said, _ = words(path, start=12, limit=1)
    assert said[12].startswith("hash 495126185 (slot 41), log offset 1146, stored about 2026-11-20 ")
    assert said[12].endswith(", after entry 11")
    change(path, 40 + 64 * 4 + 12 * 20 + 16, b"\0\0\0\x0c")
    assert words(path, start=12, limit=1)[0][12].endswith(", after entry 12, WRONG")
    change(path, 24, b"\x7f")
    assert "the entries do not end where the header says" in words(path)[1]


def test_an_index_without_entries_is_told(copy):
    (path,) = (copy("5.4.0") / "index").iterdir()
    path.write_bytes(bytes(path.stat().st_size))
    assert list(describe(path)) == ["index, 0 entries in 0 slots"]


def test_a_checkpoint_of_java_and_one_of_ours_are_told(stores):
    java = list(describe(STORES / "4.9.7" / "checkpoint"))
    assert java[1].startswith("  log: on disk up to 2026-11-20 ")
    assert java[3:] == [
        "  index: on disk up to an unknown time",
        "  no offsets: Java wrote it last, or it is damaged",
    ]
    with stores.open() as store:
        put(store, key="k")
        end = store.end
    ours = list(describe(stores.settings.layout.checkpoint))
    assert f"  log: on disk up to offset {end}; a start reads it from 0" in ours
    assert "  records from offset 0 on have a CRC over all of their bytes" in ours


def test_abort_and_lock_are_explained(stores):
    with stores.open() as store:
        put(store)
        store.flush()
        abort, lock = (
            list(describe(stores.settings.layout.abort)),
            list(describe(stores.settings.layout.lock)),
        )
    assert abort == [
        "abort, 1024 bytes",
        "  a broker has the store open, or did not close it in order",
        f"  log: on disk up to offset {store.end}, by the last sync",
    ]
    assert lock[1] == "  locked while a broker has the store open; that the file exists says nothing"


def test_json_in_javas_dialect_is_told_entry_by_entry(tmp_path):
    lines = list(describe(STORES / "4.9.7" / "config" / "consumerOffset.json"))
    assert lines[1:] == ["  offsetTable: 1 entry", "    StoreTopic@store-group: 0=3, 1=3"]
    broken = tmp_path / "topics.json.bak"
    broken.write_text('{"topics')
    assert list(describe(broken))[1].startswith("  DAMAGED: ")


@pytest.mark.parametrize("version", VERSIONS)
def test_no_damage_whatever_ends_in_anything_but_words(copy, version):
    root = copy(version)
    chance = random.Random(20_261_120)
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        content = path.read_bytes()
        for _ in range(40):
            damaged = bytearray(content[: chance.choice([len(content), chance.randrange(len(content) + 1)])])
            for _ in range(chance.randrange(20) if damaged else 0):
                damaged[chance.randrange(len(damaged))] = chance.choice([0, 0x30, 0x7F, chance.randrange(256)])
            path.write_bytes(damaged)
            try:
                assert all(line.isprintable() for line in describe(path)), path
            except BadStore as bad:
                assert "no file of a store" in str(bad)  # of an unknown name, and no first byte of JSON
        assert all(line.isprintable() for line in describe(root))
        path.write_bytes(content)


def test_a_blank_that_does_not_reach_the_end_is_damage(log):
    change(log, 8040, BLANK.pack(100, BLANK.unpack(log.read_bytes()[8040:8048])[1]))
    assert words(log)[0][8040].startswith(
        "DAMAGED up to 8048: there should be a record; found magic 0xcbd43194 and size 100"
    )
