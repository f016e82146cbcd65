import asyncio

from sparrowmq.console.samples import Samples
from sparrowmq.testing import ManualClock


async def test_rates_and_lags_are_sampled_for_brokers_and_watched_groups(look):
    clock = ManualClock()
    samples = Samples(look, clock)
    await look.admin.create_topic("orders", queues=1)
    await look.admin.create_group("billing")
    await look.client.send("orders", b"x")
    await look.admin.reset("billing", "orders", "earliest")
    assert samples.watch_lags("billing") == []
    await samples.sample()
    assert [lag for _, lag in samples.watch_lags("billing")] == [1]
    assert {broker: len(points) for broker, points in samples.rates().items()} == {
        "broker-0": 1,
        "broker-1": 1,
    }


async def test_a_group_that_nobody_looks_at_any_more_is_forgotten(look):
    clock = ManualClock()
    samples = Samples(look, clock)
    await look.admin.create_group("billing")
    samples.watch_lags("billing")
    await samples.sample()
    await clock.advance(601)
    await samples.sample()
    assert samples.watch_lags("billing") == []


async def test_no_more_than_a_hundred_groups_are_watched(look):
    samples = Samples(look, ManualClock())
    for number in range(150):
        samples.watch_lags(f"group-{number}")
    assert len(samples._watched) == 100 and "group-149" in samples._watched


async def test_the_last_hour_survives_a_restart_of_the_console(look, tmp_path):
    clock = ManualClock()
    before = Samples(look, clock, tmp_path)
    await look.admin.create_topic("orders", queues=1)
    await look.admin.create_group("billing")
    await look.client.send("orders", b"x")
    await look.admin.reset("billing", "orders", "earliest")
    before.watch_lags("billing")
    await before.sample()
    await before.save()
    after = Samples(look, clock, tmp_path)
    await after.restore()
    await clock.advance(5)
    await after.sample()
    assert [lag for _, lag in after.watch_lags("billing")] == [1, 1]
    assert after.rates()["broker-0"][0] == before.rates()["broker-0"][0]
    assert len(after.rates()["broker-0"]) == 2
    without = Samples(look, clock)
    await without.restore()
    assert without.rates() == {}


async def test_the_hour_is_written_each_minute(look, tmp_path):
    clock = ManualClock()
    samples = Samples(look, clock, tmp_path)
    running = asyncio.create_task(samples.run())
    try:
        async with asyncio.timeout(60):
            while not (tmp_path / "last-hour.json").exists():
                await clock.advance(5)
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
    assert clock.monotonic() >= 60
