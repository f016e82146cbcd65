from typing import Any

from sparrowmq.client.client import connect


async def test_a_consumer_that_pops_gives_back_to_the_broker_that_it_pops(peer):
    async with connect(peer.address) as mq:
        popping: Any = mq.subscribe("t", group="g", mode="pop")
        assert popping._assignment._pops is popping._delivery._retries._pops
