import os
from pathlib import Path

import pytest

from sparrowmq.cli.mqadmin.java import Failure, write


def test_a_file_is_written_again_in_a_folder_that_is_made(tmp_path):
    path = tmp_path / "a" / "b"
    write(path, b"first, and longer")
    write(path, b"second")
    assert path.read_bytes() == b"second"


def test_a_link_of_another_user_is_not_followed(tmp_path):
    target, link = tmp_path / "own", tmp_path / "link"
    target.write_bytes(b"own")
    link.symlink_to(target)
    with pytest.raises(Failure, match="FileNotFoundException"):
        write(link, b"of others")
    assert target.read_bytes() == b"own"


def test_a_pipe_of_another_user_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Failure, match="FileNotFoundException"):
        write(tmp_path / "pipe", b"text")


def test_a_full_disk_is_a_failure():
    with pytest.raises(Failure, match="No space left"):
        write(Path("/dev/full"), b"text")


@pytest.mark.parametrize("name", ["..", "x" * 300])
def test_what_can_be_no_name_of_a_file_is_a_failure(tmp_path, name):
    with pytest.raises(Failure, match="FileNotFoundException"):
        write(tmp_path / "now" / name, b"text")
