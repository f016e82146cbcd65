"""What a slave does not do, and that it does all else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.admin_headers import (
    DeleteSubscriptionGroup,
    DeleteTopic,
    GetBrokerRuntime,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndCreateTopic,
)
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack, EndTransaction, GetMaxOffset
from sparrowmq.protocol.wire.header import Request
from sparrowmq.remoting.session import Session
from tests.broker.live import send_request
from tests.broker.replication.pairs import pair


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


async def test_it_answers_what_only_asks(slave: Session) -> None:
    assert (await slave.call(GetBrokerRuntime())).body
    assert (await slave.call(GetMaxOffset("orders", 0))).header.offset == 0
