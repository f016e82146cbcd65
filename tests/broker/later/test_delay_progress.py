"""The progress of delay levels, found again after crashes that take any part of the log and of the file."""

import random

import pytest

from sparrowmq.broker.delayed.delay import MAX_UNSAVED_BYTES, DelayProgress
from sparrowmq.errors import BadStore
from sparrowmq.protocol.requests.offset_bodies import DelayOffsets
from sparrowmq.protocol.wire import json
from tests.broker.later.delaying import Delaying
from tests.store.stores import message

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def progress(it):
    """The progress by the files of a store, read to the log's end."""
    found = DelayProgress(it.store, it.file)
    while not found.search_some():
        pass
    return found.offsets


def waiting(it):
    """The bodies of all messages that the log has parked."""
    return sorted(
        each.body
        for queue in it.store.queues
        if queue.topic == SCHEDULE
        for each in it.delivered(SCHEDULE, queue.queue_id)
    )


class Lives:
    """A store that is killed again and again, while its log and its file lose what a crash or a failover may take."""

    def __init__(self, path, clock, seed):
        self.path, self.clock, self.random = path, clock, random.Random(seed)
        self.sent = 0
        self.files: list[tuple[int, bytes]] = []  # saved ones, with the log's end
        self.ends: list[int] = [0]
        self.cut_at: int | None = None
        self.is_javas = False  # whether the file is as Java writes it

    async def life(self):
        it = Delaying(self.path, self.clock, cut_at=self.cut_at)
        if self.is_javas:  # it does not say to which log it belongs, so it is replaced soon
            await it.delayed.delivery.run_due()
            await it.save()
        for _ in range(self.random.randrange(1, 12)):
            match self.random.randrange(5):
                case 0 | 1:
                    for _ in range(self.random.randrange(1, 20)):
                        it.send(b"%06d" % self.sent, self.random.choice((1, 2, 2, 3)))
                        self.sent += 1
                        self.ends.append(it.store.end)
                case 2:
                    await self.clock.advance(self.random.choice((0.5, 1, 3, 7)))
                case 3:
                    await it.delayed.delivery.run_due()
                case 4:
                    await it.save()
                    if it.file.exists():
                        self.files.append((it.store.end, it.file.read_bytes()))
            self.ends.append(it.store.end)
        end = it.store.end
        it.kill()
        self._lose(it.file, end)

    def _lose(self, file, end):
        """Take some of the log's end, and an older file, none, or one as Java writes it."""
        self.cut_at, self.is_javas = None, False
        if self.random.random() < 0.4:
            self.cut_at = self.random.choice([each for each in self.ends if each <= end])
        kept = end if self.cut_at is None else self.cut_at
        self.ends = [each for each in self.ends if each <= kept]
        match self.random.randrange(5):
            case 0:
                for each in file.parent.glob("delayOffset*"):
                    each.unlink()
            case 1 if self.files:
                file.write_bytes(self.random.choice(self.files)[1])
            case 2 if older := [content for at, content in self.files if at <= kept]:
                table = json.decode(self.random.choice(older), DelayOffsets).offset_table
                file.write_bytes(DelayOffsets(table).encode())
                self.is_javas = True
        self.files = [each for each in self.files if each[0] <= kept]

    async def end(self):
        it = Delaying(self.path, self.clock, cut_at=self.cut_at)
        await self.clock.advance(30)
        await it.delayed.delivery.run_due()
        assert sorted(it.bodies()) == waiting(it)
        it.store.close()


@pytest.mark.parametrize("seed", range(12))
async def test_each_parked_message_is_delivered_once_in_whatever_crashes_leave(tmp_path, clock, seed):
    lives = Lives(tmp_path, clock, seed)
    for _ in range(12):
        await lives.life()
    await lives.end()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 106))
async def test_each_parked_message_is_delivered_once_in_longer_lives(tmp_path, clock, seed):
    lives = Lives(tmp_path, clock, seed)
    for _ in range(40):
        await lives.life()
    await lives.end()


async def test_a_file_that_is_newer_than_the_log_is_corrected_before_the_log_grows(tmp_path, clock):
    it = Delaying(tmp_path, clock)
    for number in range(3):
        it.send(b"%d" % number, 1)
    parked = it.store.end
    await clock.advance(2)
    await it.delayed.delivery.run_due()
    await it.save()
    assert json.decode(it.file.read_bytes(), DelayOffsets).log_offset == it.store.end
    it.kill()
    it = Delaying(tmp_path, clock, cut_at=parked)
    assert json.decode(it.file.read_bytes(), DelayOffsets).offset_table == {}
    for number in range(3, 100):
        it.send(b"%d" % number, 2)
    it.kill()
    it = Delaying(tmp_path, clock)
    await it.delayed.delivery.run_due()
    assert it.bodies() == [b"0", b"1", b"2"]
    it.store.close()


async def test_a_start_reads_only_the_log_behind_the_newest_point_and_nothing_if_nothing_waits(tmp_path, clock):
    it = Delaying(tmp_path, clock)
    it.send(b"quick", 1)
    it.send(b"slow", 9)
    await clock.advance(2)
    await it.delayed.delivery.run_due()
    await it.save()
    saved = it.store.end
    found = DelayProgress(it.store, it.file)
    assert found._search_from() == saved
    assert progress(it) == {1: 1}
    await clock.advance(3600)
    await it.delayed.delivery.run_due()
    assert progress(it) == {1: 1, 9: 1}
    await it.save()
    it.send(b"next", 1)
    it.send(b"after", 1)
    assert DelayProgress(it.store, it.file)._search_from() < it.store.end
    await clock.advance(2)
    await it.delayed.delivery.run_due()
    await it.save()
    assert DelayProgress(it.store, it.file)._search_from() == it.store.end
    it.store.close()


async def test_a_point_is_saved_while_a_message_waits_and_the_log_grows(tmp_path, clock):
    it = Delaying(tmp_path, clock)
    it.send(b"slow", 18)
    await it.delayed.delivery.run_due()
    await it.save()
    assert not it.file.exists()
    while it.store.end < MAX_UNSAVED_BYTES:
        it.store.append(message(bytes(500_000)))
    await it.save()
    assert json.decode(it.file.read_bytes(), DelayOffsets).log_offset == it.store.end
    it.store.close()


def test_a_slave_takes_the_progress_when_its_own_log_is_on_disk_there(tmp_path, clock):
    it = Delaying(tmp_path, clock)
    slave = DelayProgress(it.store, it.file)
    slave.follow(DelayOffsets({1: 1}, log_offset=100, needed=50, log_end=150))
    far = DelayOffsets({1: 9}, log_offset=1_000_000, needed=999_000, log_end=1_000_100)
    slave.follow(far)
    assert slave.content() == DelayOffsets()
    it.send(b"one", 1)
    it.store.flush()
    assert it.store.end > 150
    slave.follow(far)
    assert slave.content() == DelayOffsets({1: 1}, log_offset=100) and slave.file.dirty
    slave.follow(far)
    assert slave.content() == DelayOffsets({1: 1}, log_offset=100)
    it.store.close()


def test_a_slave_keeps_its_progress_if_a_new_master_has_an_older_one(tmp_path, clock):
    it = Delaying(tmp_path, clock)
    slave = DelayProgress(it.store, it.file)
    it.send(b"one", 1)
    it.store.flush()
    slave.follow(DelayOffsets({1: 1}, log_offset=100, needed=50, log_end=150))
    slave.follow(DelayOffsets({}, needed=0, log_end=150))
    slave.follow(DelayOffsets({2: 1}, log_offset=90, needed=0, log_end=150))
    assert slave.content() == DelayOffsets({1: 1}, log_offset=100)
    it.store.close()


async def test_a_damaged_queue_delays_the_search_and_does_not_end_it(tmp_path, clock, monkeypatch):
    it = Delaying(tmp_path, clock)
    it.send(b"one", 1)
    found = DelayProgress(it.store, it.file)
    with monkeypatch.context() as patch:

        def fails(*_):
            raise BadStore("the queue cannot be read")

        patch.setattr(type(it.store), "collect_prepared", fails)
        with pytest.raises(BadStore):
            found.search_some()
    while not found.search_some():
        pass
    assert found.offsets == {}
    it.store.close()
