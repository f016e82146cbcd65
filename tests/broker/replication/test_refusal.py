"""What a slave does not do, and that it does all else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.replication.slave_guard import refusing, refusing_once_over
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.admin_headers import (
    DeleteSubscriptionGroup,
    DeleteTopic,
    GetBrokerRuntime,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndCreateTopic,
)
from sparrowmq.protocol.requests.headers import (
    ConsumerSendMsgBack,
    EndTransaction,
    GetMaxOffset,
    LockBatchMq,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.requests.request_table import BY_CODE
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Request
from sparrowmq.remoting.session import Session
from tests.broker.live import send_request
from tests.broker.members import Members
from tests.broker.replication.pairs import pair
from tests.interop.etcd import needs_etcd


@pytest.fixture
async def slave(tmp_path: Path) -> AsyncIterator[Session]:
    """A slave whose master is not there."""
    async with pair(tmp_path) as both:
        await both.start("slave")
        yield await both.session("slave")


@pytest.mark.parametrize(
    ("header", "code", "words"),
    [
        (send_request(), ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave"),
        (ConsumerSendMsgBack(0, "consumers", 0), ResponseCode.SERVICE_NOT_AVAILABLE, "send to its master"),
        (EndTransaction("p", 0, 0, 8, ""), ResponseCode.SLAVE_NOT_AVAILABLE, "end transaction is forbidden"),
        (UpdateAndCreateTopic("new", 4, 4, 6), ResponseCode.SYSTEM_ERROR, "from slave broker"),
        (DeleteTopic("TBW102"), ResponseCode.SYSTEM_ERROR, "from slave broker"),
        (UpdateAndCreateSubscriptionGroup(), ResponseCode.SYSTEM_ERROR, "from slave broker"),
        (DeleteSubscriptionGroup("consumers"), ResponseCode.SYSTEM_ERROR, "from slave broker"),
    ],
)
async def test_a_slave_writes_nothing_and_changes_nothing_that_is_its_masters(
    slave: Session, header: Request, code: int, words: str
) -> None:
    with pytest.raises(RemoteError, match=words) as refused:
        await slave.call(header, b"{}")
    assert refused.value.code == code
    assert (await slave.call(GetMaxOffset("orders", 0))).header.offset == 0


@pytest.mark.parametrize("guarded", [False, True])
def test_a_master_is_guarded_as_ever_until_its_time_is_over_and_as_a_slave_from_then_on(
    guarded: bool,
) -> None:
    asked: list[object] = []
    time = [True]
    guard = refusing_once_over((lambda *each: asked.append(each)) if guarded else None, lambda: time[0])
    send, pull = (BY_CODE[code] for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE))
    peer: Any = None
    guard(peer, Command(send.code), send, send_request())
    assert len(asked) == guarded
    time[0] = False
    guard(peer, Command(pull.code), pull, GetMaxOffset("orders", 0))
    assert len(asked) == 2 * guarded
    with pytest.raises(RemoteError, match="send to its master"):
        guard(peer, Command(send.code), send, send_request())


@needs_etcd
async def test_a_slave_of_a_group_that_elects_refuses_a_commit_that_the_next_master_would_not_have(
    members: Members,
) -> None:
    await members.two_in_sync()
    assert await members.send(1, b"one") == 0
    commit = UpdateConsumerOffset("consumers", "orders", 0, 1)
    with pytest.raises(RemoteError, match="commit to its master"):
        await members.order(2, commit)
    assert (await members.order(1, commit)).code == 0


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
def test_a_slave_of_a_group_that_elects_leaves_locks_to_its_master(code: int) -> None:
    """It would give a queue to a member whose order the master gave to another."""
    peer: Any = None
    asked = peer, Command(code), BY_CODE[code], LockBatchMq()
    refusing(None)(*asked)
    with pytest.raises(RemoteError, match="its master has the locks of queues") as refused:
        refusing(None, is_elected=True)(*asked)
    assert refused.value.code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_it_answers_what_only_asks(slave: Session) -> None:
    assert (await slave.call(GetBrokerRuntime())).body
    assert (await slave.call(GetMaxOffset("orders", 0))).header.offset == 0
