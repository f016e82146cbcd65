import os

import pytest

from sparrowmq.client.cluster.network import Network, unique_client_id
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.requests.headers import GetMaxOffset, OffsetReply
from sparrowmq.remoting.handler import Reply


@pytest.mark.covers("S-CFG-02")
def test_two_clients_of_one_process_have_different_ids():
    one, two = unique_client_id("10.0.0.1"), unique_client_id("10.0.0.1")
    assert one != two
    assert one.startswith(f"10.0.0.1@{os.getpid()}#")


async def test_whoever_only_asks_reaches_brokers_by_name_and_announces_nobody(peer):
    peer.has("t")
    peer.usual[RequestCode.GET_MAX_OFFSET] = lambda _: Reply(header=OffsetReply(7))
    async with Network(peer.address) as network:
        await network.routes.of("t")
        session = await network.brokers.of("broker-a")
        answer = await session.call(GetMaxOffset(topic="t", queue_id=0))
        assert answer.header.offset == 7
    assert session.closed
    assert not peer.requests(RequestCode.HEART_BEAT)
