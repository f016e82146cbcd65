"""sparrowmq.spark.pipelines.traces: latencies out of message traces."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("pyspark")


from sparrowmq.client.client import Client
from sparrowmq.protocol.messages import trace as traces
from sparrowmq.protocol.messages.trace import PubTrace, Reaction, SubAfterTrace, SubBeforeTrace, TracedKind
from sparrowmq.spark.pipelines import trace
from tests.hostile_bodies import send_damaged

pytestmark = pytest.mark.timeout(240)

T0 = 1_700_000_000_000


def reports(number):
    """A message that took 5 ms to be sent, 20 ms to be delivered, and `number` ms to be handled."""
    msg_id, request = f"id-{number}", f"request-{number}"
    kind, host = TracedKind.NORMAL, "127.0.0.1:1"
    sent = PubTrace(T0, "shop", "orders", msg_id, "paid", None, host, 10, 5, kind, "0A", number != 3)
    begun = SubBeforeTrace(T0 + 25, "billing", request, msg_id, 0, None)
    reaction = Reaction.SUCCESS
    ended = SubAfterTrace(request, msg_id, number, number != 1, None, reaction, T0 + 25 + number, "billing")
    return [traces.encode(sent).encode(), (traces.encode(begun) + traces.encode(ended)).encode()]


@pytest.mark.slow
def test_latencies_are_those_of_the_steps_of_each_message(topic, tmp_path):
    topic.send_bodies([body for number in range(1, 101) for body in reports(number)] + [b"Pub\x01no trace\x02"])

    async def send() -> None:
        async with Client(topic.options["nameServer"]) as mq:
            await send_damaged(mq, topic.name)

    asyncio.run(send())
    topic.wait_for(202)
    said: list[str] = []
    answer = trace(
        name_server=topic.options["nameServer"],
        topic=topic.name,
        spark=topic.spark,
        to=tmp_path / "t",
        say=said.append,
    )
    assert [tuple(row) for row in answer.each()] == [
        ("send", "orders", "shop", 100, 1, 5.0, 5.0, 5),
        ("deliver", "orders", "billing", 100, 0, 20.0, 20.0, 20),
        ("handle", "orders", "billing", 100, 1, 50.5, pytest.approx(99.01), 100),
    ]
    assert (answer.report.read, answer.report.written, answer.report.errors) == (202, 3, 2)
    assert said == ["2 trace messages cannot be read"]
    assert topic.spark.read.parquet(str(tmp_path / "t")).count() == 302
