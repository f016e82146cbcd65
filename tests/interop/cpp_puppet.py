"""The C++ client of PyPI's `rocketmq` as a program that does what its standard input says; see clients.py.

It stands alone, because the C++ client now and then ends its process: no test has it in its own.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

from rocketmq.client import Message, Producer, PullConsumer, PushConsumer, RecvMessage
from rocketmq.exceptions import RocketMQException
from rocketmq.ffi import MessageModel, _CConsumeStatus, dll

OK: Final = _CConsumeStatus.CONSUME_SUCCESS.value
METHODS: Final = {"async": "asynchronous"}  # a word that Python keeps for itself
LATER: Final = _CConsumeStatus.RECONSUME_LATER.value


def main(namesrv: str) -> None:
    """One command a line, words with tabs between: the verb, then name=value."""
    verbs = {"produce": Sender, "consume": Receiver, "fetch": Fetcher}
    puppet: Any = None
    for line in sys.stdin:
        verb, *words = line.rstrip("\n").split("\t")
        fields = dict(word.split("=", 1) for word in words)
        if verb in verbs:
            puppet = verbs[verb](namesrv, **fields)
            say(started=True)
        else:
            say(**obeyed(getattr(puppet, METHODS.get(verb, verb)), fields))


def obeyed(method: Callable[..., dict[str, Any]], fields: dict[str, str]) -> dict[str, Any]:
    """What the method answers, or why the client refuses."""
    try:
        return method(**fields)
    except RocketMQException as error:
        return {"error": str(error)}


class Sender:
    """A producer; each method is a way to send."""

    def __init__(self, namesrv: str, group: str, access: str = "", secret: str = "") -> None:
        self.client = Producer(group)
        self.client.set_namesrv_addr(namesrv)
        if access:
            self.client.set_session_credentials(access, secret, "")
        self.client.start()

    def sync(self, **fields: str) -> dict[str, Any]:
        return outcome(self.client.send_sync(message(**fields)))

    def asynchronous(self, **fields: str) -> dict[str, Any]:
        answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.client.send_async(
            message(**fields),
            lambda result: answers.put(outcome(result)),
            lambda error: answers.put({"error": str(error)}),
        )
        return answers.get(timeout=20)

    def oneway(self, **fields: str) -> dict[str, Any]:
        self.client.send_oneway(message(**fields))
        return {"status": "OK"}

    def ordered(self, shard: str, **fields: str) -> dict[str, Any]:
        return outcome(self.client.send_orderly(message(**fields), int(shard)))

    def batch(self, body: str, **fields: str) -> dict[str, Any]:
        messages = [message(body=each, **fields) for each in body.split("|")]
        return outcome(self.client.send_batch(messages))


class Receiver:
    """A push consumer that tells each delivery, and refuses the first `fail` ones of each message.

    How often a message is tried at most, the group knows.
    """

    def __init__(
        self,
        namesrv: str,
        consumer: str,
        group: str,
        topic: str,
        expression: str,
        mode: str,
        **more: str,
    ) -> None:
        model = MessageModel.BROADCASTING if mode == "broadcasting" else MessageModel.CLUSTERING
        self.client = PushConsumer(group, orderly=mode == "orderly", message_model=model)
        self.client.set_namesrv_addr(namesrv)
        if "access" in more:
            self.client.set_session_credentials(more["access"], more["secret"], "")
        # Or one failure is the failure of all that were given together.
        self.client.set_message_batch_max_size(1)
        self._name = consumer
        self._fail = int(more.get("fail", "0"))
        self._deliveries: Counter[str] = Counter()
        # Not `client.subscribe`: what it makes of a failing callback is a success for the C++ side.
        dll.Subscribe(self.client._handle, topic.encode(), expression.encode())
        self.client._register_callback(self._receive)
        self.client.start()

    def stop(self, **_: str) -> dict[str, Any]:
        self.client.shutdown()
        return {"stopped": True}

    def _receive(self, _consumer: int, handle: int) -> int:
        received = RecvMessage(handle)
        body = text(received.body)
        self._deliveries[body] += 1
        say(
            consumer=self._name,
            topic=received.topic,
            body=body,
            tags=text(received.tags),
            keys=text(received.keys),
            colour=text(received["colour"]),
            queue=received.queue_id,
            offset=received.queue_offset,
            retries=received.reconsume_times,
            born=received.born_timestamp,
            stored=received.store_timestamp,
            size=received.store_size,
            id=received.id,
        )
        return int(LATER if self._deliveries[body] <= self._fail else OK)


class Fetcher:
    """A pull consumer, which reads each queue to its end."""

    def __init__(self, namesrv: str, group: str) -> None:
        self.client = PullConsumer(group)
        self.client.set_namesrv_addr(namesrv)
        self.client.start()

    def pull(self, topic: str, expression: str) -> dict[str, Any]:
        return {"bodies": [text(received.body) for received in self.client.pull(topic, expression)]}


def message(
    topic: str,
    body: str,
    tags: str = "",
    keys: str = "",
    colour: str = "",
    delay: str = "0",
    times: str = "1",
    **properties: str,
) -> Message:
    made = Message(topic)
    made.set_body(body * int(times))
    made.set_tags(tags)
    made.set_keys(keys)
    if colour:
        made.set_property("colour", colour)
    for name, value in properties.items():
        made.set_property(name.removeprefix("property."), value)
    if delay != "0":
        made.set_delay_time_level(int(delay))
    return made


def outcome(result: Any) -> dict[str, Any]:
    return {"status": result.status.name, "id": result.msg_id, "offset": result.offset}


def text(value: bytes | None) -> str:
    return (value or b"").decode()


def say(**facts: Any) -> None:
    """One event, a line of JSON, written at once: it may be the last one."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
