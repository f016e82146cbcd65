import asyncio
import json
import time
from datetime import UTC, datetime

import pytest

from examples.flights.results import Results
from examples.flights.stages import Stage
from sparrowmq.client.client import connect
from sparrowmq.testing import Cluster

FIVE = datetime(2013, 1, 1, 5, tzinfo=UTC)


def result(origin="JFK", hour=FIVE, batch=0, flights=10, cancelled=0, mean=1.5):
    return {
        "origin": origin,
        "hour": hour.isoformat().replace("+00:00", ".000Z"),
        "flights": flights,
        "cancelled": cancelled,
        "mean_dep_delay_min": mean,
        "max_dep_delay_min": 20,
        "late_share": 0.25,
        "batch": batch,
    }


@pytest.fixture
async def consumed(tmp_path):
    """Sends rows, all to one queue, and gives what a consumer made of them."""

    async def consumed(*rows):
        stage = Stage("results")
        results = Results(stage)
        async with Cluster(tmp_path) as cluster, connect(cluster.namesrv) as mq:
            consuming = asyncio.create_task(results.consume(mq, "delays"))
            for row in rows:
                await mq.send("delays", json.dumps(row).encode(), fifo="one queue")
            deadline = time.monotonic() + 10
            while stage.done < len(rows) and time.monotonic() < deadline:
                await asyncio.sleep(0.01)
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)
        return results, stage

    return consumed


async def test_the_latest_batch_of_an_hour_wins_in_whatever_order_it_comes(consumed):
    rows = (result(batch=2, mean=3.0), result(batch=1, mean=9.0), result("EWR"))
    results, stage = await consumed(*rows)
    assert stage.done == 3
    assert stage.size_bytes == sum(len(json.dumps(row)) for row in rows)
    assert {row["origin"]: row["mean_dep_delay_min"] for row in results.rows} == {"JFK": 3.0, "EWR": 1.5}
    assert results.rows[0]["hour"] == FIVE


async def test_a_second_delivery_of_a_message_is_not_counted(tmp_path):
    stage = Stage("results")
    results = Results(stage)
    taken = asyncio.Event()

    def twice(message):
        results.take(message)
        results.take(message)
        taken.set()

    async with (
        Cluster(tmp_path) as cluster,
        connect(cluster.namesrv) as mq,
        mq.subscribe("delays", twice, group="twice", start="earliest"),
        asyncio.timeout(10),
    ):
        await mq.send("delays", json.dumps(result()).encode())
        await taken.wait()
    assert stage.done == len(results.rows) == 1


async def test_the_worst_hours_are_those_with_the_longest_mean_delay(consumed):
    rows = [result(hour=FIVE.replace(hour=hour), mean=float(hour)) for hour in range(5)]
    results, _ = await consumed(*rows, result("EWR", mean=99.0))
    worst = results.worst(2)
    assert list(worst) == ["EWR", "JFK"]
    assert [row["mean_dep_delay_min"] for row in worst["JFK"]] == [4.0, 3.0]


async def test_hours_with_few_flights_are_not_among_the_worst(consumed):
    results, _ = await consumed(
        result(flights=4, mean=500.0),
        result("EWR", flights=20, cancelled=20, mean=None),
        result("LGA", flights=5, mean=1.0),
    )
    assert list(results.worst(3)) == ["LGA"]
