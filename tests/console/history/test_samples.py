from sparrowmq.console.history.samples import Samples
from sparrowmq.testing import ManualClock


async def test_rates_and_lags_are_sampled_for_brokers_and_watched_groups(look):
    clock = ManualClock()
    samples = Samples(look, clock)
    await look.admin.create_topic("orders", queues=1)
    await look.admin.create_group("billing")
    await look.client.send("orders", b"x")
    await look.admin.reset("billing", "orders", "earliest")
    assert samples.lags("billing") == []
    await samples.sample()
    assert [lag for _, lag in samples.lags("billing")] == [1]
    assert {broker: len(points) for broker, points in samples.rates().items()} == {
        "broker-0": 1,
        "broker-1": 1,
    }


async def test_a_group_that_nobody_looks_at_any_more_is_forgotten(look):
    clock = ManualClock()
    samples = Samples(look, clock)
    await look.admin.create_group("billing")
    samples.lags("billing")
    await samples.sample()
    await clock.advance(601)
    await samples.sample()
    assert samples.lags("billing") == []


async def test_no_more_than_a_hundred_groups_are_watched(look):
    samples = Samples(look, ManualClock())
    for number in range(150):
        samples.lags(f"group-{number}")
    assert len(samples._watched) == 100 and "group-149" in samples._watched
