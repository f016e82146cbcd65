"""A consumer whose account may subscribe to its topic and its group, and nothing else, does all that consumers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.consuming.redelivery import BrokerRedelivery
from sparrowmq.client.consuming.retry import Reject, Retry
from sparrowmq.errors import SparrowError
from sparrowmq.testing.cluster import Cluster

OPERATOR: Final = Credentials("operator", "secretOfOperator")
BILLING: Final = Credentials("billing", "secretOfBilling")
STRANGER: Final = Credentials("stranger", "secretOfStranger")
ACCOUNTS: Final = """
accounts:
- {accessKey: operator, secretKey: secretOfOperator, admin: true}
- accessKey: billing
  secretKey: secretOfBilling
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [orders=SUB]
  groupPerms: [billing=SUB]
- accessKey: stranger
  secretKey: secretOfStranger
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: DENY
  groupPerms: [others=SUB, CLIENT_INNER_PRODUCER=SUB]
"""
KINDS: Final[dict[str, dict[str, Any]]] = {
    "accounts of 4.x": {"acl": True},
    "policies of 5.x": {"authentication": True, "authorization": True, "migrates_accounts": True},
}


@pytest.fixture(params=KINDS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    async with Cluster(tmp_path / "cluster", acl_file=file, **KINDS[request.param]) as started:
        async with connect(started.namesrv, credentials=OPERATOR) as mq:
            await mq.admin.create_topic("orders", queues=1)
            await mq.send("orders", b"paid")
        yield started


async def read(cluster: Cluster, topic: str) -> ReceivedMessage:
    """Return the first message of a topic that the broker may create later."""
    async with (
        asyncio.timeout(20),
        connect(cluster.namesrv, credentials=OPERATOR) as mq,
        mq.subscribe(topic, group="judge", start="earliest") as reader,
    ):
        async for message in reader:
            message.ack()
            return message
    raise AssertionError


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_reconsume_times": 0},
        {"max_reconsume_times": 1, "suspend_s": 0.01, "ordered": True},
        {"max_reconsume_times": 0, "mode": "pop"},
    ],
    ids=["concurrent", "ordered", "pop"],
)
@pytest.mark.parametrize("error", [ValueError, Reject])
@pytest.mark.covers("S-ACL-06")
async def test_a_failed_message_becomes_a_dead_letter(
    cluster: Cluster, arguments: dict[str, Any], error: type[Exception]
) -> None:
    def fail(message: ReceivedMessage) -> None:
        raise error("unpaid")

    async with (
        connect(cluster.namesrv, credentials=BILLING) as mq,
        mq.subscribe("orders", fail, group="billing", start="earliest", **arguments),
    ):
        assert (await read(cluster, "%DLQ%billing")).body == b"paid"


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_message_is_retried_answered_committed_and_traced(cluster: Cluster, ordered: bool) -> None:
    retried = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.body == b"question":
            assert await message.reply(b"answer")
        elif message.reconsume_times == 0:
            raise ValueError("not yet")
        else:
            retried.set()

    options: Any = {"retry": Retry("10ms"), "ordered": ordered, "start": "earliest"}
    async with connect(cluster.namesrv, credentials=OPERATOR) as operator:
        async with (
            asyncio.timeout(20),
            connect(cluster.namesrv, credentials=BILLING, trace=True) as mq,
            mq.subscribe("orders", handle, group="billing", **options),
        ):
            assert (await operator.request("orders", b"question", timeout_s=20)).body == b"answer"
            await retried.wait()
        assert (await operator.admin.lag("billing")).lag == 0
    assert b"billing" in (await read(cluster, "RMQ_SYS_TRACE_TOPIC")).body


async def test_a_stranger_to_the_group_gives_it_no_message(cluster: Cluster) -> None:
    async with connect(cluster.namesrv, credentials=STRANGER, group="others") as mq:
        forged = BrokerRedelivery("billing", 0, mq._network.brokers, mq._inner_queue)
        async with mq.pull_consumer(group="others", start="earliest") as reader:
            reader.assign(await reader.queues("orders"))
            [message] = await reader.poll()
        for give_back in (forged.give_back, forged.move_to_dlq, forged.reject):
            with pytest.raises(SparrowError, match="billing"):
                await give_back(message)
