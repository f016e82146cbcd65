"""Staged batches, asked of a whole broker."""

import json

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.requests.headers import CommitBatch, StageBatch
from tests.broker.live import live_broker


def body(*names, properties=""):
    given = [BatchPart(name.encode(), f"UNIQ_KEY\x01{name}\x02{properties}".encode()) for name in names]
    return batch.encode(given)


def stage(topic="orders", queue_id=0, writer="query", run="run-1", number=0, at=0):
    return StageBatch(topic, queue_id, writer, run, at, "attempt", number, 1_700_000_000_000)


def commit(writer="query", run="run-1", at=0):
    return CommitBatch(writer, run, at)


SAID = json.dumps({"attempts": {"attempt": 1}}).encode()
MANY_ATTEMPTS = json.dumps({"attempts": dict.fromkeys(map(str, range(21_000)), 1)}).encode()
MANY_BROKERS = json.dumps({"attempts": {}, "others": {str(each): {"": 1} for each in range(1001)}}).encode()


async def test_a_batch_is_delivered_after_its_commit(tmp_path):
    async with live_broker(tmp_path) as broker:
        await broker.session.call(stage(), body("1", "2"))
        assert await broker.messages() == []
        answer = await broker.session.call(commit(), SAID)
        assert answer.header.repeated is False
        while len(await broker.messages()) < 2:
            pass
        answer = await broker.session.call(commit(), SAID)
        assert answer.header.repeated is True
        assert [each.unique_key for each in await broker.messages()] == ["1", "2"]


async def test_what_others_are_to_publish_is_kept_with_the_decision(tmp_path):
    others = {"broker-b": {"attempt": 2}}
    async with live_broker(tmp_path) as broker:
        await broker.session.call(stage(), body("1"))
        said = json.dumps({"attempts": {"attempt": 1}, "others": others}).encode()
        for content in (said, SAID):
            answer = await broker.session.call(commit(), content)
            assert json.loads(answer.header.others) == others


@pytest.mark.parametrize(
    ("request_", "content", "code", "what"),
    [
        (stage(topic="rmq_sys_STAGED"), body("1"), ResponseCode.NO_PERMISSION, "forbidden"),
        (stage(queue_id=99), body("1"), ResponseCode.SYSTEM_ERROR, r"queueId\[99\] is illegal"),
        (stage(topic="%RETRY%g"), body("1"), ResponseCode.MESSAGE_ILLEGAL, "does not support retry group"),
        (stage(writer=""), body("1"), ResponseCode.SYSTEM_ERROR, "the writer must have 1 to 255"),
        (stage(run="a\x01b"), body("1"), ResponseCode.SYSTEM_ERROR, "the run must have"),
        (stage(at=-1), body("1"), ResponseCode.SYSTEM_ERROR, "batches begin at 0"),
        (stage(), body("1", properties="DELAY\x013\x02"), ResponseCode.MESSAGE_ILLEGAL, "property DELAY"),
        (stage(), body("1", properties="TRAN_MSG\x01true\x02"), ResponseCode.MESSAGE_ILLEGAL, "transaction"),
        (stage(), b"x" * (5 << 20), ResponseCode.MESSAGE_ILLEGAL, "maxMessageSize"),
        (commit(), b"no json", ResponseCode.SYSTEM_ERROR, "the body of a commit"),
        (commit(), b" " * (600 << 10), ResponseCode.MESSAGE_ILLEGAL, "fewer tasks"),
        (commit(), MANY_ATTEMPTS, ResponseCode.MESSAGE_ILLEGAL, "fewer tasks"),
        (commit(), MANY_BROKERS, ResponseCode.MESSAGE_ILLEGAL, "fewer tasks"),
        (commit(), SAID, ResponseCode.ILLEGAL_OPERATION, "stage the batch again"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(tmp_path, request_, content, code, what):
    async with live_broker(tmp_path) as broker:
        with pytest.raises(RemoteError, match=what) as refused:
            await broker.session.call(request_, content)
        assert refused.value.code == code


async def test_a_commit_is_no_larger_than_a_message(tmp_path):
    async with live_broker(tmp_path, max_message_bytes=1000) as broker:
        await broker.session.call(stage(), body("1"))
        with pytest.raises(RemoteError, match="maxMessageSize is 1000"):
            await broker.session.call(commit(), SAID + b" " * 1000)
        assert not (await broker.session.call(commit(), SAID)).header.repeated
