import pytest

from sparrowmq.cli.mqadmin.failures import Failure
from sparrowmq.cli.mqadmin.tool_files import write


def test_a_file_is_written_again_in_a_folder_that_is_made(tmp_path):
    path = tmp_path / "a" / "b"
    write(path, b"first, and longer")
    write(path, b"second")
    assert path.read_bytes() == b"second"


@pytest.mark.guards("tool_files.write: os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW -> 577")
def test_a_link_of_another_user_is_not_followed(tmp_path):
    target, link = tmp_path / "own", tmp_path / "link"
    target.write_bytes(b"own")
    link.symlink_to(target)
    with pytest.raises(Failure, match="FileNotFoundException"):
        write(link, b"of others")
    assert target.read_bytes() == b"own"


@pytest.mark.parametrize("name", ["..", "x" * 300])
def test_what_can_be_no_name_of_a_file_is_a_failure(tmp_path, name):
    with pytest.raises(Failure, match="FileNotFoundException"):
        write(tmp_path / "now" / name, b"text")
