"""The parts of pop consumption, in a whole broker."""

from tests.broker.live import live_broker
from tests.broker.pop_live import ack, pop


async def test_a_broker_without_pops_writes_no_steps_and_counts_none(tmp_path):
    async with live_broker(tmp_path) as broker:
        await broker.send()
        figures = broker.broker._figures
        assert figures.value("sparrowmq_pop_messages") == 0
        (message,) = await pop(broker)
        assert figures.value("sparrowmq_pop_messages") == 1
        await broker.session.call(ack(message))
        assert figures.values("sparrowmq_pop_total")[("acknowledged",)] == 1
