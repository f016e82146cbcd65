from typing import Any

import pytest

from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.message_id import parse_offset_id
from sparrowmq.protocol.requests.client_bodies import Heartbeat, ProducerBeat
from sparrowmq.protocol.requests.headers import EndTransaction, HeartBeat, ResumeCheckHalfMessage
from sparrowmq.remoting.log_limit import LINES
from tests.broker.live import live_broker, send_request
from tests.broker.replication.slaves import slave_at

HALF = {"TRAN_MSG": "true", "PGROUP": "producers", "UNIQ_KEY": "u"}
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


def end(reply, how, **fields):
    return EndTransaction(
        producer_group="producers",
        tran_state_table_offset=reply.queue_offset,
        commit_log_offset=parse_offset_id(reply.msg_id).physical_offset,
        commit_or_rollback=how,
        msg_id="u",
        **fields,
    )


async def test_the_answer_to_a_half_message_names_the_queue_that_was_asked_for(tmp_path):
    async with live_broker(tmp_path) as live:
        reply = await live.send(b"paid", queue_id=3, properties=HALF)
        assert (reply.queue_id, reply.queue_offset) == (3, 0)
        assert await live.messages(queue_id=3) == []


async def test_an_end_is_answered_when_it_is_stored_and_may_come_again(tmp_path):
    async with live_broker(tmp_path) as live:
        reply = await live.send(b"paid", properties=HALF)
        for _ in range(2):
            await live.session.call(end(reply, COMMIT))
        assert [each.body for each in await live.messages()] == [b"paid"]


async def test_an_end_that_comes_again_is_answered_when_it_is_safe(tmp_path):
    """Its client asks again because no slave had it: the next master may lack it."""
    async with live_broker(tmp_path, role=BrokerRole.SYNC_MASTER, slave_timeout_ms=100) as live:
        reply = await live.send(b"paid", properties=HALF | {"WAIT": "false"})
        async with slave_at(live.broker.ha_address) as slave:
            slave.report(0)
            await slave.piece()
            for _ in range(2):
                with pytest.raises(RemoteError) as late:
                    await live.session.call(end(reply, COMMIT))
                assert late.value.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            slave.report(live.broker.store.end)
            await live.session.call(end(reply, COMMIT))


async def test_an_end_may_want_no_answer(tmp_path):
    async with live_broker(tmp_path) as live:
        reply = await live.send(b"paid", properties=HALF)
        live.session.tell(end(reply, COMMIT))
        live.session.tell(end(reply, ROLLBACK))  # too late, and nobody is told
        await live.send(b"next", topic="other")
        assert [each.body for each in await live.messages()] == [b"paid"]


async def test_unknown_changes_nothing_and_what_is_no_end_is_refused(tmp_path):
    async with live_broker(tmp_path) as live:
        reply = await live.send(b"paid", properties=HALF)
        await live.session.call(end(reply, UNKNOWN, from_transaction_check=True))
        with pytest.raises(RemoteError, match="commitOrRollback=4: 8 commits, 12 rolls back, 0 is unknown"):
            await live.session.call(end(reply, 4))
        await live.session.call(end(reply, COMMIT))
        assert [each.body for each in await live.messages()] == [b"paid"]


async def test_a_half_message_gets_its_group_and_an_unusual_true_is_one(tmp_path):
    async with live_broker(tmp_path) as live:
        reply = await live.send(b"paid", properties={"TRAN_MSG": "True"})
        await live.session.call(end(reply, COMMIT))
        (message,) = await live.messages()
        assert message.properties["PGROUP"] == "producers"


async def test_what_was_committed_is_sent_back_and_retried_like_any_message(tmp_path):
    retry: dict[str, Any] = {"topic": "%RETRY%consumers", "reconsume_times": 1, "max_reconsume_times": 16}
    async with live_broker(tmp_path) as live:
        await live.send(b"old client", properties={**HALF, "DELAY": "1"}, **retry)
        assert [each.body for each in await live.messages("SCHEDULE_TOPIC_XXXX")] == [b"old client"]


async def test_what_a_tool_sends_again_to_a_group_is_no_half_message(tmp_path):
    """A dead letter as it lies, mark and all; Java would ask its producer once more whether it may come."""
    async with live_broker(tmp_path) as live:
        await live.send(b"dead", topic="%RETRY%consumers", properties=HALF, max_reconsume_times=16)
        assert [each.body for each in await live.messages("%RETRY%consumers")] == [b"dead"]


async def test_batches_hold_no_half_messages(tmp_path):
    body = batch.encode([batch.BatchPart(b"one", b"TRAN_MSG\x01true\x02")])
    async with live_broker(tmp_path) as live:
        with pytest.raises(RemoteError, match="send them one by one"):
            await live.session.call(send_request(batch=True), body)


async def test_an_operator_has_a_discarded_one_asked_about_again(tmp_path, clock):
    settings = {"transaction_checks": 1, "transaction_interval_ms": 10_000}
    async with live_broker(tmp_path, clock=clock, **settings) as live:
        beat = Heartbeat("me", producer_data_set=[ProducerBeat("producers")])
        await live.session.call(HeartBeat(), beat.encode())
        await live.send(b"paid", properties=HALF, born_timestamp=clock.now_ms())
        await clock.advance(20)
        (lost,) = await live.messages("TRANS_CHECK_MAX_TIME_TOPIC")
        await live.session.call(ResumeCheckHalfMessage(msg_id=lost.offset_id))
        assert len(await live.messages("RMQ_SYS_TRANS_HALF_TOPIC")) == 3
        for wrong in ("", "xyz", "0" * 31 + "1"):
            with pytest.raises(RemoteError):
                await live.session.call(ResumeCheckHalfMessage(msg_id=wrong))


async def test_few_refused_ends_are_logged(tmp_path, caplog):
    async with live_broker(tmp_path) as live:
        reply = await live.send(b"paid", properties=HALF)
        for number in range(LINES + 5):
            with pytest.raises(RemoteError):
                await live.session.call(end(reply, COMMIT, transaction_id=f"no such id {number}"))
        assert sum("ends a transaction" in each.getMessage() for each in caplog.records) == LINES
