"""sparrowmq.spark.pipelines.lake.unused_files: files go when their time has come, over restarts and failures."""

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.pipelines.lake.unused_files import UnusedFiles


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def test_files_go_when_they_have_stayed_for_long_enough_also_after_a_restart(tmp_path, clock):
    path = tmp_path / "state" / "unused.json"
    gone: list[str] = []
    notes = UnusedFiles(path, clock, clock)
    notes.note(["a"])
    clock.now_s += 60
    notes.note(["a", "b"])
    notes.save()
    notes = UnusedFiles(path, clock, clock)
    assert not notes.has_due(61) and notes.has_due(60)
    notes.remove(gone.append, 60)
    assert gone == ["a"] and not notes.has_due(60)
    clock.now_s += 60
    UnusedFiles(path, clock, clock).remove(gone.append, 60)
    assert gone == ["a", "b"] and not UnusedFiles(path, clock, clock).has_due(0)


def test_files_that_are_needed_stay_and_the_oldest_go_where_there_are_too_many(tmp_path, clock):
    notes = UnusedFiles(tmp_path / "unused.json", clock, clock)
    gone: list[str] = []
    for name in "abcde":
        notes.note([name])
        clock.now_s += 1
    notes.remove(gone.append, 3600, {"b"}, max_count=2)
    assert gone == ["a", "c"]
    clock.now_s += 3600
    notes.remove(gone.append, 3600)
    assert gone == ["a", "c", "d", "e"]


def test_a_file_that_cannot_be_removed_is_tried_again_and_one_that_is_gone_is_not(tmp_path, clock):
    notes, tried = UnusedFiles(tmp_path / "unused.json", clock, clock), []

    def delete(file):
        tried.append(file)
        if file == "gone":
            raise FileNotFoundError(file)
        if file == "busy" and tried.count("busy") == 1:
            raise PermissionError(file)

    notes.note(["gone", "busy", "last"])
    with pytest.raises(PermissionError):
        notes.remove(delete, 0)
    notes = UnusedFiles(tmp_path / "unused.json", clock, clock)
    notes.remove(delete, 0)
    assert tried == ["gone", "busy", "busy", "last"]


def test_a_file_that_was_noted_by_a_clock_that_was_ahead_goes_as_if_it_was_noted_now(tmp_path, clock):
    gone: list[str] = []
    clock.now_s += 1e9
    notes = UnusedFiles(tmp_path / "unused.json", clock, clock)
    notes.note(["a"])
    notes.save()
    clock.now_s -= 1e9
    notes.remove(gone.append, 60)
    assert not gone
    clock.now_s += 60
    assert notes.has_due(60)
    notes.remove(gone.append, 60)
    assert gone == ["a"]
