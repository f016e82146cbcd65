"""A file with secrets, replaced over a real disk."""

import os
import stat
from contextlib import suppress

import pytest

from sparrowmq.auth.account_files import replace_secret_file

OLD, NEW = b"old", b"the new content"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    path.write_bytes(OLD)
    path.chmod(0o600)
    return path


class Killed(Exception):
    """The process is gone."""


@pytest.mark.parametrize(("step", "survived", "content"), [("fsync", 0, OLD), ("replace", 0, OLD), ("fsync", 1, NEW)])
def test_a_kill_at_any_step_leaves_the_old_file_or_the_new_one(file, monkeypatch, step, survived, content):
    real, steps = getattr(os, step), 0

    def kill_after(*args):
        nonlocal steps
        steps += 1
        if steps > survived:
            monkeypatch.setattr(os, "unlink", lambda _: None)  # who is killed does not tidy up
            raise Killed
        return real(*args)

    monkeypatch.setattr(os, step, kill_after)
    with suppress(Killed):
        replace_secret_file(file, NEW)
    monkeypatch.undo()
    assert file.read_bytes() == content
    assert {stat.S_IMODE(each.stat().st_mode) for each in file.parent.iterdir()} == {0o600}
    replace_secret_file(file, NEW)
    assert file.read_bytes() == NEW and os.listdir(file.parent) == [file.name]


@pytest.mark.parametrize("mode", [None, 0o600, 0o640, 0o400])
def test_it_is_never_for_other_eyes_than_before(file, monkeypatch, mode):
    if mode is None:
        file.unlink()
    else:
        file.chmod(mode)
    file.with_name("plain_acl.yml.tmp").write_text("left by a process that was killed")
    real, modes = os.fsync, set()

    def look(descriptor):
        found = os.fstat(descriptor).st_mode
        if stat.S_ISREG(found):
            modes.add(stat.S_IMODE(found))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    replace_secret_file(file, NEW)
    assert modes == {stat.S_IMODE(file.stat().st_mode)} == {mode or 0o600}


def test_a_link_to_it_stays_one(file, tmp_path):
    link = tmp_path / "link.yml"
    link.symlink_to(file)
    replace_secret_file(link, NEW)
    assert link.is_symlink() and file.read_bytes() == NEW
    assert sorted(os.listdir(tmp_path)) == ["conf", "link.yml"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_what_fails_leaves_the_old_file_and_is_told_with_its_name(file, monkeypatch, step):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match=r"No space .*plain_acl.yml'"):
        replace_secret_file(file, NEW)
    assert file.read_bytes() == OLD and os.listdir(file.parent) == [file.name]
