"""What our producer and our brokers do together with a send."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq.client.client import connect
from sparrowmq.protocol.requests.admin_headers import DeleteTopic
from sparrowmq.testing.cluster import Cluster


@pytest.mark.guards("Outgoing.failed_at: self.failed_brokers = (broker_name,)")
@pytest.mark.covers("S-PROD-06", "S-PROD-19")
async def test_an_asynchronous_send_is_retried_on_another_broker(tmp_path: Path) -> None:
    """One broker does not know the topic any more, one is gone: what is sent without waiting is stored all the same."""
    async with (
        Cluster(tmp_path, brokers=3, auto_create_topic=False) as cluster,
        connect(cluster.namesrv) as mq,
    ):
        await mq.admin.create_topic("t", queues=2)
        await mq.send("t", b"the route is known")
        refusing, gone, living = cluster.brokers
        session = await mq._network.brokers.session(refusing.address)
        await session.call(DeleteTopic(topic="t"))
        await gone.__aexit__(None, None, None)
        answers = [mq.send_soon("t", b"%d" % number) for number in range(60)]
        stored_at = {(await answer).queue.broker_name for answer in answers}
        assert stored_at == {living.settings.name}
        assert len(refusing._server.sessions) == 1, "it was there, and was asked"
