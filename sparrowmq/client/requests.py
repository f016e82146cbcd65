"""Requests: a message that asks, and its answer.

    answer = await mq.request("prices", b"EURUSD", timeout_s=2)

The request is an ordinary message of its topic. Some group must consume it, and one of its members answers by
`message.reply`. The request carries its sender and an id, which the answer repeats. The first answer counts.
Source: DefaultMQProducerImpl.request, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from math import ceil

from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.producer_settings import check_timeout
from sparrowmq.client.sending.send_arguments import Sending
from sparrowmq.errors import InvalidMessage, RequestTimeout, SendFailed
from sparrowmq.protocol.messages.message import MessageQueue, Property, StoredMessage


class Requests:
    def __init__(self, network: Network) -> None:
        self._network = network

    async def ask(self, producer: Producer, sending: Sending, timeout_s: float) -> ReceivedMessage:
        """Send a request and wait for its answer. See `Client.request`."""
        check_timeout(timeout_s)
        message = sending.message
        if message.is_delayed:
            raise InvalidMessage("a request cannot be delayed, because the sender waits for the answer")
        correlation_id = str(uuid.uuid4())
        asking = {
            Property.CORRELATION_ID: correlation_id,
            Property.REPLY_TO_CLIENT: self._network.client_id,
            Property.TTL: str(ceil(timeout_s * 1000)),
        }
        request = replace(message, properties=dict(message.properties) | asking)
        asked = Sending(request, sending.fifo, sending.queue, timeout_s)
        with self._network.answers.expect(correlation_id) as answer:
            try:
                stored = await self._network.clock.wait_for(self._exchange(producer, asked, answer), timeout_s)
            except TimeoutError:
                whom = f"a consumer of {request.topic}"
                raise RequestTimeout(whom, f"request {correlation_id}", timeout_s) from None
        return self._received(stored)

    async def _exchange(
        self, producer: Producer, sending: Sending, answer: asyncio.Future[StoredMessage]
    ) -> StoredMessage:
        await self._network.answers.greet_brokers(self._network.full_name(sending.message.topic))
        try:
            await producer.send(sending.message, fifo=sending.fifo, queue=sending.queue, timeout_s=sending.timeout_s)
        except SendFailed:
            if not answer.done():  # Otherwise only the broker's acknowledgement was lost.
                raise
        return await answer

    def _received(self, stored: StoredMessage) -> ReceivedMessage:
        brokers = self._network.routes.brokers
        through = (name for name, each in brokers.items() if stored.store_host in each.values())
        queue = MessageQueue(stored.topic, next(through, ""), stored.queue_id)
        return ReceivedMessage(stored, queue, namespace=self._network.namespace)
