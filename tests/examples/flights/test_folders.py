import pytest

from examples.flights.folders import Folders
from sparrowmq.errors import ConfigError


def fill(folders: Folders) -> None:
    for path in (folders.flights_table, folders.statistics_table, folders.store):
        path.mkdir()
        (path / "file").write_text("something")


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_by_default_everything_goes_to_a_new_temporary_folder(tmp_path):
    one, other = Folders(), Folders()
    assert one.out.parent == other.out.parent == tmp_path
    assert one.out != other.out


def test_a_chosen_folder_is_made(tmp_path):
    folders = Folders(tmp_path / "a" / "b")
    assert folders.work.is_dir()
    assert folders.out == tmp_path / "a" / "b"


@pytest.mark.parametrize("name", ["flights_table", "statistics_table", "store", "work"])
def test_a_folder_with_an_earlier_runs_files_is_refused(tmp_path, name):
    (tmp_path / "out" / name).mkdir(parents=True)
    with pytest.raises(ConfigError, match=f"{name} is there already; remove it, or choose another"):
        Folders(tmp_path / "out")


def test_other_files_in_a_chosen_folder_do_not_matter(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    folders = Folders(tmp_path)
    fill(folders)
    folders.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write to"):
        Folders(tmp_path / "file")


def test_a_good_run_leaves_the_tables_and_in_a_chosen_folder_the_store(tmp_path):
    for out, kept in ((None, set()), (tmp_path / "chosen", {"store"})):
        folders = Folders(out)
        fill(folders)
        folders.keep_tables()
        assert {path.name for path in folders.out.iterdir()} == {"flights_table", "statistics_table", *kept}


def test_a_stopped_run_leaves_no_temporary_folder():
    folders = Folders()
    fill(folders)
    folders.remove()
    assert not folders.out.exists()
