from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq.errors import BadStore
from sparrowmq.store.care.inspect import check_piece_name, read_piece
from tests.records import encoded


def piece(folder: Path, begin: int, content: bytes, why: str = "lost") -> Path:
    """Write a piece of a log, as it lies in set-aside."""
    path = folder / f"{begin:020d}-{begin + len(content):020d}.{why}"
    path.write_bytes(content)
    return path


def test_sound_messages_and_damage_are_found_and_unused_bytes_are_neither(tmp_path: Path) -> None:
    size = len(encoded(body=b"0"))
    records = [encoded(body=b"%d" % number, physical_offset=5000 + number * size) for number in range(3)]
    records[1] = records[1].replace(b"\0\0\0\1" + b"1", b"\0\0\0\1" + b"?")
    found = list(read_piece(piece(tmp_path, 5000, b"".join(records) + bytes(500))))
    assert [(each.offset, each.size) for each in found] == [(5000 + number * size, size) for number in range(3)]
    assert [each.message and each.message.body for each in found] == [b"0", None, b"2"]


def test_a_piece_of_damage_alone_has_no_message(tmp_path: Path) -> None:
    (damage,) = read_piece(piece(tmp_path, 0, b"x" * 700))
    assert damage.message is None and damage.size == 700


@pytest.mark.parametrize("name", ["20261123034522001.index", "broker.conf", f"{0:020d}"])
def test_other_files_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(BadStore, match="is no piece of a log"):
        check_piece_name(tmp_path / name)
    with pytest.raises(BadStore, match="there is no file"):
        check_piece_name(tmp_path / "away")
    check_piece_name(piece(tmp_path, 0, b"x"))
