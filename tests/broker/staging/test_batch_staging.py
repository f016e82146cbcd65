"""sparrowmq.broker.staging.staged_batches: a committed batch appears once, whatever dies in between."""

import asyncio

import pytest

from sparrowmq.broker.staging.staged_batches import FORGOTTEN_MS
from sparrowmq.broker.staging.writers import REMEMBERED_RUNS
from sparrowmq.errors import RemoteError
from sparrowmq.loop.slices import at_once
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.protocol.names import STAGED_TOPIC
from tests.broker.staging.stagers import BORN, source


async def test_a_batch_is_seen_when_it_is_committed_and_not_before(it):
    it.stage(source(), "a", 0, "1", "2")
    it.stage(source(), "b", 0, "3", queue_id=1)
    it.publish()
    assert (it.bodies(), it.bodies(1)) == ([], [])
    assert it.commit(source(), a=1, b=1) is False
    it.publish()
    assert (it.bodies(), it.bodies(1)) == (["1", "2"], ["3"])
    message = it.messages()[0]
    assert (message.flag, message.tags, message.unique_key) == (7, "t", "id-1")
    assert (message.born_host, message.born_timestamp_ms) == ("127.0.0.1:5000", it.clock.now_ms())
    assert message.properties["CLUSTER"] == "c"
    assert it.figures.value("sparrowmq_staged_published_total") == 3


async def test_only_the_attempts_that_the_commit_names_are_published(it):
    it.stage(source(), "died", 0, "1")
    it.stage(source(), "speculative", 0, "1", "2")
    it.stage(source(), "won", 0, "1", "2")
    it.commit(source(), won=1)
    it.publish()
    assert it.bodies() == ["1", "2"]


async def test_a_request_that_comes_again_is_stored_once(it):
    assert it.stage(source(), "a", 0, "1") is not None
    assert it.stage(source(), "a", 0, "1") is None
    it.commit(source(), a=1)
    it.publish()
    assert it.bodies() == ["1"]


async def test_who_asks_again_is_told_what_was_decided_for_other_brokers(tmp_path, it):
    given, others = {"broker-b": {"a": 3}}, b'{"broker-b":{"a":3}}'
    it.stage(source(), "a", 0, "1")
    assert it.staging.commit(source(), {"a": 1}, given).others == others
    again = source(run="run-2")
    repeated = it.staging.commit(again, {"z": 1}, {"broker-b": {"z": 9}})
    assert (repeated.is_repeated, repeated.others) == (True, others)
    found = it.kill(tmp_path / "killed")  # told by the log
    assert found.staging.commit(again, {}).others == others
    found.publish()
    await found.staging.close()
    last = found.kill(tmp_path / "again")  # told by the file
    assert last.staging.commit(again, {}).others == others
    last.stage(source(1, "run-2"), "b", 0, "2")
    assert last.staging.commit(source(1, "run-2"), {"b": 1}).is_repeated is False
    assert last.staging.commit(source(1, "run-2"), {}).others == b""
    found.store.close()
    last.store.close()


async def test_a_saved_state_counts_as_long_as_the_log_has_all_of_it(tmp_path, it):
    it.stage(source(), "a", 0, "1")
    before = it.store.end
    it.commit(source(), a=1)
    it.publish()
    await it.staging.close()
    path = tmp_path / "store" / "config" / "stagedBatches.json"
    content, end = path.read_bytes(), it.store.end
    it.writer.put(Entry("other", 0, b"", Properties(), 1, BORN))
    await it.staging.close()
    assert path.read_bytes() == content, "it is not written again because of another topic"
    whole = it.kill(tmp_path / "whole", keep=end)
    assert (tmp_path / "whole" / "config" / "stagedBatches.json").exists()
    assert whole.commit(source(), a=1) is True
    cut = it.kill(tmp_path / "cut", keep=before)
    assert not list((tmp_path / "cut" / "config").glob("stagedBatches*"))
    assert cut.commit(source(), a=1) is False
    cut.publish()
    assert cut.bodies() == ["1"]
    whole.store.close()
    cut.store.close()


async def test_what_a_run_staged_can_be_committed_by_the_next_one(tmp_path, it):
    it.stage(source(), "decided", 0, "1")
    it.stage(source(run="run-2"), "again", 0, "1")
    found = it.kill(tmp_path / "killed")
    for each in (it, found):
        assert each.commit(source(run="run-2"), decided=1) is False
        each.publish()
        assert each.bodies() == ["1"]
    found.store.close()


async def test_a_name_that_another_run_used_is_a_new_attempt(it):
    it.stage(source(), "a", 0, "1")
    assert it.stage(source(run="run-2"), "a", 0, "2") is not None
    it.commit(source(run="run-2"), a=1)
    it.publish()
    assert it.bodies() == ["2"]


async def test_parts_are_published_in_the_order_of_their_numbers(it):
    for number in (2, 0, 1):
        it.stage(source(), "a", number, str(number))
    it.commit(source(), a=3)
    it.publish()
    assert it.bodies() == ["0", "1", "2"]


async def test_a_batch_that_is_repeated_after_its_commit_changes_nothing(it):
    it.stage(source(), "a", 0, "1")
    it.commit(source(), a=1)
    again = source(run="run-2")
    assert it.stage(again, "b", 0, "1") is None
    assert it.commit(again, b=1) is True
    assert it.commit(source(0, "run-2"), b=1) is True
    it.stage(source(1, "run-2"), "c", 0, "2")
    assert it.commit(source(1, "run-2"), c=1) is False
    it.publish()
    assert it.bodies() == ["1", "2"]


async def test_a_batch_of_an_older_checkpoint_is_refused(tmp_path, it):
    for batch in range(3):
        it.stage(source(batch), "a", 0, str(batch))
        it.staging.commit(source(batch), {"a": 1}, None, f"plan-{batch}")
    it.publish()
    killed = it.kill(tmp_path / "killed")
    await it.staging.close()
    for each in (it, killed, it.kill(tmp_path / "closed")):
        older = source(1, "run-2")
        assert each.stage(older, "b", 0, "again") is None
        with pytest.raises(RemoteError, match="the checkpoint is an older copy"):
            each.staging.commit(older, {"b": 1}, None, "plan-1")
        last = source(2, "run-2")
        with pytest.raises(RemoteError, match="Restore the newest checkpoint"):
            each.staging.commit(last, {"b": 1}, None, "another plan")
        assert each.staging.commit(last, {"b": 1}, None, "plan-2").is_repeated
        assert each.staging.commit(last, {"b": 1}).is_repeated  # of a writer that names no plans
        assert each.bodies() == ["0", "1", "2"]


async def test_what_is_not_all_there_is_not_committed(it):
    it.stage(source(), "a", 0, "1")
    for attempts in ({"a": 2}, {"a": 1, "b": 1}, {"a": 0}):
        with pytest.raises(RemoteError, match=r"batch 0 of query cannot be committed: .*stage the batch again"):
            it.commit(source(), **attempts)
    it.stage(source(1), "later", 0, "2")
    with pytest.raises(RemoteError, match="cannot be committed"):
        it.commit(source(0), later=1)
    it.publish()
    assert it.bodies() == []
    assert it.commit(source(), a=1) is False


async def test_a_run_that_was_replaced_is_refused(it):
    it.stage(source(), "old", 0, "1")
    it.stage(source(run="run-2"), "new", 0, "1")
    for zombie in (
        lambda: it.stage(source(), "old", 1, "2"),
        lambda: it.commit(source(), old=1),
        lambda: it.commit(source(5), old=1),
    ):
        with pytest.raises(RemoteError, match="query was started again as run run-2, which ends run run-1"):
            zombie()
    it.stage(source(0, "run-1", "another query"), "other", 0, "x")
    assert it.commit(source(0, "run-2"), new=1) is False
    for number in range(REMEMBERED_RUNS + 5):
        it.stage(source(1, f"more-{number}"), "a", 0, "1")
    assert len(it.staging.writers["query"].runs) == REMEMBERED_RUNS


async def test_what_could_not_be_published_is_refused_when_it_is_staged(tmp_path, clock, it):
    sound = BatchPart(b"1", b"UNIQ_KEY\x011\x02")
    for properties, complaint in ((b"", "needs a unique key"), (b"UNIQ_KEY\x01" + b"x" * 32_740, "take 327")):
        entry = Entry("T", 0, batches.encode([sound, BatchPart(b"1", properties)]), Properties(), 0, BORN)
        with pytest.raises(RemoteError, match=complaint):
            at_once(it.staging.check(entry, batches.places(bytes(entry.body))))
    with pytest.raises(RemoteError, match="0 are here"):
        it.commit(source(), a=1)


async def test_thousands_of_messages_that_are_not_plain_are_checked_in_steps(it):
    given = [BatchPart(b"", f"UNIQ_KEY\x01ä{number}\x02".encode()) for number in range(6400)]
    entry = Entry("T", 0, batches.encode(given), Properties(), 0, BORN)
    steps = [None for _ in it.staging.check(entry, batches.places(bytes(entry.body)))]
    assert len(steps) >= 6400 / 256


async def test_killed_at_any_record_a_batch_appears_whole_and_once_or_not_at_all(tmp_path, it):
    it.stage(source(), "a", 0, "1", "2", "3")
    it.stage(source(), "a", 1, "4", queue_id=1)
    it.stage(source(), "b", 0, "5", "6")
    it.commit(source(), a=2, b=1)
    decided = it.store.end
    it.publish()
    it.stage(source(1), "c", 0, "7")
    for number, end in enumerate([0, *it.ends()]):
        found = it.kill(tmp_path / f"killed-{number}", keep=end)
        found.publish()
        expected = (["1", "2", "3", "5", "6"], ["4"]) if end >= decided else ([], [])
        assert (found.bodies(), found.bodies(1)) == expected, end
        # The writer goes on as after a crash of its own: with another run, and the batch once more.
        again = source(run="run-2")
        found.stage(again, "x", 0, "1", "2", "3", "5", "6")
        found.stage(again, "x", 1, "4", queue_id=1)
        found.commit(again, x=2 if end < decided else 1)
        found.publish()
        assert (found.bodies(), found.bodies(1)) == (["1", "2", "3", "5", "6"], ["4"]), end
        found.store.close()


async def test_others_messages_between_do_not_count_as_published(tmp_path, it):
    it.stage(source(), "a", 0, "1", "2", "3")
    it.commit(source(), a=1)
    for body in ("x", "2"):
        it.writer.put(Entry("T", 0, body.encode(), Properties(f"UNIQ_KEY\x01other-{body}\x02"), 0, BORN))
    found = it.kill(tmp_path / "killed")
    found.publish()
    assert found.bodies() == ["x", "2", "1", "2", "3"]
    found.store.close()


async def test_a_start_reads_no_more_than_it_has_to(tmp_path, it):
    it.stage(source(), "a", 0, "1")
    it.commit(source(), a=1)
    it.publish()
    it.stage(source(1), "open", 0, "2")
    position = it.messages("rmq_sys_STAGED")[-1].queue_offset
    await it.staging.close()
    found = it.kill(tmp_path / "killed")
    assert found.staging.file.path.exists()
    assert found.staging._saved.position == position
    assert found.commit(source(0), a=1) is True
    assert found.commit(source(1), open=1) is False
    found.publish()
    assert found.bodies() == ["1", "2"]
    found.store.close()


async def test_the_file_never_knows_more_than_the_disk(it, tmp_path):
    it.stage(source(), "a", 0, "1")
    it.commit(source(), a=1)
    it.publish()
    saving = asyncio.create_task(it.staging.save())
    await it.clock.advance(0)
    assert not saving.done() and it.staging._saved.writers == {}, "the log is not on disk yet"
    it.store.flush()
    await saving
    assert it.staging._saved.writers["query"].last_batch == 0


async def test_a_commit_on_its_way_is_not_saved_as_done(tmp_path, it):
    it.stage(source(), "a", 0, "1")
    it.commit(source(), a=1)
    await it.staging.close()
    found = it.kill(tmp_path / "killed")
    found.publish()
    assert found.bodies() == ["1"]
    assert found.commit(source(), a=1) is True
    found.store.close()


@pytest.mark.parametrize("is_staged", [False, True])
@pytest.mark.parametrize("is_published", [False, True])
async def test_a_commit_in_a_pause_of_a_save_is_neither_lost_nor_published_twice(tmp_path, it, is_staged, is_published):
    it.stage(source(), "a", 0, "1")
    it.commit(source(), a=1)
    it.publish()
    if is_staged:
        it.stage(source(writer="other"), "b", 0, "2")
    it.store.publish()
    saving = asyncio.create_task(it.staging.save())
    await it.clock.advance(0)
    it.stage(source(1), "a", 0, "3")
    it.staging.commit(source(1), {"a": 1}, None, "plan")
    it.stage(source(writer="new"), "c", 0, "4")
    it.commit(source(writer="new"), c=1)
    if is_published:
        it.publish()
    it.store.flush()
    await saving
    found = it.kill(tmp_path / "killed")
    found.publish()
    assert found.bodies() == ["1", "3", "4"]
    assert found.staging.commit(source(1, "run-2"), {}, None, "plan").is_repeated
    assert found.commit(source(writer="new"), c=1) is True
    if is_staged:
        assert found.commit(source(writer="other"), b=1) is False
    found.store.close()


async def test_a_writer_that_is_long_gone_is_forgotten(it):
    it.stage(source(), "a", 0, "1")
    it.stage(source(writer="busy"), "b", 0, "1")
    await it.clock.advance(FORGOTTEN_MS / 1000 - 10)
    it.stage(source(writer="busy"), "b", 1, "1")
    await it.clock.advance(20)
    it.store.flush()
    await it.staging.save()
    assert it.staging.writers.keys() == {"busy"}


@pytest.mark.parametrize("batch", ["", "9"])
async def test_foreign_record_is_left_out_and_ends_no_start(tmp_path, it, caplog, batch):
    """The log of a false master may have one. It ended each start of a broker with a KeyError."""
    said = {"STAGED_KIND": "part", "STAGED_WRITER": "query", "STAGED_RUN": "another", "STAGED_BATCH": batch}
    it.stage(source(), "a", 0, "1")
    it.store.append(Entry(STAGED_TOPIC, 0, b"foreign", Properties(render(said)), 1, BORN))
    it.stage(source(), "a", 1, "2")
    found = it.kill(tmp_path / "killed")
    assert caplog.text.count("is not a staged record; skipping it: ") == 1
    assert found.staging.writers["query"].runs == ["run-1"]
    found.commit(source(), a=2)
    found.publish()
    assert found.bodies() == ["1", "2"]
    found.store.close()
