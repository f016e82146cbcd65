import asyncio
from contextlib import suppress

import pytest

from sparrowmq.broker import redirect
from sparrowmq.broker.transactions.open_transactions import TransactionRules
from sparrowmq.errors import DiskFull, RemoteError
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.message_id import offset_id
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.remoting.log_limit import LINES
from tests.broker.rotting import rot
from tests.broker.transacting import BORN, GROUP, HALF, LOST, OP, Producer, Transacting


@pytest.fixture
def it(tmp_path, clock):
    transacting = Transacting(tmp_path / "store", clock)
    yield transacting
    transacting.store.close()


async def test_a_half_message_is_seen_when_it_is_committed_and_not_before(it):
    placed = it.begin(b"paid", TAGS="a", KEYS="k")
    assert it.bodies() == []
    it.end(placed, commit=True)
    (message,) = it.messages()
    assert (message.body, message.topic, message.queue_id, message.flag) == (b"paid", "Orders", 1, 7)
    assert message.sys_flag & 0xC == 8 and message.prepared_offset == placed.offset
    assert message.reconsume_times == 2 and message.born_host == "127.0.0.1:5000"
    assert message.properties == {
        "UNIQ_KEY": "paid", "TRAN_MSG": "true", "PGROUP": GROUP, "TAGS": "a", "KEYS": "k",
        "REAL_TOPIC": "Orders", "REAL_QID": "1", "CLUSTER": "DefaultCluster",
    }  # fmt: skip


async def test_half_and_op_records_are_those_that_apache_writes(it):
    it.begin(b"zero")
    it.end(it.begin(b"one"), commit=False)
    halves, (op,) = it.messages(HALF, 0), it.messages(OP, 0)
    assert [(each.body, each.sys_flag, each.queue_offset) for each in halves] == [
        (b"zero", 0, 0),
        (b"one", 0, 1),
    ]
    assert (op.body, op.properties, op.sys_flag, op.born_host) == (b"1", {"TAGS": "d"}, 0, "127.0.0.1:5000")


async def test_a_rolled_back_message_is_never_seen(it):
    it.end(it.begin(b"lost"), commit=False)
    assert await it.after(200) == [] and it.bodies() == []
    assert it.figure("s_rolled_back_total") == 1 and it.figure("s_open") == 0


async def test_an_end_that_comes_twice_stores_once(it):
    placed = it.begin(b"paid")
    assert it.end(placed, commit=True) is not None
    assert it.end(placed, commit=True) is None
    assert it.bodies() == [b"paid"] and len(it.messages(OP, 0)) == 1


async def test_another_end_than_the_first_one_is_refused(it):
    placed = it.begin(b"paid")
    it.end(placed, commit=False)
    with pytest.raises(RemoteError, match="was rolled back"):
        it.end(placed, commit=True)
    assert it.bodies() == []


async def test_an_end_must_name_the_group_both_offsets_and_the_id_of_the_message(it):
    placed, other = it.begin(b"paid"), it.begin(b"other")
    with pytest.raises(RemoteError, match="The producer group wrong"):
        it.end(placed, commit=True, group="thieves")
    with pytest.raises(RemoteError, match="Find prepared transaction message failed"):
        it.transactions.end(other.queue_offset, placed.offset, GROUP, commit=True)
    with pytest.raises(RemoteError, match="Find prepared transaction message failed"):
        it.transactions.end(placed.queue_offset, placed.offset + 1, GROUP, commit=True)
    with pytest.raises(RemoteError, match="The transaction id is that of another message"):
        it.transactions.end(placed.queue_offset, placed.offset, GROUP, commit=True, transaction_id="other")
    it.end(placed, commit=True)
    (message,) = it.messages()
    with pytest.raises(RemoteError, match="Find prepared transaction message failed"):
        it.transactions.end(message.queue_offset, message.physical_offset, GROUP, commit=True)
    assert it.bodies() == [b"paid"]


async def test_bytes_that_look_like_a_half_message_are_none(it):
    placed = it.begin(b"paid")
    (half,) = it.messages(HALF, 0)
    it.transactions.end(placed.queue_offset, placed.offset, GROUP, commit=False)
    open_one = it.begin(b"open")
    for queue_offset in (half.queue_offset, open_one.queue_offset, 7):
        entry = redirect.readdress(half, HALF, 0, Properties(render(half.properties)))
        fake = record.encode(entry, Placed(0, queue_offset, 1000, BORN))
        sent = it.writer.put(Entry("Trace", 0, fake, Properties(""), 0, BORN))
        it.store.publish()
        raw = it.store.copy_at(sent.offset)
        with pytest.raises(RemoteError, match="Find prepared transaction message failed"):
            it.transactions.end(queue_offset, sent.offset + raw.index(fake), GROUP, commit=True)
    assert it.bodies() == [] and it.figure("s_open") == 1


async def test_a_delayed_one_is_refused(it):
    with pytest.raises(RemoteError, match="cannot be delayed, and this has the property DELAY"):
        it.begin(b"late", tries=0, DELAY="3")
    assert it.begin(b"soon", DELAY="0")


@pytest.mark.parametrize(
    ("group", "topic", "more"),
    [(None, "Orders", {}), (GROUP, "%RETRY%g", {}), (GROUP, "Orders", {"DELAY": "3"})],
)
async def test_a_message_that_no_producer_sends_or_that_comes_back_begins_none(it, group, topic, more):
    text = render({"TRAN_MSG": "true", "PGROUP": GROUP, **more})
    entry = Entry(topic, 0, b"again", Properties(text), 0, BORN, reconsume_times=1)
    entry.group = group
    it.writer.put(entry)
    assert [message.body for message in it.messages(topic, 0)] == [b"again"]
    assert len(it.transactions.open_transactions) == 0


async def test_a_broker_may_take_none(tmp_path, clock):
    it = Transacting(tmp_path / "none", clock, rules=TransactionRules(rejected=True))
    with pytest.raises(RemoteError, match="sending transaction message is forbidden"):
        it.begin(b"paid")
    it.store.close()


async def test_nobody_is_asked_before_the_timeout_and_then_once_an_interval(it):
    it.begin(b"paid")
    assert await it.after(5) == []
    assert len(await it.after(1)) == 1
    assert await it.after(59) == []
    assert len(await it.after(1)) == 1


async def test_one_that_is_open_for_long_shows_until_it_ends(it):
    [(_, long_open)] = it.transactions.part(1).probes
    first = it.begin(b"paid")
    await it.after(180)
    assert long_open() == ""
    await it.after(30)
    text = long_open()
    assert text.startswith("1 transaction is open, one of producer group ") and text.endswith(
        "no producer ends it when it is asked"
    )
    it.clients.leave(it.producer, None, GROUP)
    assert long_open().endswith("no producer of the group is online")
    it.end(first, commit=True)
    assert long_open() == ""


async def test_one_whose_producer_asked_for_time_is_not_open_for_long_before_that_time(it):
    [(_, long_open)] = it.transactions.part(1).probes
    it.begin(b"paid", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
    await it.after(770)
    assert long_open() == ""
    await it.after(30)
    assert long_open().startswith("1 transaction is open")


async def test_the_question_names_the_new_copy_and_has_the_message_as_it_will_be(it):
    first = it.begin(b"paid", TAGS="a")
    ((request, message),) = await it.after(6)
    copy = it.messages(HALF, 0)[-1]
    assert (request.tran_state_table_offset, request.commit_log_offset) == (1, copy.physical_offset)
    assert request.offset_msg_id == offset_id(BORN, copy.physical_offset)
    assert request.msg_id == request.transaction_id == "paid"
    assert (message.topic, message.queue_id, message.body, message.tags) == ("Orders", 1, b"paid", "a")
    assert (message.queue_offset, message.physical_offset) == (1, copy.physical_offset)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] == str(first.queue_offset)


@pytest.mark.parametrize("commit", [True, False])
async def test_the_answer_to_a_question_ends_it(it, commit):
    it.begin(b"paid")
    await it.after(66)
    it.answer(1, commit=commit)
    assert it.bodies() == [b"paid"] * commit
    assert await it.after(200) == []


async def test_the_end_of_an_older_copy_ends_it_and_the_answers_that_come_later_do_nothing(it):
    first = it.begin(b"paid")
    await it.after(66)
    it.answer(0, commit=True)
    for late in (lambda: it.end(first, commit=True), lambda: it.answer(1, commit=True)):
        with pytest.raises(RemoteError, match="is not open any more"):
            late()
    assert it.bodies() == [b"paid"]
    assert it.messages(OP, 0)[0].body == b"2", "the op record names the newest copy, which Java would look at"


async def test_properties_that_are_as_long_as_may_be_stop_no_question(tmp_path, clock):
    it = Transacting(tmp_path / "store", clock)
    for size in range(32_767, 0, -1):
        with suppress(RemoteError):
            it.begin(b"long", long="x" * size)
            break
    assert len(await it.after(6)) == 1
    for _ in range(2):
        assert len(await it.after(60)) == 1
    it.store.close()


async def test_what_another_broker_stored_with_no_room_for_a_copy_is_put_aside_alone(tmp_path, clock):
    it = Transacting(tmp_path / "store", clock)
    it.begin(b"short")
    (half,) = it.messages(HALF, 0)
    too_long = half.properties | {"long": "x" * (32_740 - len(render(half.properties)))}
    it.store.append(redirect.readdress(half, HALF, 0, Properties(render(too_long))))
    it.store.close()
    again = Transacting(tmp_path / "store", clock)
    again.begin(b"other")
    asked = await again.after(6) + await again.after(60)
    assert {message.body for _, message in asked} == {b"short", b"other"} and again.figure("s_open") == 2
    assert [each.properties["long"][:1] for each in again.messages(LOST, 0)] == ["x"]
    assert len(await again.after(60)) == 2, "the others are asked about as ever"
    again.store.close()


async def test_after_the_last_question_it_is_put_aside_and_can_be_resumed(tmp_path, clock):
    it = Transacting(tmp_path / "store", clock, rules=TransactionRules(most_checks=3))
    it.begin(b"paid")
    asked = await it.after(6 + 60 + 60)
    assert len(asked) == 3 and it.bodies(LOST, 0) == []
    assert await it.after(60) == []
    (lost,) = it.messages(LOST, 0)
    assert lost.properties["TRANSACTION_CHECK_TIMES"] == "3" and lost.properties["REAL_TOPIC"] == "Orders"
    topic = it.topics.get(LOST)
    assert topic is not None and topic.write_queue_nums == 1 and it.figure("s_open") == 0
    with pytest.raises(RemoteError, match="is not open any more"):
        it.answer(2, commit=True)
    it.transactions.resume(lost.physical_offset)
    ((_, message),) = await it.after(1)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    it.answer(-1, commit=True)
    assert it.bodies() == [b"paid"]
    await it.close()


async def test_only_half_messages_that_are_not_open_are_resumed(it):
    placed = it.begin(b"paid")
    with pytest.raises(RemoteError, match="is open; nothing to resume"):
        it.transactions.resume(placed.offset)
    it.end(placed, commit=True)
    for offset in (it.messages()[0].physical_offset, 7, -1, 1 << 60):
        with pytest.raises(RemoteError, match="no half message"):
            it.transactions.resume(offset)


async def test_one_that_is_older_than_messages_are_kept_is_put_aside_unasked(it):
    it.begin(b"old", CHECK_IMMUNITY_TIME_IN_SECONDS=str(100 * 3600))
    await it.clock.advance(73 * 3600)
    await it.transactions.checks.run_due()
    assert it.producer.asked == [] and it.bodies(LOST, 0) == [b"old"]


async def test_immunity_puts_the_first_question_off_and_costs_no_question(it):
    first = it.begin(b"slow", CHECK_IMMUNITY_TIME_IN_SECONDS="150")
    assert await it.after(149) == []
    copies = it.messages(HALF, 0)
    assert [each.properties.get("TRANSACTION_CHECK_TIMES") for each in copies] == [None] * len(copies)
    assert [each.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for each in copies[1:]] == ["0"] * (len(copies) - 1)
    ((_, message),) = await it.after(1)
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    it.end(first, commit=True)
    assert it.bodies() == [b"slow"]


async def test_a_short_immunity_brings_the_first_question_forward(it):
    it.begin(b"quick", CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    assert len(await it.after(1)) == 1


async def test_an_immunity_that_is_no_number_is_none(it):
    it.begin(b"odd", CHECK_IMMUNITY_TIME_IN_SECONDS="soon")
    assert await it.after(5) == [] and len(await it.after(1)) == 1


async def test_producers_of_the_group_are_asked_in_turn_on_whatever_connection(it):
    second, stranger = Producer("127.0.0.1:5001"), Producer("127.0.0.1:5002")
    it.clients.produce(second, "you", GROUP)
    it.clients.produce(stranger, "him", "others")
    for number in range(4):
        it.begin(b"%d" % number)
    await it.after(6)
    assert (len(it.producer.asked), len(second.asked), len(stranger.asked)) == (2, 2, 0)


async def test_while_nobody_is_there_it_waits_and_the_next_one_is_asked(tmp_path, clock):
    it = Transacting(tmp_path / "store", clock, present=False)
    it.begin(b"paid")
    assert await it.after(6) == []
    it.clients.produce(it.producer, "me", GROUP)
    assert len(await it.after(60)) == 1
    it.answer(0, commit=True)
    assert it.bodies() == [b"paid"]
    it.store.close()


async def test_only_questions_that_were_sent_count(tmp_path, clock, caplog):
    it = Transacting(tmp_path / "store", clock, present=False)
    it.begin(b"paid")
    it.begin(b"another")
    await it.after(40 * 60)
    assert len(it.messages(HALF, 0)) == 2, "nobody was asked, so nothing is stored again each minute"
    assert len(caplog.records) == 40, "a line a minute, and not for each message"
    it.clients.produce(it.producer, "me", GROUP)
    asked = await it.after(60)
    assert [message.properties["TRANSACTION_CHECK_TIMES"] for _, message in asked] == ["1", "1"]
    it.store.close()


async def hours(it, count):
    for _ in range(count):
        await it.clock.advance(3600)
        await it.transactions.checks.run_due()


async def test_what_nobody_can_be_asked_about_is_stored_again_now_and_then_and_put_aside_in_the_end(tmp_path, clock):
    it = Transacting(tmp_path / "store", clock, present=False)
    it.begin(b"paid")
    await hours(it, 72)
    assert 60 <= len(it.messages(HALF, 0)) <= 73 and it.bodies(LOST, 0) == []
    assert {each.properties.get("TRANSACTION_CHECK_TIMES") for each in it.messages(HALF, 0)} == {None}
    await hours(it, 1)
    assert it.bodies(LOST, 0) == [b"paid"]
    it.store.close()


async def test_one_that_waits_is_stored_again_before_the_half_topic_has_grown_far_past_it(tmp_path, clock):
    it = Transacting(tmp_path / "store", clock, rules=TransactionRules(place_entries=10))
    it.begin(b"first", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    await it.after(60)
    assert len(it.messages(HALF, 0)) == 1
    for number in range(10):
        it.end(it.begin(b"%d" % number), commit=False)
    await it.after(60)
    assert it.bodies(HALF, 0)[11:] == [b"first"]
    it.store.close()


@pytest.mark.parametrize("restart", [True, False])
async def test_a_birth_in_the_far_future_and_a_huge_immunity_end_all_the_same(tmp_path, clock, restart):
    it = Transacting(tmp_path / "store", clock)
    it.begin(b"odd", born_ms=(1 << 63) - 1, CHECK_IMMUNITY_TIME_IN_SECONDS="9" * 14)
    if restart:
        await it.close()
        it = Transacting(tmp_path / "store", clock)
    await hours(it, 72 + 24)
    assert it.bodies(LOST, 0) == [b"odd"] and it.figure("s_open") == 0
    assert it.producer.asked, "no immunity is longer than messages are kept"
    assert len(it.messages(HALF, 0)) <= 90
    it.store.close()


@pytest.mark.slow
async def test_twenty_thousand_open_ones_cost_no_read_until_they_are_due(it):
    for number in range(20_000):
        it.begin(b"%d" % number, CHECK_IMMUNITY_TIME_IN_SECONDS="50")
    await it.after(1)
    it.begin(b"due")
    asked = await it.after(7)
    assert [message.body for _, message in asked] == [b"due"]
    assert it.figure("_reads_total") == 1 and it.figure("s_open") == 20_001


async def test_questions_about_large_messages_leave_time_for_other_work(tmp_path, clock):
    it = Transacting(tmp_path / "store", clock, log_file_size=8 << 20)
    for number in range(10):
        it.begin(b"%d" % number * 100_000, UNIQ_KEY=str(number))
    await clock.advance(6)
    asked = []
    while not it.transactions._check_some():
        asked.append(len(it.producer.asked))
    assert asked == [3, 6, 9] and len(it.producer.asked) == 10
    it.store.close()


async def test_a_producer_whose_clock_is_ahead_is_asked_all_the_same(it):
    it.begin(b"paid", born_ms=it.clock.now_ms() + 3_600_000)
    assert await it.after(5) == [] and len(await it.after(1)) == 1


async def test_a_full_disk_puts_questions_off_and_the_log_says_so_once(it, caplog):
    for number in range(3):
        it.begin(b"paid %d" % number)
    it.store.appender.stall(DiskFull("the disk is full"), 8)
    assert await it.after(6) == []
    assert await it.after(1) == []
    assert len(await it.after(1)) == 3
    assert caplog.text.count("transaction checks wait: the disk is full") == 1


# Starts --------------------------------------------------------------------------------------------------------------


async def test_a_damaged_half_message_is_not_forgotten_but_asked_about_once_it_is_mended(it, caplog):
    it.begin(b"damaged")
    it.begin(b"sound")
    mend = rot(it.path, b"damaged")
    assert [message.body for _, message in await it.after(6)] == [b"sound"]
    await it.after(60)
    (told,) = [each.getMessage() for each in caplog.records]
    assert "waits; retrying each minute: " in told and it.messages(OP, 0) == []
    mend()
    assert b"damaged" in [message.body for _, message in await it.after(60)]


async def test_offsets_rest_on_what_is_on_disk(it):
    it.end(it.begin(b"one"), commit=True)
    committing = asyncio.create_task(it.transactions.commit_positions())
    await it.clock.advance(0)
    assert not committing.done()
    assert it.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) is None, "its op record may be lost with the machine"
    it.store.flush()
    await committing
    assert it.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 1


async def test_a_message_whose_op_record_was_lost_is_not_committed_again(tmp_path, clock, caplog):
    it = Transacting(tmp_path / "store", clock)
    it.begin(b"open")
    done = it.end(it.begin(b"paid"), commit=True)
    killed = it.kill(tmp_path / "killed", keep=done.offset)
    it.store.close()
    again = Transacting(killed, clock)
    assert again.bodies() == [b"paid"] and again.bodies(OP, 0) == [b"1"]
    assert "1 transactions had ended before the crash" in caplog.text
    asked = await again.after(60)
    assert [message.body for _, message in asked] == [b"open"]
    again.store.close()


async def test_copies_by_java_count_as_one_with_their_first(tmp_path, clock):
    it = Transacting(tmp_path / "store", clock)
    first = it.begin(b"paid")
    (half,) = it.messages(HALF, 0)
    properties = half.properties | {"TRANSACTION_CHECK_TIMES": "1"}  # and no TRAN_PREPARED_QUEUE_OFFSET
    it.store.append(redirect.readdress(half, HALF, 0, Properties(render(properties))))
    it.store.close()
    again = Transacting(tmp_path / "store", clock)
    assert again.figure("s_open") == 1
    again.end(first, commit=True)
    assert again.bodies() == [b"paid"] and again.bodies(OP, 0) == [b"1"]
    again.store.close()


async def test_a_client_that_ends_no_transaction_does_not_fill_the_log(it, caplog):
    for number in range(LINES + 5):
        it.begin(b"%d" % number, CHECK_IMMUNITY_TIME_IN_SECONDS=str(100 * 3600))
    await it.clock.advance(73 * 3600)
    await it.transactions.checks.run_due()
    assert len(it.bodies(LOST, 0)) == LINES + 5
    it.begin(b"last", CHECK_IMMUNITY_TIME_IN_SECONDS=str(100 * 3600))
    await it.clock.advance(73 * 3600)
    await it.transactions.checks.run_due()
    lines = [each.getMessage() for each in caplog.records if "so it is moved to" in each.getMessage()]
    assert len(lines) == LINES + 1 and lines[-1].endswith("(5 more such lines were left out before)")
