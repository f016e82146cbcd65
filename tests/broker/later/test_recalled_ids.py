"""Recalls of a slot are read once, however many there are."""

from tests.broker.later.test_timer import running
from tests.broker.rotting import rot


def counted_reads(it):
    """The number of records that the delivery reads from now on, in a list of one."""
    reads, message = [0], it.timed._redelivery.message

    def counting(offset, size):
        reads[0] += 1
        return message(offset, size)

    it.timed._redelivery.message = counting
    return reads


async def test_each_recall_of_a_slot_is_read_once(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        due_ms = clock.now_ms() + 60_000
        for number in range(600):
            it.send(b"%d" % number, TIMER_DELIVER_MS=str(due_ms))
            if number % 2:
                it.recall(b"%d" % number, due_ms)
        reads = counted_reads(it)
        await clock.advance(61)
        assert it.bodies() == [b"%d" % number for number in range(0, 600, 2)]
        assert it.figure("sparrowmq_timers_recalled_total") == 300
        assert it.figure("sparrowmq_timers_pending") == 0
        assert reads == [900]


async def test_a_damaged_recall_is_not_read_again_for_each_message_of_its_slot(tmp_path, clock):
    async with running(tmp_path, clock) as it:
        due_ms = clock.now_ms() + 1000
        for number in range(200):
            it.send(b"%d" % number, TIMER_DELIVER_MS=str(due_ms))
        for body in (b"damaged", b"7", b"8"):
            it.recall(body, due_ms)
        mend = rot(tmp_path, b"Orders+damaged")
        reads = counted_reads(it)
        await clock.advance(2)
        assert it.bodies() == [] and it.figure("sparrowmq_timers_pending") == 203
        assert reads == [201]
        mend()
        await clock.advance(61)
        assert len(it.bodies()) == 198 and it.figure("sparrowmq_timers_pending") == 0


async def test_a_turn_delivers_a_megabyte_of_large_messages(tmp_path, clock):
    async with running(tmp_path, clock, commit_log_file_size=1 << 24) as it:
        due_ms = clock.now_ms() + 1000
        for _ in range(20):
            it.send(bytes(300_000), TIMER_DELIVER_MS=str(due_ms), UNIQ_KEY="large")
        most, delivered, deliver_some = 0, 0, it.timed._deliver_some

        def counting():
            nonlocal most, delivered
            wait_s = deliver_some()
            now = int(it.figure("sparrowmq_timers_delivered_total"))
            most, delivered = max(most, now - delivered), now
            return wait_s

        it.timed.delivery._do_some = counting
        await clock.advance(2)
        assert (most, delivered) == (4, 20)
