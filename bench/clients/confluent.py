"""confluent-kafka: librdkafka behind a module in C. It batches by itself; `poll` calls the reports of delivery."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer

from bench.clients.task import (
    BATCHES,
    BODY,
    IN_TURN,
    LIMIT_S,
    ONE_BY_ONE,
    PIPELINED,
    WARM_UP,
    Count,
    Figures,
    Task,
    Ways,
)

BATCH: Final = 1000
POLL_EVERY: Final = 64


class _Reports:
    """Counts the deliveries. Raises: KafkaException where one failed."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, error: Any, _message: object) -> None:
        if error is not None:
            raise KafkaException(error)
        self.count += 1


def _send_pipelined(task: Task) -> Figures:
    # linger.ms is 5 by default, which is what librdkafka's documents advise for throughput.
    producer, reports = Producer({"bootstrap.servers": task.address, "acks": "all"}), _Reports()
    _warm_up(producer, task)
    watch = task.watch()
    for number in range(task.messages):
        if number % POLL_EVERY == 0:
            producer.poll(0)
        while True:
            try:
                producer.produce(task.topic, BODY, on_delivery=reports)
                break
            except BufferError:  # its queue of 100,000 messages is full
                producer.poll(0.01)
    producer.flush(LIMIT_S)
    figures = watch.figures(task.messages)
    _all_delivered(reports, task)
    return figures


def _send_in_turn(task: Task) -> Figures:
    settings = {"bootstrap.servers": task.address, "acks": "all", "linger.ms": 0}
    producer, reports = Producer(settings), _Reports()
    _warm_up(producer, task)
    watch, latencies_s = task.watch(), []
    for _ in range(task.messages):
        began = time.perf_counter()
        producer.produce(task.topic, BODY, on_delivery=reports)
        producer.flush(LIMIT_S)
        latencies_s.append(time.perf_counter() - began)
    figures = watch.figures(task.messages, latencies_s)
    _all_delivered(reports, task)
    return figures


def _consume_one_by_one(task: Task) -> Figures:
    return _consume(task, _one)


def _consume_batches(task: Task) -> Figures:
    return _consume(task, _batch)


def _consume(task: Task, take: Callable[[Consumer], list[Any]]) -> Figures:
    settings = {"bootstrap.servers": task.address, "group.id": task.group, "auto.offset.reset": "earliest"}
    consumer, count = Consumer(settings), Count(task)
    consumer.subscribe([task.topic])
    deadline = time.monotonic() + LIMIT_S
    bodies: list[Any] = []
    while not bodies or not count.take(bodies):
        bodies = take(consumer)
        if not bodies and time.monotonic() > deadline:
            raise TimeoutError(f"not {task.messages} messages in {LIMIT_S} s")
    figures = count.figures()
    consumer.close()
    return figures


def _one(consumer: Consumer) -> list[Any]:
    message = consumer.poll(1)
    return [] if message is None else [_sound(message).value()]


def _batch(consumer: Consumer) -> list[Any]:
    return [_sound(message).value() for message in consumer.consume(BATCH, timeout=1)]


def _sound(message: Any) -> Any:
    if message.error():
        raise KafkaException(message.error())
    return message


def _warm_up(producer: Producer, task: Task) -> None:
    for _ in range(WARM_UP):
        producer.produce(task.topic, BODY)
    producer.flush(LIMIT_S)


def _all_delivered(reports: _Reports, task: Task) -> None:
    if reports.count != task.messages:
        raise RuntimeError(f"{reports.count} of {task.messages} messages were delivered")


WAYS: Final[Ways] = {
    PIPELINED: _send_pipelined,
    IN_TURN: _send_in_turn,
    ONE_BY_ONE: _consume_one_by_one,
    BATCHES: _consume_batches,
}
