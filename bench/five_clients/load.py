"""A load with Apache's own Python client of RocketMQ 5; Load.java does the same. Run by the Python of `five_python`.

load.py ENDPOINTS send IN_FLIGHT WARM_UP COUNT       writes "begin" behind the warm-up, and figures as JSON at the end
load.py ENDPOINTS receive IN_FLIGHT WARM_UP COUNT    ... writes "ready" first, and reads a line when the messages are
                                                     there; a call is an acknowledgement
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from concurrent.futures import Future

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

TOPIC, GROUP = "bench", "bench"
BODY = b"x" * 128
INVISIBLE_S = 60
LIMIT_S = 300


class Tally:
    """Counts finished calls. The clock runs from the end of the warm-up to the last call."""

    def __init__(self, warm_up: int, count: int) -> None:
        self._lock = threading.Lock()
        self._warm_up, self._last = warm_up, warm_up + count
        self.done = 0
        self._times: list[float] = []
        self._errors: list[BaseException] = []
        self._began = self._cpu = 0.0
        self.figures: dict[str, object] = {}
        self.ended = threading.Event()

    def take(self, began: float, error: BaseException | None) -> None:
        with self._lock:
            self.done += 1
            if error is not None:
                self._errors.append(error)
            if self._warm_up < self.done <= self._last:
                self._times.append(time.perf_counter() - began)
            if self.done == self._warm_up:
                print("begin", flush=True)
                self._began, self._cpu = time.perf_counter(), time.process_time()
            elif self.done == self._last:
                self._set_figures()
                self.ended.set()

    def _set_figures(self) -> None:
        took_s = time.perf_counter() - self._began
        count = len(self._times)
        self.figures = {
            "rate": count / took_s,
            "client_us": (time.process_time() - self._cpu) / count * 1e6,
            "p99_ms": sorted(self._times)[count * 99 // 100] * 1e3,
            "errors": len(self._errors),
            "error": repr(self._errors[0]) if self._errors else "",
        }

    def report(self) -> None:
        """Wait for the end, and write the figures."""
        if not self.ended.wait(LIMIT_S):
            raise TimeoutError(f"{self.done} calls in {LIMIT_S} s; {self._errors[:1]}")
        print(json.dumps(self.figures), flush=True)


def send(config: ClientConfiguration, in_flight: int, tally: Tally) -> None:
    producer = Producer(config, (TOPIC,))
    producer.startup()
    room = threading.Semaphore(in_flight)
    while not tally.ended.is_set():
        message = Message()
        message.topic, message.body = TOPIC, BODY
        room.acquire()
        began = time.perf_counter()

        def done(future: Future[object], began: float = began) -> None:
            tally.take(began, future.exception())
            room.release()

        producer.send_async(message).add_done_callback(done)
    tally.report()


def receive(config: ClientConfiguration, in_flight: int, tally: Tally) -> None:
    consumer = SimpleConsumer(config, GROUP, {TOPIC: FilterExpression()}, 5)
    consumer.startup()
    time.sleep(1)  # Apache's proxy breaks if a receive comes before it has the client's settings
    print("ready", flush=True)
    sys.stdin.readline()

    def ask() -> None:
        while not tally.ended.is_set():
            for message in consumer.receive(32, INVISIBLE_S):
                began = time.perf_counter()
                consumer.ack(message)  # `ack_async` of 5.1.2 works only in the thread of an event loop
                tally.take(began, None)

    for _ in range(in_flight):
        threading.Thread(target=ask, daemon=True).start()
    tally.report()


if __name__ == "__main__":
    endpoints, what, in_flight, warm_up, count = sys.argv[1:]
    {"send": send, "receive": receive}[what](
        ClientConfiguration(endpoints, Credentials()), int(in_flight), Tally(int(warm_up), int(count))
    )
    os._exit(0)
