"""Committed batches on their way to their queues: large ones, damaged ones, and those for which there is no room."""

import pytest

from sparrowmq.broker.staging import staged_batches
from sparrowmq.errors import DiskFull
from sparrowmq.store.appender import FULL_PAUSE_S
from tests.broker.rotting import rot
from tests.broker.staging.stagers import Broker, source


async def test_messages_that_do_not_fit_one_file_of_the_log_go_one_by_one(tmp_path, clock):
    it = Broker(tmp_path / "small", clock, log_file_size=4096)
    bodies = [str(number) * 20 for number in range(10, 28)]
    it.stage(source(), "a", 0, *bodies)
    it.commit(source(), a=1)
    it.publish()
    assert it.bodies() == bodies
    it.store.close()


async def test_killed_twice_while_it_is_published_it_still_appears_once(tmp_path, it):
    for number in range(4):
        it.stage(source(), "a", number, f"{number}-0", f"{number}-1")
    it.commit(source(), a=4)
    it.staging.publishing.publish_some()
    first = it.kill(tmp_path / "first")
    first.staging.publishing.publish_some()
    first.staging.publishing.publish_some()
    second = first.kill(tmp_path / "second")
    second.publish()
    assert second.bodies() == [f"{number}-{half}" for number in range(4) for half in (0, 1)]
    first.store.close()
    second.store.close()


@pytest.mark.parametrize("begin", ["", "ä"])
async def test_a_large_piece_is_published_in_parts_and_appears_once(tmp_path, it, monkeypatch, begin):
    monkeypatch.setattr(staged_batches, "PART", 4)
    monkeypatch.setattr(staged_batches, "PART_OF_ENTRIES", 4)
    bodies = [f"{begin}{number}" for number in range(10)]
    it.stage(source(), "a", 0, *bodies)
    it.commit(source(), a=1)
    for end in (4, 8, 10):
        it.staging.publishing.publish_some()
        assert it.bodies() == bodies[:end]
        found = it.kill(tmp_path / str(end))
        found.publish()
        assert found.bodies() == bodies
        found.store.close()


async def test_a_full_disk_puts_the_batch_off_and_loses_and_doubles_nothing(tmp_path, it, clock):
    it.stage(source(), "a", 0, "1", "2")
    it.stage(source(), "a", 1, "3")
    it.commit(source(), a=2)
    found = it.kill(tmp_path / "killed")
    found.store.appender.stall(DiskFull("/store", "no room"))
    for _ in range(2):
        with pytest.raises(DiskFull):
            found.staging.publishing.publish_some()
    await clock.advance(FULL_PAUSE_S + 1)
    found.publish()
    assert found.bodies() == ["1", "2", "3"]
    found.store.close()


async def test_a_batch_with_a_damaged_record_waits_until_it_is_mended_and_those_of_others_do_not(it, clock, caplog):
    it.stage(source(), "a", 0, "1")
    it.stage(source(), "a", 1, "2")
    it.commit(source(), a=2)
    it.stage(source(1), "b", 0, "3")
    it.commit(source(1), b=1)
    it.stage(source(writer="another"), "c", 0, "4")
    it.commit(source(writer="another"), c=1)
    it.store.publish()
    mend = rot(it.path, b"id-2")
    for _ in range(2):
        it.publish()
        await clock.advance(61)
    assert it.bodies() == ["1", "4"]
    (told,) = [each.getMessage() for each in caplog.records]
    assert "batch 0 of query waits; retrying each minute: " in told
    mend()
    it.publish()
    assert it.bodies() == ["1", "4", "2", "3"]


async def test_message_that_became_too_long_is_left_out_and_ends_no_broker(tmp_path, clock, caplog):
    first = Broker(tmp_path / "store", clock)
    longest = "x" * 32_700
    first.stage(source(), "a", 0, "1", longest, "2")
    first.commit(source(), a=1)
    first.store.close()
    renamed = Broker(tmp_path / "store", clock, cluster="c" * 100)
    renamed.publish()
    assert renamed.bodies() == ["1", "2"]
    assert "a message of a committed batch cannot be stored" in caplog.text
    renamed.store.close()
