"""Acknowledgements of popped messages, asked of a whole broker."""

import base64
import random
from typing import Any

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.receipt_handle import ReceiptHandle
from sparrowmq.protocol.requests.headers import QueryConsumerOffset
from sparrowmq.protocol.requests.pop_headers import BatchAck, BatchAckMessage, BatchAcks
from sparrowmq.protocol.wire.header import Request
from tests.broker.live import live_broker
from tests.broker.pop_live import ack, change, pop, pop_all


async def committed(live, group="poppers"):
    return (await live.session.call(QueryConsumerOffset(group, "orders", 0))).header.offset


def batch(message, mask, **fields):
    handle = ReceiptHandle.parse(message.properties["POP_CK"])
    usual: dict[str, Any] = {
        "consumer_group": "poppers",
        "topic": "orders",
        "retry": "0",
        "start_offset": handle.start_offset,
        "queue_id": 0,
        "revive_queue_id": handle.revive_queue,
        "pop_time": handle.pop_time_ms,
        "invisible_time": handle.invisible_ms,
        "bits": base64.b64encode(mask.to_bytes(8, "little")).decode(),
    }
    return BatchAcks("broker-0", [BatchAck(**(usual | fields))]).encode()


async def test_a_batch_acknowledges_its_messages_and_no_others(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for number in range(4):
            await broker.send(str(number).encode())
        popped = await pop(broker, queue_id=0)
        answer = await broker.session.call(BatchAckMessage(), batch(popped[0], 0b1011))
        assert answer.header.left_out == 0
        assert await committed(broker) == 2
        await clock.advance(31)
        assert [each.body for each in await pop(broker)] == [b"2"]


async def test_a_batch_finds_its_messages_at_places_far_apart(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for number in range(20):
            await broker.send(str(number).encode())
        popped = await pop(broker, queue_id=0)
        places = [0, 7, 8, 15, 19, 300_000]
        mask = sum(1 << place for place in places)
        bits = base64.b64encode(mask.to_bytes(40_000, "little")).decode()
        answer = await broker.session.call(BatchAckMessage(), batch(popped[0], 1, bits=bits))
        assert answer.header.left_out == 1
        await clock.advance(31)
        found = [each.queue_offset for each in await pop_all(broker)]
        assert found == [offset for offset in range(20) if offset not in places]


async def test_a_batch_without_a_valid_token_does_nothing(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"one")
        (one,) = await pop(broker)
        for wrong in ({"revive_queue_id": 999}, {"consumer_group": "others"}, {"queue_id": 7}):
            answer = await broker.session.call(BatchAckMessage(), batch(one, 1, **wrong))
            assert answer.header.left_out == 1
        assert await committed(broker) == 0
        for body, code in (
            (BatchAcks("b", []).encode(), ResponseCode.NO_MESSAGE),
            (batch(one, 1, bits="?"), ResponseCode.MESSAGE_ILLEGAL),
            (batch(one, 1, bits=base64.b64encode(b"\xff" * 600).decode()), ResponseCode.INVALID_PARAMETER),
        ):
            with pytest.raises(RemoteError) as refused:
                await broker.session.call(BatchAckMessage(), body)
            assert refused.value.code == code


async def test_forged_and_foreign_handles_do_nothing(tmp_path, clock):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"one")
        (one,) = await pop(broker)
        await pop(broker, consumer_group="others")
        good = ReceiptHandle.parse(one.properties["POP_CK"])
        forged = [good._replace(revive_queue=chance.randrange(1 << 31)) for _ in range(300)]
        forged += [
            good._replace(broker_name="other"),
            good._replace(queue_offset=5),
            good._replace(queue_id=1),
        ]
        for handle in forged:
            requests: list[Request[Any]] = [ack(one, str(handle)), change(one, 0, handle=str(handle))]
            for request in requests:
                with pytest.raises(RemoteError, match="not valid") as refused:
                    await broker.session.call(request)
                assert refused.value.code == ResponseCode.NO_MESSAGE
        for request in (ack(one, consumer_group="others"), ack(one, topic="nowhere")):
            with pytest.raises(RemoteError, match="not valid"):
                await broker.session.call(request)
        with pytest.raises(RemoteError, match="receipt handle is invalid"):
            await broker.session.call(ack(one, "one two"))
        assert await committed(broker) == await committed(broker, "others") == 0
        await broker.session.call(ack(one))
        assert await committed(broker) == 1


async def test_a_change_to_now_brings_the_message_back_at_once(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"one")
        (one,) = await pop(broker)
        with pytest.raises(RemoteError, match="0 or more"):
            await broker.session.call(change(one, -1))
        await broker.session.call(change(one, 0))
        await clock.advance(0.1)
        assert [each.reconsume_times for each in await pop(broker)] == [1]


async def test_a_late_acknowledgement_counts_until_another_consumer_has_the_message(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        await broker.send(b"one")
        (one,) = await pop(broker)
        await clock.advance(31)
        await broker.session.call(ack(one))
        assert await committed(broker) == 1
        assert await pop(broker) == []
