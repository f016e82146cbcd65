"""A file of lines that begins again when it is large."""

import pytest

from sparrowmq.auth import rotated_file
from sparrowmq.auth.rotated_file import RotatedFile, denials_file


@pytest.fixture
def file(tmp_path):
    return RotatedFile(tmp_path / "logs" / "audit.log")


def test_the_file_of_denials_lies_beside_the_audit_log(tmp_path):
    assert denials_file(tmp_path / "access.log") == tmp_path / "access-denied.log"
    assert denials_file(tmp_path / "access") == tmp_path / "access-denied"


def test_files_are_rotated_and_few_are_kept(file, monkeypatch):
    monkeypatch.setattr(rotated_file, "MAX_FILE_BYTES", 3)
    for number in range(8):
        file.add(f"line {number}")
        file.write()
    paths = sorted(file.path.parent.iterdir())
    assert [path.name for path in paths] == ["audit.log"] + [f"audit.log.{number}" for number in (1, 2, 3, 4)]
    assert [path.read_text() for path in paths] == [f"line {number}\n" for number in (7, 6, 5, 4, 3)]


def test_a_file_that_cannot_be_written_costs_its_lines_and_is_reported_once(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    file = RotatedFile(tmp_path / "file" / "audit.log")
    for _ in range(3):
        file.add("line")
        file.write()
    assert file.lost_lines == 3
    assert sum("cannot be written" in record.getMessage() for record in caplog.records) == 1
    assert "file is a file, and should be a folder; move it away): 3 lines are lost" in file.problem
    assert file.is_due
    (tmp_path / "file").unlink()
    file.write()
    assert file.problem == "" and not file.is_due, "although there was no line to write"


def test_lines_that_wait_are_limited(file, monkeypatch):
    monkeypatch.setattr(rotated_file, "_MAX_WAITING_LINES", 2)
    for number in range(5):
        file.add(f"line {number}")
    file.write()
    assert file.lost_lines == 3 and file.path.read_text() == "line 0\nline 1\n"
