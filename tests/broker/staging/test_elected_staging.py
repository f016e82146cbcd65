"""Staged batches of brokers that elect their master: what a member had committed alone is not committed."""

from __future__ import annotations

import msgspec

from sparrowmq.broker.staging.writers import SavedStaging
from sparrowmq.core import snapshot
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateTopic
from sparrowmq.protocol.requests.headers import CommitBatch, StageBatch
from sparrowmq.remoting.session import Session
from tests.broker.members import Members
from tests.interop.etcd import needs_etcd

pytestmark = needs_etcd


async def stage(session: Session, *bodies: str) -> None:
    parts = [BatchPart(body.encode(), f"UNIQ_KEY\x01id-{body}\x02".encode(), 0) for body in bodies]
    asked = StageBatch("orders", 0, "query", "run-1", 0, "a", 0, 1)
    await session.call(asked, batches.encode(parts), timeout_s=10)


async def commit(session: Session) -> bool | int:
    """Whether the batch had been committed before; the code of a refusal."""
    body = msgspec.json.encode({"attempts": {"a": 1}})
    try:
        answer = await session.call(CommitBatch("query", "run-1", 0), body, timeout_s=10)
    except RemoteError as error:
        return error.code
    return answer.header.repeated


async def test_a_commit_that_was_cut_from_the_log_is_forgotten(members: Members) -> None:
    await members.two_in_sync()
    first = await members.pool.session(f"127.0.0.1:{members.settings(1).port}")
    await first.call(UpdateAndCreateTopic("orders", 1, 1, 6))
    await stage(first, "one")
    await members.same(1, 2)
    master, slave = members.member(1).broker, members.member(2).broker
    assert master is not None and master.term.in_sync is not None
    master.term.in_sync._commit = members.no_answer
    assert slave is not None
    slave.stop_following()
    assert await commit(first) == ResponseCode.FLUSH_SLAVE_TIMEOUT
    await members.power_cut(1)
    assert await members.leader(2) == 2
    file = members.settings(1).config_path / "stagedBatches.json"
    saved = snapshot.load(file, SavedStaging)
    assert saved is not None and saved.writers["query"].last_batch == 0
    await members.start(1)
    await members.in_sync(1, 2)
    assert not file.exists()
    second = await members.pool.session(f"127.0.0.1:{members.settings(2).port}")
    await stage(second, "one")
    await members.same(1, 2)
    await members.stop(2)
    assert await members.leader(1) == 1
    first = await members.pool.session(f"127.0.0.1:{members.settings(1).port}")
    assert await commit(first) == ResponseCode.SLAVE_NOT_AVAILABLE, "and not: repeated"
    await members.shows_bodies(1, b"one")
