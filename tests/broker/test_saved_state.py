import asyncio
import json

import pytest

from sparrowmq.broker.change_log import ChangeLog
from sparrowmq.broker.saved_state import SavedFile
from sparrowmq.errors import RemoteError


@pytest.fixture
def content():
    return {"n": 0}


@pytest.fixture
def file(tmp_path, content):
    return SavedFile(tmp_path / "config" / "state.json", lambda: dict(content))


async def test_nothing_is_written_before_something_changes(file):
    await file.save()
    assert not file.path.exists()


async def test_a_change_is_written_once(file, content):
    file.touch()
    assert file.dirty
    await file.save()
    assert not file.dirty
    assert json.loads(file.path.read_text())["n"] == 0
    content["n"] = 1
    await file.save()
    assert json.loads(file.path.read_text())["n"] == 0, "nobody said that it changed"


async def test_a_change_during_a_save_is_not_lost(file, content):
    file.touch()
    saving = asyncio.create_task(file.save())
    await asyncio.sleep(0)
    content["n"] = 1
    file.touch()
    await saving
    assert file.dirty
    await file.save()
    assert json.loads(file.path.read_text())["n"] == 1


async def test_saves_at_the_same_time_wait_for_each_other(file, content):
    file.touch()
    await asyncio.gather(file.save(), file.save(), file.save())
    assert not file.dirty


async def test_a_save_that_fails_is_tried_again_by_the_next(file):
    file.path.parent.write_text("in the way")
    file.touch()
    with pytest.raises(OSError):
        await file.save()
    assert file.dirty
    file.path.parent.unlink()
    await file.save()
    assert file.path.exists()


class SafeLog(ChangeLog):
    async def wait_until_safe(self, done_text: str) -> bool:
        return True


async def test_a_change_that_the_log_has_is_safe_without_its_file(tmp_path):
    file = SavedFile(tmp_path / "config" / "state.json", dict, change_log=SafeLog())
    file.path.parent.mkdir()
    file.path.with_name("state.json.tmp").symlink_to("/dev/full")
    file.touch()
    await file.confirm("the number is set")
    assert file.dirty and not file.path.exists()


async def test_a_change_that_cannot_be_saved_is_told_kept_and_saved_later(file, content, caplog):
    await file.confirm("nothing is changed")
    file.path.parent.mkdir()
    file.path.with_name("state.json.tmp").symlink_to("/dev/full")
    content["n"] = 7
    file.touch()
    with pytest.raises(RemoteError, match="the number is set and in effect, but not saved: ") as caught:
        await file.confirm("the number is set")
    assert f"{file.path} could not be written (No space left on device)" in str(caught.value)
    assert "free some space" in str(caught.value) and "the change is lost" in str(caught.value)
    assert "state.json could not be written (No space left on device); it is tried again" in caplog.text
    assert file.dirty and not file.path.exists()
    await file.save()
    assert json.loads(file.path.read_text())["n"] == 7
