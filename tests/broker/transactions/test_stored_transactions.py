"""Which transactions are open after a start, whatever was stored when the broker died."""

import copy

import pytest

from sparrowmq.broker.offsets import Offsets
from sparrowmq.broker.transactions import half_message
from tests.broker.transacting import BORN, GROUP, HALF, OP, Transacting


@pytest.fixture
def it(tmp_path, clock):
    transacting = Transacting(tmp_path / "store", clock)
    yield transacting
    transacting.store.close()


async def test_after_a_clean_restart_open_ones_are_open_and_nothing_is_read_twice(tmp_path, clock):
    it = Transacting(tmp_path / "store", clock)
    for number in range(10):
        it.end(it.begin(b"%d" % number), commit=True)
    placed = it.begin(b"open")
    it.end(it.begin(b"last"), commit=True)
    await it.close()
    again = Transacting(tmp_path / "store", clock)
    assert again.figure("s_open") == 1
    assert again.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 10
    assert again.offsets.query("CID_RMQ_SYS_TRANS", OP, 0) == 10
    assert await again.after(59) == [] and len(await again.after(1)) == 1
    again.end(placed, commit=True)
    assert again.bodies()[-1] == b"open"
    await again.close()
    third = Transacting(tmp_path / "store", clock)
    assert third.figure("s_open") == 0
    assert third.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 13
    assert third.offsets.query("CID_RMQ_SYS_TRANS", OP, 0) == 12
    third.store.close()


@pytest.mark.parametrize(
    "claimed",
    [{"TRAN_PREPARED_QUEUE_OFFSET": "0"}, {"TRANSACTION_CHECK_TIMES": "1", "UNIQ_KEY": "paid"}],
)
@pytest.mark.parametrize("ends", [True, False])
async def test_half_message_that_claims_to_be_a_copy_of_another_is_a_transaction_of_its_own(
    tmp_path, clock, claimed, ends
):
    it = Transacting(tmp_path / "store", clock)
    paid = it.begin(b"paid")
    forged = it.begin(b"forged", topic="Others", **claimed)
    if ends:
        it.end(forged, commit=False)
    it.store.close()
    again = Transacting(tmp_path / "store", clock)
    assert again.figure("s_open") == 2 - ends
    again.end(paid, commit=True)
    if not ends:
        again.end(forged, commit=True)
    assert (again.bodies(), again.bodies("Others")) == ([b"paid"], [] if ends else [b"forged"])
    again.store.close()


async def test_op_records_of_5_name_many(tmp_path, clock):
    it = Transacting(tmp_path / "store", clock)
    for number in range(4):
        it.begin(b"%d" % number)
    entry = half_message.op(0, 1, BORN)
    entry.body = b"0,1,3,"
    it.store.append(entry)
    it.store.close()
    again = Transacting(tmp_path / "store", clock)
    asked = await again.after(60)
    assert [message.body for _, message in asked] == [b"2"]
    again.store.close()


DECIDED = {b"%d" % number: number % 3 != 0 for number in range(12)}


async def workload(it, saved):
    """Twelve transactions: some ended at once, some asked about, some copied twice; offsets are saved now and then."""
    placed = {}
    for index, (body, commit) in enumerate(DECIDED.items()):
        options = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "70"} if index % 4 == 1 else {}
        placed[body] = it.begin(body, **options)
        if index % 2:
            it.end(placed[body], commit=commit)
        if index % 5 == 4:
            await it.after(66)
            it.store.flush()
            await it.transactions.commit_positions()
            saved.append((it.store.end, copy.deepcopy(dict(it.offsets.rows()))))
    it.answer(0, commit=DECIDED[it.producer.asked[0][1].body])
    await it.after(60)


async def save_offsets(store, contents):
    """Give a store the consumerOffset.json that it had when it was killed."""
    (store / "config").mkdir(exist_ok=True)
    offsets = Offsets(store / "config" / "consumerOffset.json")
    for key, by_queue in contents[-1].items() if contents else ():
        topic, _, group = key.partition("@")
        offsets.commit(group, topic, 0, by_queue[0])
    await offsets.file.save()


@pytest.mark.slow
async def test_killed_between_any_two_records_each_ends_once_as_its_producer_says(tmp_path, clock):
    it = Transacting(tmp_path / "store", clock)
    saved: list[tuple[int, bytes]] = []
    await workload(it, saved)
    it.store.flush()
    ends = sorted(
        message.physical_offset + message.store_size
        for topic, queue_id in ((HALF, 0), (OP, 0), ("Orders", 1))
        for message in it.messages(topic, queue_id)
    )
    assert len(ends) > 40
    for end in [0, *ends]:
        killed = it.kill(tmp_path / f"killed-{end}", keep=end)
        begun = {message.body for message in it.messages(HALF, 0) if message.physical_offset < end}
        await save_offsets(killed, [content for at, content in saved if at <= end])
        again = Transacting(killed, clock)
        while asked := await again.after(60):
            for request, message in asked:
                offsets = request.tran_state_table_offset, request.commit_log_offset
                again.transactions.end(*offsets, GROUP, commit=DECIDED[message.body])
        assert sorted(again.bodies()) == sorted(body for body in begun if DECIDED[body]), end
        assert again.figure("s_open") == 0
        await again.close()
    it.store.close()
