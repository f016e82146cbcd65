"""The figures of pops, as Prometheus reads them."""

from tests.broker.live import live_broker
from tests.broker.pop_live import ack, pop


async def test_all_numbers_are_figures(tmp_path):
    async with live_broker(tmp_path) as broker:
        figures = broker.broker._figures
        for _ in range(3):
            await broker.send()
        first, *_ = await pop(broker)
        await broker.session.call(ack(first))
    assert figures.value("sparrowmq_pop_messages") == 2
    found = figures.values("sparrowmq_pop_total")
    assert found == {("taken",): 3, ("acknowledged",): 1, ("expired",): 0, ("dead",): 0}
