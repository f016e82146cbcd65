"""Metrics reach a collector over HTTP as OpenTelemetry's own definitions have them."""

import asyncio
import logging
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from sparrowmq.core.stats import Histogram
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.otlp import Push
from sparrowmq.metrics.series_limit import Series, series_of
from sparrowmq.testing.clock import ManualClock
from tests.metrics.receiver import Receiver, receiving


async def series() -> list[Series]:
    figures = Figures()
    figures.gauge("behind", "bytes", lambda: 7)
    figures.counters("messages_total", "messages", ("topic",), lambda: [(("a",), 3), (("b",), 4)])
    figures.gauges("empty", "no series", ("topic",), list)
    seen = Histogram()
    for value in (50, 50, 2000, 5_000_000):
        seen.record(value)
    figures.histograms("took_seconds", "how long", (), lambda: [((), seen)], (100, 10_000), 1e-6)
    return list(series_of(figures, {"node_id": "b"}, 1))


def push_to(receiver: Receiver, clock: ManualClock) -> Push:
    return Push(receiver.address, 60, {"service.name": "s", "service.instance.id": "b"}, series, clock)


def labels(point: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in point.attributes}


async def test_a_collector_gets_every_number_with_its_labels() -> None:
    with receiving() as receiver:
        await push_to(receiver, ManualClock()).send()
    [(path, headers, request)] = receiver.requests
    assert path == "/v1/metrics" and headers["content-type"] == "application/x-protobuf"
    [told] = request.resource_metrics
    assert {"service.name": "s", "service.instance.id": "b"}.items() <= labels(told.resource).items()
    [scope] = told.scope_metrics
    metrics = {metric.name: metric for metric in scope.metrics}
    assert "empty" not in metrics
    [behind] = metrics["behind"].gauge.data_points
    assert (behind.as_double, labels(behind)) == (7, {"node_id": "b"})
    messages = metrics["messages_total"].sum
    assert messages.is_monotonic
    assert messages.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert {labels(each)["topic"]: each.as_double for each in messages.data_points} == {"a": 3, "(others)": 4}
    [took] = metrics["took_seconds"].histogram.data_points
    assert list(took.bucket_counts) == [2, 1, 1] and list(took.explicit_bounds) == [0.0001, 0.01]
    assert (took.count, took.sum) == (4, pytest.approx(5.0021))
    [left_out] = metrics["sparrowmq_series_left_out"].gauge.data_points
    assert labels(left_out)["family"] == "messages_total"


async def test_it_is_sent_again_and_again_until_it_is_stopped() -> None:
    clock = ManualClock()
    with receiving() as receiver:
        running = asyncio.create_task(push_to(receiver, clock).run())
        await clock.advance(59)
        assert receiver.requests == []
        async with asyncio.timeout(30):
            while len(receiver.requests) < 3:
                await clock.advance(60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        count = len(receiver.requests)
        await clock.advance(600)
        assert len(receiver.requests) == count


async def test_a_collector_that_takes_nothing_is_told_once_and_so_is_that_it_does_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with receiving() as receiver, caplog.at_level(logging.INFO, "sparrowmq"):
        push = push_to(receiver, ManualClock())
        receiver.status = 400
        await push.send()
        await push.send()
        receiver.status = 200
        await push.send()
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("sparrowmq")]
    assert ours == [
        f"metrics do not reach {receiver.address}; they are tried again every 60 s",
        f"metrics reach {receiver.address} again",
    ]
