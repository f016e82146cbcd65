"""OpenTelemetry: a span for each message that is sent and for each that is handled, joined across programs.

    async with sparrowmq.connect("127.0.0.1:9876", hooks=[Tracing()]) as mq: ...

The context of the sender's span travels in the message's property `traceparent` (and `baggage`, if there is some), and
is the parent of the handler's span. A batch that is handled at once has a span with links to those of its senders.

This needs `opentelemetry-api` alone (`pip install 'sparrowmq[otel]'`), and records nothing until the program sets up an
SDK. Source of the names: OpenTelemetry's semantic conventions of messaging, 1.30.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Token
from typing import Final

from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.hooks import Hooks
from sparrowmq.client.sending.send_result import SendResult
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import Message

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode
except ImportError as error:
    raise ConfigError(f"{__name__} needs the package opentelemetry: pip install 'sparrowmq[otel]'") from error

SYSTEM: Final = {"messaging.system": "rocketmq"}


class Tracing(Hooks):
    """Hooks that make spans, by default with the tracer provider that the program has set up for all."""

    def __init__(self, provider: trace.TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("sparrowmq", tracer_provider=provider)
        # By the identity of the message, which lives as long as its span: the calls before and after get the same.
        self._send_spans: dict[int, Span] = {}
        self._consume_spans: dict[int, tuple[Span, Token[Context]]] = {}

    def before_send(self, message: Message) -> None:
        span = self._tracer.start_span(
            f"send {message.topic}",
            kind=SpanKind.PRODUCER,
            attributes={
                **SYSTEM,
                "messaging.operation.type": "send",
                "messaging.destination.name": message.topic,
            },
        )
        self._send_spans[id(message)] = span
        propagate.inject(message.properties, trace.set_span_in_context(span))

    def after_send(self, message: Message, outcome: SendResult | BaseException | None) -> None:
        span = self._send_spans.pop(id(message), None)
        if span is None:
            return
        if isinstance(outcome, SendResult):
            span.set_attribute("messaging.message.id", outcome.msg_id)
        _end(span, outcome if isinstance(outcome, BaseException) else None)

    def before_consume(self, messages: Sequence[ReceivedMessage]) -> None:
        first = messages[0]
        senders = [propagate.extract(message.properties) for message in messages]
        span = self._tracer.start_span(
            f"process {first.topic}",
            context=senders[0] if len(messages) == 1 else None,
            kind=SpanKind.CONSUMER,
            links=[Link(trace.get_current_span(sender).get_span_context()) for sender in senders],
            attributes={
                **SYSTEM,
                "messaging.operation.type": "process",
                "messaging.destination.name": first.topic,
                "messaging.message.id": first.msg_id,
                "messaging.batch.message_count": len(messages),
            },
        )
        self._consume_spans[id(first)] = span, context.attach(trace.set_span_in_context(span))

    def after_consume(self, messages: Sequence[ReceivedMessage], error: BaseException | None) -> None:
        span, token = self._consume_spans.pop(id(messages[0]), (None, None))
        if span is not None and token is not None:
            context.detach(token)
            _end(span, error)


def _end(span: Span, error: BaseException | None) -> None:
    if error is not None:
        span.record_exception(error)
        span.set_status(StatusCode.ERROR, str(error))
    span.end()
