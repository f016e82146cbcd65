import contextlib
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparrowmq.cli.store import store
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
from tests.cli.terminal.test_progress_line import terminals

SIZES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}


@pytest.fixture
def settings(tmp_path):
    return StoreSettings(
        tmp_path / "store",
        commit_log_file_size=1 << 20,
        consume_queue_file_entries=1000,
        index_slots=1000,
        index_entries=4000,
    )


@pytest.fixture
def path(settings):
    """A store with some messages."""
    opened = MessageStore.open(settings)
    for number in range(50):
        opened.append(Entry("Orders", number % 4, b"x" * 100, Properties(f"KEYS\x01k{number}"), 1, bytes(8)))
    opened.publish()
    opened.close()
    return settings.path


CHANGES = [word for key, value in SIZES.items() for word in ("--set", f"{key}={value}")]


def check(path, *args):
    return CliRunner().invoke(store, ["check", str(path), *CHANGES, *args])


def test_a_sound_store_is_sound(path):
    result = check(path)
    assert result.exit_code == 0 and result.output == f"{path} is sound\n"


def test_the_sizes_may_stand_in_the_brokers_file(path, tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in SIZES.items()) + "storePathRootDir=/elsewhere\n")
    result = CliRunner().invoke(store, ["check", str(path), "-c", str(file)])
    assert result.output == f"{path} is sound\n"


def test_damage_is_told_and_the_exit_status_says_so(path):
    log = next((path / "commitlog").iterdir())
    content = bytearray(log.read_bytes())
    content[1000] ^= 0xFF
    log.write_bytes(content)
    result = check(path)
    assert result.exit_code == 1 and "the log is damaged" in result.output and "violations" in result.output


def test_a_store_that_a_broker_has_open_is_left_alone(path, settings):
    opened = MessageStore.open(settings)
    result = check(path)
    opened.close()
    assert result.exit_code == 1 and "is in use by another broker" in result.output


def test_a_folder_without_a_store_is_told(tmp_path):
    result = check(tmp_path)
    assert result.exit_code == 1 and f"there is no store at {tmp_path}" in result.output


def test_a_wrong_setting_is_told(path):
    result = check(path, "--set", "maxIndexNum=none")
    assert result.exit_code == 2 and "maxIndexNum = 'none' is wrong" in result.output


def inspect(*args):
    return CliRunner().invoke(store, ["inspect", *map(str, args)])


def test_a_store_is_shown_while_a_broker_has_it_open(path, settings):
    with MessageStore.open(settings):
        result = inspect(path)
    assert result.exit_code == 0
    assert "open in a broker" in result.output and "  Orders: 4 queues, 50 entries\n" in result.output


def test_a_part_of_a_log_file_is_shown(path):
    log = next((path / "commitlog").iterdir())
    shown = inspect(log, "--limit", 3).output.splitlines()
    assert [line.endswith("sound") for line in shown] == [False, True, True, True, False]
    following = shown[-1].split()[3]
    assert f"Orders/3 #0, {shown[3].split()[3]} bytes" in inspect(log, "--from", following).output


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("nothing", [], "is neither a file nor a folder; name one of a store"),
        ("", ["--from", "-1"], "-1 is not in the range"),
        ("commitlog/00000000000000000000", ["--from", "9999999"], "9999999 is not in it"),
    ],
)
def test_what_cannot_be_shown_is_told(path, name, args, words):
    result = inspect(path / name, *args)
    assert result.exit_code in (1, 2) and words in result.output and "Traceback" not in result.output


def run(*args):
    return CliRunner().invoke(store, [*map(str, args), *CHANGES])


def points_in(folder):
    return sorted(each for each in folder.iterdir() if each.is_dir())


def test_a_store_is_copied_while_a_broker_has_it_open_and_restored(path, settings, tmp_path):
    with MessageStore.open(settings):
        result = run("backup", path, tmp_path / "backup")
    [point] = points_in(tmp_path / "backup")
    assert result.exit_code == 0 and f"{point} has {path} up to offset" in result.output
    assert run("restore", tmp_path / "backup", path).exit_code == 1
    for number, source in enumerate((tmp_path / "backup", point)):
        assert check(source).output == f"{source} is sound\n"
        assert run("restore", source, tmp_path / f"again-{number}").exit_code == 0
        assert check(tmp_path / f"again-{number}").exit_code == 0


def test_restore_points_are_kept_and_chosen(path, tmp_path):
    results = [run("backup", path, tmp_path / "backup", "--keep", "2", "--check") for _ in range(3)]
    assert all(each.exit_code == 0 and "are shared with the point before" in each.output for each in results)
    assert "was deleted, as --keep 2 says" in results[-1].output
    older, _ = points_in(tmp_path / "backup")
    result = run("restore", tmp_path / "backup", tmp_path / "again", "--point", older.name)
    assert result.exit_code == 0 and result.output == f"{tmp_path / 'again'} is as {older}\n"
    result = run("restore", tmp_path / "backup", tmp_path / "other", "--point", "none")
    assert result.exit_code == 1 and f"has no restore point none; it has {older.name}" in result.output


def test_a_damaged_copy_is_told_and_restored_only_as_far_as_it_is_sound(path, tmp_path):
    run("backup", path, tmp_path / "backup")
    [point] = points_in(tmp_path / "backup")
    log = next((point / "commitlog").iterdir())
    content = bytearray(log.read_bytes())
    content[1000] ^= 0xFF
    log.write_bytes(content)
    result = check(tmp_path / "backup")
    assert result.exit_code == 1 and f"{log} is damaged" in result.output
    result = run("restore", point, tmp_path / "again")
    assert result.exit_code == 1 and f"{log} is damaged" in result.output
    assert "the log is damaged from offset" in result.output and "--salvage restores what is sound" in result.output
    assert not (tmp_path / "again").exists()
    result = run("restore", point, tmp_path / "again", "--salvage")
    assert result.exit_code == 0 and "missing: the messages from offset" in result.output
    assert f"{tmp_path / 'again'} has what is sound in {point}" in result.output
    assert check(tmp_path / "again").exit_code == 0


def test_a_damaged_store_is_repaired(path, settings):
    file = next(Path(settings.layout.commit_log).iterdir())
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)
    assert check(path).exit_code == 1
    result = run("repair", path)
    assert result.exit_code == 0 and "is sound; set-aside holds 1 pieces" in result.output
    assert run("repair", path.parent).exit_code == 1


def test_programs_get_what_people_get(path, settings, tmp_path):
    assert json.loads(check(path, "-o", "json").stdout) == []
    lines = CliRunner().invoke(store, ["inspect", str(path)]).stdout.splitlines()
    told = json.loads(CliRunner().invoke(store, ["inspect", str(path), "-o", "json"]).stdout)
    assert [each["line"] for each in told] == lines and len(lines) > 5
    copy = tmp_path / "copy"
    (copied,) = json.loads(CliRunner().invoke(store, ["backup", str(path), str(copy), *CHANGES, "-o", "json"]).stdout)
    assert (copied["copy"], copied["store"]) == (str(*points_in(copy)), str(path))
    assert copied["end_offset"] > 0 and copied["linked"] == 0
    next(each for each in (path / "consumequeue").rglob("*") if each.is_file()).write_bytes(b"x" * 20)
    broken = check(path, "-o", "json")
    assert broken.exit_code == 1 and all(row["violation"] for row in json.loads(broken.stdout))


def test_people_see_how_far_it_is_and_what_is_found_stands_by_itself(path, settings, tmp_path, monkeypatch):
    file = next(Path(settings.layout.commit_log).iterdir())
    with terminals() as terminal:
        seen = []
        for words in (
            ["backup", path, tmp_path / "copy"],
            ["restore", tmp_path / "copy", tmp_path / "again"],
            ["repair", path],
            ["check", path],
        ):
            if words[0] == "check":
                file.write_bytes(file.read_bytes()[:1000] + b"\xff" + file.read_bytes()[1001:])
            monkeypatch.setattr(sys, "stderr", terminal.stream)
            monkeypatch.setattr(sys, "stdout", terminal.stream)
            before = len(terminal.written())
            with contextlib.suppress(SystemExit):
                store.main([*map(str, words), *CHANGES], standalone_mode=False)
            seen.append(terminal.written()[before:])
    for text, step in zip(seen, ("copying", "copying", "reading the log", "checking the log"), strict=True):
        assert text.startswith(f"{step}   ") and "%" in text
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in seen[-1].rstrip().split("\n")]
    assert lines[0].startswith("the log is damaged from offset") and lines[-1].endswith(" violations")
