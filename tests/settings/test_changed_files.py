"""Changes of configuration files."""

from pathlib import Path

from sparrowmq.settings.settings_files import ChangedFiles


def test_a_change_counts_once_two_looks_have_seen_it(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    changed = ChangedFiles(lambda: [file])
    assert not changed.has_changed()
    file.write_text("newer")
    assert [changed.has_changed() for _ in range(3)] == [False, True, False]
    changed.loaded = None  # it could not be used
    assert [changed.has_changed() for _ in range(2)] == [True, False]
    file.unlink()
    assert [changed.has_changed() for _ in range(3)] == [False, True, False]
