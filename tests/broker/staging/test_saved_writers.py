"""sparrowmq.broker.staging.writers: a writer is known as long as it is remembered, whatever retention deletes."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from sparrowmq.broker.saved_state import records_from
from sparrowmq.broker.staging import staged_batches
from sparrowmq.broker.staging.staged_batches import FORGOTTEN_MS
from sparrowmq.broker.staging.writers import REMEMBERED_RUNS, Source, json_of
from sparrowmq.errors import DiskFull, RemoteError
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.requests.headers import CommitBatch, StageBatch
from sparrowmq.remoting.session import Session
from sparrowmq.store.message_store import MessageStore
from sparrowmq.testing.clock import ManualClock
from tests.broker.conftest import until
from tests.broker.replication.pairs import pair
from tests.broker.staging.stagers import BORN, Broker, source

FILE = 1 << 16


@pytest.fixture
def it(tmp_path: Path, clock: ManualClock):
    broker = Broker(tmp_path / "store", clock, FILE)
    yield broker
    broker.store.close()


def next_file(it: Broker) -> None:
    """Fill the file of the log that is being written."""
    count = len(it.store._log.row.files)
    while len(it.store._log.row.files) == count:
        it.writer.put(Entry("other", 0, bytes(20_000), Properties(), 1, BORN))


def expire(store: MessageStore) -> None:
    """Delete all files of the log but the last one, as retention does."""
    store.checkpoint()
    store._checkpointer.note_deletion_before(store._log.row.files[-1].begin)
    while len(store._log.row.files) > 1:
        store._log.row.drop_first()
    for queue in store.queues:
        queue.forget_before(store.begin, store._checkpointer.written_offset)


def kept(it: Broker) -> list[str]:
    """The writers that have a record of their whole state, one for each."""
    found = [message.properties for message in staged(it)]
    return [said["STAGED_WRITER"] for said in found if said["STAGED_KIND"] == "kept"]


def staged(it: Broker):
    it.store.publish()
    return list(map(record.decode, records_from(it.store, "rmq_sys_STAGED", 0, 0)))


def write(it: Broker, given: Source, body: str, **others: dict[str, int]) -> bool:
    it.stage(given, "a", 0, body)
    decided = it.staging.commit(given, {"a": 1}, others or None, f"plan-{given.batch}")
    it.publish()
    return decided.is_repeated


async def test_a_broker_without_the_file_knows_a_writer_whose_records_are_deleted(tmp_path, it):
    owned = Source("query", "run-2", 0, "sparkjob")
    others = b'{"broker-b":{"a":3}}'
    it.stage(source(), "died", 0, "1")
    write(it, owned, "1", **{"broker-b": {"a": 3}})
    used_ms = it.clock.now_ms()
    await it.clock.advance(3600)
    for _ in range(3):
        next_file(it)
        await it.staging.saved_writers.keep()
        expire(it.store)
    assert {message.properties["STAGED_KIND"] for message in staged(it)} == {"kept"}
    found = it.kill(tmp_path / "killed")
    writer_state = found.staging.writers["query"]
    assert (writer_state.owner, writer_state.used_ms, writer_state.others) == ("sparkjob", used_ms, others)
    again = Source("query", "run-2", 0, "sparkjob")
    repeated = found.staging.commit(again, {"a": 1}, None, "plan-0")
    assert (repeated.is_repeated, repeated.others) == (True, others)
    assert found.stage(again, "a", 0, "1") is None
    with pytest.raises(RemoteError, match="the checkpoint is an older copy"):
        found.staging.commit(again, {"a": 1}, None, "another plan")
    with pytest.raises(RemoteError, match="which ends run run-1"):
        found.stage(source(1), "a", 0, "2")
    assert write(found, source(1, "run-2"), "2") is False
    assert found.bodies() == ["2"]
    found.store.close()


@pytest.mark.parametrize("is_of_a_former_version", [False, True])
async def test_an_old_file_gives_way_to_what_the_log_has(tmp_path, it, is_of_a_former_version):
    write(it, source(), "0")
    await it.staging.close()
    path = tmp_path / "store" / "config" / "stagedBatches.json"
    old = path.read_bytes().splitlines()[0]
    for batch in (1, 2):
        write(it, source(batch, "run-2"), str(batch))
    next_file(it)
    await it.staging.saved_writers.keep()
    expire(it.store)
    if is_of_a_former_version:
        content = json.loads(old)
        del content["log_end"], content["writers"]["query"]["kept_at"]
        old = json.dumps(content).encode()
    path.write_bytes(old)
    found = it.kill(tmp_path / "killed")
    assert found.staging.writers["query"].runs == ["run-1", "run-2"]
    assert write(found, source(2, "run-2"), "2") is True
    found.store.close()


async def test_a_file_of_a_former_version_is_enough_for_the_log_to_know_its_writers(tmp_path, it):
    write(it, source(), "0")
    await it.staging.close()
    next_file(it)
    expire(it.store)
    path = tmp_path / "store" / "config" / "stagedBatches.json"
    content = json.loads(path.read_bytes().splitlines()[0])
    del content["writers"]["query"]["kept_at"]
    path.write_text(json.dumps(content))
    found = it.kill(tmp_path / "killed")
    assert found.staging.writers["query"].kept_at == -1
    await found.staging.saved_writers.keep()
    assert kept(found) == ["query"]
    found.store.close()


async def test_a_newer_file_is_not_set_back(tmp_path, it):
    it.stage(source(writer="waits"), "a", 0, "x")  # so a start reads from here on
    write(it, source(), "0")
    next_file(it)
    await it.staging.saved_writers.keep()
    write(it, source(1, "run-2"), "1")
    await it.staging.close()
    writer_state = it.staging.writers["query"]
    found = it.kill(tmp_path / "killed")
    assert sorted(kept(found)) == ["query", "waits"]
    known = found.staging.writers["query"]
    assert (known.runs, known.last_batch, known.plan) == (["run-1", "run-2"], 1, "plan-1")
    assert known.kept_at == writer_state.kept_at > 0
    assert found.commit(source(writer="waits"), a=1) is False
    found.publish()
    assert found.bodies() == ["0", "1", "x"]
    found.store.close()


async def test_killed_at_any_record_around_it_a_batch_is_neither_lost_nor_stored_twice(tmp_path, it):
    write(it, source(), "0")
    next_file(it)
    it.stage(source(1), "a", 0, "1", "2")
    await it.staging.saved_writers.keep()
    expire(it.store)
    begin = it.store.end
    it.stage(source(1), "b", 0, "3")
    it.commit(source(1), a=1, b=1)
    decided = it.store.end
    it.staging.saved_writers._writers["query"].kept_at = -1
    await it.staging.saved_writers.keep()
    it.publish()
    assert kept(it) == ["query", "query"]
    ends = [end for end in it.ends() if end >= begin]
    assert len(ends) > 6
    for number, end in enumerate(ends):
        found = it.kill(tmp_path / f"killed-{number}", keep=end)
        found.publish()
        assert found.bodies() == (["1", "2", "3"] if end >= decided else []), end
        found.stage(source(1, "run-2"), "x", 0, "1", "2", "3")
        assert found.commit(source(1, "run-2"), x=1) is (end >= decided)
        found.publish()
        assert found.bodies() == ["1", "2", "3"], end
        found.store.close()


@pytest.mark.parametrize("is_published", [True, False])
async def test_a_commit_without_its_deleted_parts_lets_the_broker_start(tmp_path, it, caplog, is_published):
    it.stage(source(), "a", 0, "1")
    it.stage(source(), "b", 0, "2")
    next_file(it)
    it.stage(source(), "b", 1, "3")
    it.commit(source(), a=1, b=2)
    if is_published:
        it.publish()
    expire(it.store)
    found = it.kill(tmp_path / "killed")
    assert found.commit(source(), a=1, b=2) is True
    found.publish()
    assert found.bodies() == ["3"] if not is_published else ["1", "2", "3"]
    assert ("messages of batch 0 of query were deleted" in caplog.text) is not is_published
    found.store.close()


async def test_each_file_of_the_log_gets_a_writer_once(tmp_path, it):
    write(it, source(), "0")
    await it.staging.saved_writers.keep()
    assert kept(it) == []
    next_file(it)
    write(it, source(writer="new"), "0")
    for _ in range(3):
        await it.staging.saved_writers.keep()
    assert kept(it) == ["query"]
    found = it.kill(tmp_path / "killed")
    await found.staging.saved_writers.keep()
    assert kept(found) == ["query"]
    next_file(found)
    await found.staging.saved_writers.keep()
    assert kept(found)[1:] == ["query", "new"]
    found.store.close()


async def test_writers_that_fill_the_log_are_written_less_often(it):
    many = {f"broker-{number}": {"attempt" * 30: 1} for number in range(150)}
    for number in range(4):
        write(it, source(writer=f"query-{number}"), "0", **many)
    next_file(it)
    await it.staging.saved_writers.keep()
    written = len(kept(it))
    assert it.staging.saved_writers._record_bytes > FILE
    for _ in range(3):
        next_file(it)
        await it.staging.saved_writers.keep()
    assert len(kept(it)) == written
    for _ in range(6):
        next_file(it)
        await it.staging.saved_writers.keep()
    assert len(kept(it)) > written
    expire(it.store)  # of them all
    for _ in range(2):
        await it.staging.saved_writers.keep()
    assert all(writer_state.kept_at >= it.store.begin for writer_state in it.staging.writers.values())


async def test_a_writer_that_fits_no_file_keeps_no_other_one_away(it):
    it.stage(source(), "a", 0, "1")
    for number in range(REMEMBERED_RUNS):
        it.stage(source(run=f"{number}" * 120), "a", 0, "1")
    it.staging.writers["query"].others = json_of({f"broker-{number}": {"a" * 255: 1} for number in range(300)})
    it.stage(source(writer="small"), "a", 0, "1")
    next_file(it)
    for _ in range(2):
        await it.staging.saved_writers.keep()
    assert kept(it) == ["small"]
    assert it.staging.writers["query"].kept_at > 0


async def test_a_full_disk_puts_writers_off(it, clock):
    write(it, source(), "0")
    next_file(it)
    it.store.appender.stall(DiskFull("no room"))
    await it.staging.saved_writers.keep()
    assert kept(it) == []
    await clock.advance(60)
    await it.staging.saved_writers.keep()
    assert kept(it) == ["query"]


async def test_a_writer_without_requests_is_forgotten_all_the_same(tmp_path, it):
    write(it, source(), "0")
    await it.clock.advance(FORGOTTEN_MS / 1000 - 10)
    next_file(it)
    await it.staging.saved_writers.keep()
    found = it.kill(tmp_path / "killed")
    assert kept(found) == ["query"]
    await it.clock.advance(20)
    await found.staging.save()
    assert not found.staging.writers
    await found.staging.saved_writers.keep()
    again = found.kill(tmp_path / "again")
    await again.staging.save()
    assert not again.staging.writers
    again.store.close()
    found.store.close()


async def stage(session: Session, batch: int) -> None:
    part = BatchPart(b"%d" % batch, f"UNIQ_KEY\x01id-{batch}\x02".encode(), 0)
    asked = StageBatch("orders", 0, "query", "run-1", batch, "a", 0, 1)
    await session.call(asked, batches.encode([part]), timeout_s=10)


async def commit(session: Session, batch: int) -> bool:
    """Whether the batch had been committed before."""
    body = msgspec.json.encode({"attempts": {"a": 1}})
    return bool((await session.call(CommitBatch("query", "run-1", batch), body, timeout_s=10)).header.repeated)


async def test_a_slave_that_becomes_the_master_knows_a_writer_whose_records_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_batches, "SAVE_PERIOD_S", 0.05)
    async with pair(tmp_path, commit_log_file_bytes=FILE) as both:
        master = await both.start("master")
        await both.start("slave")
        await stage(await both.session("master"), 0)
        assert await commit(await both.session("master"), 0) is False
        for count in (2, 3):
            while master.store.end < (count - 1) * FILE:
                await both.send(bytes(20_000), "busy")
            await until(lambda: b"STAGED_KIND\x01kept" in both.log("master")[(count - 1) * FILE :])  # noqa: B023
        await both.same()
        expire(both.broker("slave").store)
        await both.stop("master")
        await both.stop("slave")
        assert not (both.slave_settings.config_path / "stagedBatches.json").exists()
        both.master_settings = replace(both.master_settings, store_path=both.slave_settings.store_path)
        await both.start("master")
        session = await both.session("master")
        await stage(session, 0)
        assert await commit(session, 0) is True
        await stage(session, 1)
        assert await commit(session, 1) is False
