import asyncio
import json

import pytest

from sparrowmq.broker.saved import SavedFile


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
    assert json.loads(file.path.read_text()) == {"n": 0}
    content["n"] = 1
    await file.save()
    assert json.loads(file.path.read_text()) == {"n": 0}, "nobody said that it changed"


async def test_a_change_during_a_save_is_not_lost(file, content):
    file.touch()
    saving = asyncio.create_task(file.save())
    await asyncio.sleep(0)
    content["n"] = 1
    file.touch()
    await saving
    assert file.dirty
    await file.save()
    assert json.loads(file.path.read_text()) == {"n": 1}


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
