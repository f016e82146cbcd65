import errno
import json
import os
import stat

import msgspec
import pytest

from sparrowmq.core import snapshot
from sparrowmq.errors import BadStore


class Counters(msgspec.Struct):
    total: int


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "topics.json"


def test_what_was_saved_is_loaded(path):
    snapshot.save(path, {"counter": 1})
    assert snapshot.load(path) == {"counter": 1}


def test_nothing_saved_is_none_not_an_error(path):
    assert snapshot.load(path) is None


def test_a_type_is_decoded_into(path):
    snapshot.save(path, Counters(3))
    assert snapshot.load(path, Counters) == Counters(3)


def test_the_content_before_is_kept_beside(path):
    snapshot.save(path, {"counter": 1})
    snapshot.save(path, {"counter": 2})
    assert json.loads(path.with_name("topics.json.bak").read_bytes())["counter"] == 1
    assert sorted(os.listdir(path.parent)) == ["topics.json", "topics.json.bak"]


@pytest.mark.parametrize("damaged", [b"", b"\0" * 4096, b'{"counter":', b"not json", b'["a list"]'])
def test_a_damaged_file_falls_back_to_the_one_before(path, damaged):
    snapshot.save(path, {"counter": 1})
    snapshot.save(path, {"counter": 2})
    path.write_bytes(damaged)
    assert snapshot.load(path) == {"counter": 1}


def test_a_missing_file_falls_back_to_the_one_before_and_that_is_told(path):
    snapshot.save(path, {"counter": 1})
    snapshot.save(path, {"counter": 2})
    path.unlink()
    told: list[str] = []
    assert snapshot.load(path, report=told.append) == {"counter": 1}
    assert "it is missing or empty" in told[0] and "topics.json.bak is used instead" in told[0]


def test_a_digit_that_changed_is_damage(path):
    snapshot.save(path, {"offset": 1024})
    snapshot.save(path, {"offset": 2048})
    path.write_bytes(path.read_bytes().replace(b"2048", b"2049"))
    told: list[str] = []
    assert snapshot.load(path, report=told.append) == {"offset": 1024}
    assert "its checksum does not match its content" in told[0]


@pytest.mark.parametrize("content", [{}, {"a": {}}, {"a": "}"}, [1], "text"])
def test_what_is_sealed_is_read_as_it_was(path, content):
    snapshot.save(path, content)
    assert snapshot.load(path, object) == content
    json.loads(path.read_bytes())


def test_what_java_wrote_has_no_checksum(path):
    path.parent.mkdir()
    path.write_text('{\n\t"counter":1\n}\n')
    assert snapshot.load(path) == {"counter": 1}


def test_on_a_full_disk_what_is_saved_takes_its_place_from_the_spare_room(path, monkeypatch):
    snapshot.save(path, {"counter": 1})
    spare = path.parent / snapshot.SPARE
    spare.write_bytes(bytes(20_000))
    synced, room = os.fsync, [20_000]

    def refuse(descriptor):
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and spare.stat().st_size == room[-1]:
            raise OSError(errno.ENOSPC, "No space left on device")
        room.append(spare.stat().st_size)
        synced(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    for number in range(2, 5):
        snapshot.save(path, {"counter": number})
        assert snapshot.load(path) == {"counter": number}
    assert spare.stat().st_size == 0
    with pytest.raises(OSError, match="No space"):
        snapshot.save(path, {"counter": 5})


def test_a_file_has_all_its_content_when_it_is_synced_and_only_then_its_name(path, monkeypatch):
    """A sync of bytes that are still in the process's buffer saves nothing from a power cut."""
    snapshot.save(path, {"counter": 1})
    synced, sizes = os.fsync, []

    def note(descriptor):
        found = os.fstat(descriptor)
        sizes.append((stat.S_ISREG(found.st_mode), found.st_size, b'"counter":7' in path.read_bytes()))
        synced(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    snapshot.save(path, {"counter": 7})
    assert sizes[0] == (True, path.stat().st_size, False)
    assert [each[::2] for each in sizes[1:]] == [(False, True)], "then the folder, for the names"


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
def test_what_cannot_be_written_leaves_the_content_before_and_nothing_else(path, monkeypatch, fault):
    snapshot.save(path, {"counter": 1})

    def refuse(descriptor):
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match=rf"{os.strerror(fault)}: '.*topics\.json\.tmp'"):
        snapshot.save(path, {"counter": 2})
    assert snapshot.load(path) == {"counter": 1}
    assert os.listdir(path.parent) == ["topics.json"]


def test_damage_everywhere_is_told_with_the_way_out(path):
    snapshot.save(path, {"counter": 1})
    path.write_bytes(b"{")
    with pytest.raises(BadStore, match=r"topics\.json cannot be read.*restore it from a backup, or delete"):
        snapshot.load(path)


def test_an_empty_file_alone_counts_as_never_saved(path):
    path.parent.mkdir()
    path.write_bytes(b"")
    assert snapshot.load(path) is None


def test_a_folder_in_the_files_place_is_told(path):
    path.mkdir(parents=True)
    with pytest.raises(BadStore, match="cannot be read"):
        snapshot.load(path)


def test_other_dialects_come_through_decode(path):
    path.parent.mkdir()
    path.write_bytes(b"{0:5}")

    def decode(content, kind):
        return kind(json.loads(content.replace(b"{0:", b'{"0":')))

    assert snapshot.load(path, decode=decode) == {"0": 5}


def test_other_dialects_are_written_through_encode(path):
    snapshot.save(path, {0: 5}, encode=lambda value: b"{0:%d}" % value[0])
    assert path.read_bytes().startswith(b"{0:5,")


class Stopped(Exception):
    """The power goes."""


@pytest.mark.parametrize(("survived", "content"), [(0, 2), (1, 2), (2, 3), (3, 3)])
def test_a_crash_at_any_step_leaves_the_old_or_the_new_content(path, monkeypatch, survived, content):
    snapshot.save(path, {"counter": 1})
    snapshot.save(path, {"counter": 2})
    steps = 0

    def stop_after(function):
        def step(*args):
            nonlocal steps
            steps += 1
            if steps > survived:
                raise Stopped
            return function(*args)

        return step

    monkeypatch.setattr(os, "fsync", stop_after(os.fsync))
    monkeypatch.setattr(os, "replace", stop_after(os.replace))
    with pytest.raises(Stopped):
        snapshot.save(path, {"counter": 3})
    monkeypatch.undo()
    assert snapshot.load(path) == {"counter": content}


def test_a_value_that_cannot_be_encoded_changes_nothing(path):
    snapshot.save(path, {"counter": 1})
    with pytest.raises(TypeError):
        snapshot.save(path, {"counter": object()})
    assert snapshot.load(path) == {"counter": 1} and not path.with_name("topics.json.tmp").exists()


def test_damage_that_a_copy_makes_up_for_is_told(path):
    snapshot.save(path, {"a": 1})
    snapshot.save(path, {"a": 2})
    told: list[str] = []
    assert snapshot.load(path, report=told.append) == {"a": 2} and not told
    path.write_bytes(path.read_bytes()[:-1])
    assert snapshot.load(path, report=told.append) == {"a": 1}
    assert len(told) == 1 and str(path) in told[0] and f"{path.name}.bak is used instead" in told[0]


def test_what_is_deleted_is_not_found_again(path):
    for counter in range(2):
        snapshot.save(path, {"counter": counter})
    path.with_name("topics.json.tmp").write_bytes(path.read_bytes())
    for _ in range(2):
        snapshot.delete(path)
        assert snapshot.load(path) is None
