"""A program with Apache's own Python client of RocketMQ 5. Run by the Python of `kits.five_python`.

puppet.py ENDPOINTS TASK...      prints a line of JSON for each task
"""

import json
import os
import queue
import sys
import threading
import time
from contextlib import suppress

from rocketmq import (
    ClientConfiguration,
    Credentials,
    FilterExpression,
    Message,
    Producer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

try:
    from rocketmq import ConsumeResult, MessageListener, PushConsumer
except ImportError:  # a release before 5.1
    MessageListener = object

LIMIT_S = 60
TLS = {"tls_enable": True} if "TLS" in os.environ else {}


def outgoing(body, **fields):
    message = Message()
    message.topic = "orders"
    message.body = body.encode()
    for name, value in fields.items():
        setattr(message, name, value)
    return message


class Listener(MessageListener):  # type: ignore[misc]
    """Handles a message when it comes for the second time, a second after the first.

    In an ordered group the client itself hands it over again, with the same `delivery_attempt`.
    """

    def __init__(self):
        self.bodies: queue.Queue = queue.Queue()
        self.failed: set[str] = set()

    def consume(self, message):
        if message.message_id not in self.failed:
            self.failed.add(message.message_id)
            return ConsumeResult.FAILURE
        self.bodies.put(message.body.decode())
        return ConsumeResult.SUCCESS


class StuckListener(MessageListener):  # type: ignore[misc]
    """Handles the message "stuck 0" only after "quick 2"."""

    def __init__(self):
        self.bodies: queue.Queue = queue.Queue()
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def consume(self, message):
        body = message.body.decode()
        if body == "stuck 0":
            self.begun.set()
            self.goes_on.wait(LIMIT_S)
        self.bodies.put(body)
        if body == "quick 2":
            self.goes_on.set()
        return ConsumeResult.SUCCESS


class Checker(TransactionChecker):  # type: ignore[misc]
    def __init__(self):
        self.asked: queue.Queue = queue.Queue()

    def check(self, message):
        self.asked.put(message.message_id)
        return TransactionResolution.COMMIT


def received(consumer, count):
    """Receive and acknowledge so many messages, each with its tag and its keys."""
    found: list[list] = []
    end = time.monotonic() + LIMIT_S
    while len(found) < count and time.monotonic() < end:
        for message in consumer.receive(32, 15):
            found.append([message.body.decode(), message.tag, sorted(message.keys), message.properties])
            consumer.ack(message)
    return sorted(found)


def sends_and_receives(config):
    producer = Producer(config, ("orders",), **TLS)
    producer.startup()
    for number in range(20):
        message = outgoing(f"m{number}", tag="a" if number < 19 else "b", keys=f"k{number}")
        message.add_property("own", "x")
        producer.send(message)
    producer.send_async(outgoing("later", tag="a")).result(LIMIT_S)
    consumer = SimpleConsumer(config, "simple", {"orders": FilterExpression("a")}, 3, **TLS)
    consumer.startup()
    found = received(consumer, 20)
    producer.shutdown()
    consumer.shutdown()
    return found


def pushes(config):
    producer = Producer(config, ("orders",))
    producer.startup()
    for number in range(20):
        producer.send(outgoing(f"f{number}", message_group=f"g{number % 8}"))
    listener = Listener()
    consumer = PushConsumer(config, "push", listener, {"orders": FilterExpression()})
    consumer.startup()
    found: set[str] = set()
    end = time.monotonic() + LIMIT_S
    while len(found) < 20 and time.monotonic() < end:
        with suppress(queue.Empty):
            found.add(listener.bodies.get(timeout=2))
    producer.shutdown()
    consumer.shutdown()
    return sorted(found)


def keeps_groups_apart(config):
    """Push messages of a stuck message group, and of a quick one behind it in the same queue."""
    listener = StuckListener()
    consumer = PushConsumer(config, "ordered", listener, {"fifo": FilterExpression()})
    consumer.startup()
    producer = Producer(config, ("fifo",))
    producer.startup()
    for body in ("stuck 0", "stuck 1", "quick 0", "quick 1", "quick 2"):
        producer.send(outgoing(body, topic="fifo", message_group=body.split()[0]))
        if body == "stuck 0":
            listener.begun.wait(LIMIT_S)
    found = [listener.bodies.get(timeout=LIMIT_S) for _ in range(5)]
    producer.shutdown()
    consumer.shutdown()
    return found


def ends_transactions(config):
    checker = Checker()
    producer = Producer(config, ("orders",), checker=checker)
    producer.startup()
    transaction = producer.begin_transaction()
    producer.send(outgoing("now"), transaction)
    code = transaction.commit().status.code
    receipt = producer.send(outgoing("asked"), producer.begin_transaction())
    asked = checker.asked.get(timeout=LIMIT_S)
    producer.shutdown()
    return [code, receipt.message_id.endswith(asked)]  # 5.0.1 leaves out the version of an id


def recalls(config):
    producer = Producer(config, ("orders",))
    producer.startup()
    receipt = producer.send(outgoing("never", delivery_timestamp=int(time.time()) + 600))
    recalled = producer.recall_message("orders", receipt.recall_handle)
    producer.shutdown()
    return recalled == receipt.message_id


def next_message(consumer, invisible_s):
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        for message in consumer.receive(1, invisible_s):
            return message
    raise TimeoutError


def settles(config):
    """Leave a message that a SQL92 filter lets through; try a topic that takes messages with a group only."""
    wanted = FilterExpression("amount > 3", FilterType.SQL)
    consumer = SimpleConsumer(config, "settle", {"orders": wanted}, 3)
    consumer.startup()
    producer = Producer(config, ("orders", "fifo"))
    producer.startup()
    for body, amount in (("small", "1"), ("large", "5")):
        message = outgoing(body)
        message.add_property("amount", amount)
        producer.send(message)
    first = next_message(consumer, 300)
    consumer.change_invisible_duration(first, 10)
    again = next_message(consumer, 15)
    consumer.ack(again)
    found = [[each.body.decode(), each.delivery_attempt] for each in (first, again)]
    producer.send(outgoing("in order", topic="fifo", message_group="g"))
    try:
        producer.send(outgoing("normal", topic="fifo"))
        is_refused = False
    except Exception:
        is_refused = True
    producer.shutdown()
    consumer.shutdown()
    return [*found, is_refused]


if __name__ == "__main__":
    account = os.environ.get("ACCESS_KEY", ""), os.environ.get("SECRET_KEY", "")
    config = ClientConfiguration(sys.argv[1], Credentials(*account))
    for task in sys.argv[2:]:
        print(json.dumps(globals()[task](config)), flush=True)
