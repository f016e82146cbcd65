"""The parts of pop consumption, in a whole broker."""

from tests.broker.live import live_broker
from tests.broker.pop_live import ack, pop


async def test_pops_are_figures_and_a_broker_without_pops_counts_none(tmp_path):
    async with live_broker(tmp_path) as broker:
        figures = broker.broker._figures
        for _ in range(3):
            await broker.send()
        assert figures.value("sparrowmq_pop_messages") == 0
        first, *_ = await pop(broker)
        await broker.session.call(ack(first))
    assert figures.value("sparrowmq_pop_messages") == 2
    found = figures.values("sparrowmq_pop_total")
    assert found == {("taken",): 3, ("acknowledged",): 1, ("expired",): 0, ("dead",): 0}
