from sparrowmq.client.client import connect
from sparrowmq.client.consuming.assignment import Assignment
from sparrowmq.client.popping.pop_assignment import PopAssignment
from sparrowmq.client.popping.pop_retries import PopRetries


async def test_only_a_consumer_that_pops_gets_these_parts(peer):
    async with connect(peer.address) as mq:
        popping = mq.subscribe("t", group="g", mode="pop")
        assert type(popping._assignment) is PopAssignment
        assert type(popping._delivery._retries) is PopRetries
        assert popping._assignment._pops is popping._delivery._retries._pops
        pulling = mq.subscribe("t", group="h")
        assert type(pulling._assignment) is Assignment
