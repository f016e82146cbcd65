"""Spans with the API alone: a tracer of the test's own stands for an SDK."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags

from sparrowmq.client.client import connect
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.errors import SendFailed
from sparrowmq.otel import Tracing
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import Message, MessageQueue, StoredMessage
from sparrowmq.protocol.requests.headers import SendMessageV2
from sparrowmq.remoting.handler import Reply
from tests.client.scripted import Scripted


class Recorded(NonRecordingSpan):
    def __init__(self, name, parent, number, kind, links, attributes) -> None:
        own = SpanContext(parent.trace_id or 7, number, is_remote=False, trace_flags=TraceFlags(1))
        super().__init__(own)
        self.name, self.parent, self.kind, self.links, self.seen = name, parent, kind, links, dict(attributes)
        self.status = self.error = None
        self.is_ended = False

    def set_attribute(self, key, value):
        self.seen[key] = value

    def record_exception(self, exception, *_, **__):
        self.error = exception

    def set_status(self, status, description=None):
        self.status = status

    def end(self, end_time=None):
        self.is_ended = True


class Tracer(trace.NoOpTracer, trace.TracerProvider):
    def __init__(self) -> None:
        self.spans: list[Any] = []

    def get_tracer(self, *_, **__):
        return self

    def start_span(  # type: ignore[override]
        self, name, context=None, kind=SpanKind.INTERNAL, attributes=None, links=(), **_
    ):
        parent = trace.get_current_span(context).get_span_context()
        span = Recorded(name, parent, 100 + len(self.spans), kind, links, attributes or {})
        self.spans.append(span)
        return span


@pytest.fixture
async def peer():
    async with Scripted() as started:
        yield started


@pytest.fixture
def tracer() -> Tracer:
    return Tracer()


@pytest.fixture
async def mq(peer, tracer):
    peer.has("t")
    settings = ProducerSettings(retries=0)
    async with connect(peer.address, hooks=[Tracing(tracer)], settings=settings) as client:
        yield client


def sent_properties(peer) -> list[dict[str, str]]:
    return [properties.parse(command.header(SendMessageV2).properties) for command in peer.sent]


def received(own: dict[str, str], topic: str = "t") -> ReceivedMessage:
    stored = StoredMessage(topic, 0, 0, 0, 0, 0, 0, 0, 0, "127.0.0.1:1", 0, "127.0.0.1:1", 0, 0, b"x", own)
    return ReceivedMessage(stored, MessageQueue(topic, "broker-a", 0))


async def test_the_senders_span_travels_with_the_message(peer, mq, tracer):
    results = await asyncio.gather(mq.send("t", b"1", properties={"a": "b"}), mq.send("t", b"2"))
    assert [span.name for span in tracer.spans] == ["send t"] * 2
    for span, result, own in zip(tracer.spans, results, sent_properties(peer), strict=True):
        assert own["traceparent"] == f"00-{7:032x}-{span.get_span_context().span_id:016x}-01"
        assert span.is_ended and span.status is None and span.kind is SpanKind.PRODUCER
        assert span.seen["messaging.message.id"] == result.msg_id and span.seen["messaging.system"] == "rocketmq"


async def test_a_failed_send_is_a_failed_span(peer, mq, tracer):
    peer.script(RequestCode.SEND_MESSAGE_V2, Reply(ResponseCode.MESSAGE_ILLEGAL, remark="no"))
    with pytest.raises(SendFailed) as caught:
        await mq.send("t", b"x")
    (span,) = tracer.spans
    assert span.is_ended and span.status is StatusCode.ERROR and span.error is caught.value


def test_the_handlers_span_is_the_child_of_the_senders_and_the_current_one_while_it_runs(tracer):
    tracing, message = Tracing(tracer), Message("t", b"x")
    tracing.before_send(message)
    tracing.after_send(message, None)
    got = [received(message.properties)]
    tracing.before_consume(got)
    sender, handler = tracer.spans
    assert handler.parent.span_id == sender.get_span_context().span_id and handler.parent.is_remote
    assert trace.get_current_span() == handler and handler.kind is SpanKind.CONSUMER
    failure = ValueError("bad")
    tracing.after_consume(got, failure)
    assert handler.is_ended and handler.error is failure
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_batch_has_one_span_with_a_link_to_each_sender(tracer):
    tracing, messages = Tracing(tracer), [Message("t", b"1"), Message("t", b"2")]
    for message in messages:
        tracing.before_send(message)
    got = [received(message.properties) for message in messages]
    tracing.before_consume(got)
    tracing.after_consume(got, None)
    batch = tracer.spans[-1]
    assert not batch.parent.is_valid and batch.is_ended and batch.status is None
    assert [link.context.span_id for link in batch.links] == [100, 101]
    assert batch.seen["messaging.batch.message_count"] == 2


async def test_without_an_sdk_messages_stay_as_they_are(peer):
    peer.has("t")
    async with connect(peer.address, hooks=[Tracing()]) as mq:
        await mq.send("t", b"x")
    assert "traceparent" not in sent_properties(peer)[0]
