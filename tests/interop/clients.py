"""Foreign clients as puppets: programs of C++, Go, Java and Node that send and consume as the test tells them.

    with JavaClient("4.9.8", namesrv) as client:
        client.send("T", "hello", tags="TagA")
        with client.consume("G", "T") as consumer:
            consumer.wait_for(1)

A puppet reads commands from its standard input, one a line, and writes lines of JSON: answers, and deliveries, which
name their consumer. Most puppets are one process for all; the C++ client gets a process for each producer and each
consumer, since it keeps one set of threads a process and now and then takes it down.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Any, ClassVar, Final, Self

from tests.interop.apache import JavaProgram
from tests.interop.child import Child, scratch
from tests.interop.kits import PeerMissing, go_puppet, node_puppet

HERE: Final = Path(__file__).parent
DELIVERY_LIMIT_S: Final = 45.0  # the C++ client looks for new queues every 10 s, for routes every 30 s
_POLL_S: Final = 0.02
# How often the Java client looks for new queues: 20 s unless it is told.
_REBALANCE: Final = "-Drocketmq.client.rebalance.waitInterval=1000"
_INTERRUPTED: Final = "terminate called after throwing an instance of 'boost::thread_interrupted'"
_NAMES: Final = (f"consumer-{number}" for number in count(1))

Event = dict[str, Any]


class Puppet(Child):
    """A child that obeys, and whose words are kept."""

    STDIN = subprocess.PIPE
    ANSWER_LIMIT_S: ClassVar[float] = 60.0

    def call(self, *words: str, **fields: object) -> Event:
        """Give a command and return its answer. A refusal of the client stands under "error"."""
        before = len(self.answers())
        words = (*words, *(f"{name}={value}" for name, value in fields.items()))
        self._tell("\t".join(words) + "\n")
        self.wait_until(lambda: len(self.answers()) > before, self.ANSWER_LIMIT_S, f"no answer to {words}")
        return self.answers()[before]

    def answers(self) -> list[Event]:
        return [event for event in self._events() if "consumer" not in event]

    def deliveries(self, consumer: str) -> list[Event]:
        return [event for event in self._events() if event.get("consumer") == consumer]

    def wait_until(self, holds: Callable[[], bool], limit_s: float, complaint: str) -> None:
        deadline = time.monotonic() + limit_s
        while not holds():
            ended = self.process.poll() if self.process else None
            assert ended is None, f"the client ended with {ended}: {complaint}\n{self.said()[-3000:]}"
            assert time.monotonic() < deadline, f"{complaint} within {limit_s} s\n{self.said()[-3000:]}"
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End of input is what lets a client say goodbye; SIGTERM is for one that does not listen."""
        with suppress(OSError, subprocess.TimeoutExpired):
            self._input().close()
            self._running().wait(10)
        super().stop()

    def _wait_ready(self) -> None:
        """It is when it answers its first command."""

    def _tell(self, line: str) -> None:
        try:
            self._input().write(line.encode())
            self._input().flush()
        except BrokenPipeError:
            raise ChildProcessError(f"the client has ended:\n{self.said()}") from None

    def _input(self) -> IO[bytes]:
        stdin = self._running().stdin
        assert stdin is not None
        return stdin

    def _events(self) -> Iterator[Event]:
        for line in self.said().splitlines(keepends=True):
            if line.startswith("{") and line.endswith("}\n"):
                yield json.loads(line)


class Consumer:
    """A push consumer inside a puppet."""

    def __init__(self, puppet: Puppet, name: str) -> None:
        self._puppet = puppet
        self._name = name
        self._kept: list[Event] | None = None

    def received(self) -> list[Event]:
        """Every delivery so far, in its order; also when the consumer is gone."""
        return self._puppet.deliveries(self._name) if self._kept is None else self._kept

    def stop(self) -> None:
        self._puppet.call("stop", consumer=self._name)
        self._kept = self.received()

    def bodies(self) -> list[str]:
        return [event["body"] for event in self.received()]

    def wait_for(self, count: int, limit_s: float = DELIVERY_LIMIT_S) -> list[Event]:
        """Return all deliveries once there are `count`."""
        self.wait_until(lambda: len(self.received()) >= count, f"not {count} deliveries", limit_s)
        return self.received()

    def wait_for_bodies(self, bodies: Iterable[str], limit_s: float = DELIVERY_LIMIT_S) -> list[Event]:
        """Return all deliveries once each of `bodies` was delivered."""
        wanted = set(bodies)
        self.wait_until(lambda: wanted <= set(self.bodies()), f"not all of {sorted(wanted)}", limit_s)
        return self.received()

    def wait_until(self, holds: Callable[[], bool], complaint: str, limit_s: float = DELIVERY_LIMIT_S) -> None:
        self._puppet.wait_until(holds, limit_s, complaint)


class Client:
    """One kind of client; what it offers to every test."""

    name: str

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def send(self, topic: str, body: str, how: str = "sync", **fields: object) -> Event:
        """Send and return what the producer was told.

        Args:
            how: sync, async, oneway, ordered with `shard`, batch with a body of parts with | between.
            fields: tags, keys, colour (a property), delay (a level), times (the body is repeated so often).
                Other properties have names like `property.X`.
        """
        answer = self._producer().call(how, topic=topic, body=body, **fields)
        assert "error" not in answer, answer["error"]
        assert answer["status"] == "OK", answer
        return answer

    @contextmanager
    def consume(
        self, group: str, topic: str, expression: str = "*", mode: str = "concurrent", **fields: object
    ) -> Iterator[Consumer]:
        """A push consumer until the block is left.

        Args:
            mode: concurrent, orderly or broadcasting.
            fields: fail, so many deliveries of each message fail; retries, its limit (the C++ client leaves that to
                the group); type="SQL92"; namespace; access and secret; trace.
        """
        name = next(_NAMES)
        with self._puppet_of_consumer() as puppet:
            what = {"group": group, "topic": topic, "expression": expression, "mode": mode}
            answer = puppet.call("consume", consumer=name, **what, **fields)
            assert "error" not in answer, answer["error"]
            consumer = Consumer(puppet, name)
            yield consumer
            consumer.stop()

    @contextmanager
    def producing(self, **fields: object) -> Iterator[None]:
        """With a producer of other settings: namespace, access and secret, trace."""
        self._start_producer(fields)
        yield
        self._start_producer({})

    def pull(self, group: str, topic: str, count: int, expression: str = "*") -> list[str]:
        """The bodies of the next `count` messages that a pull consumer of the group gets."""
        raise NotImplementedError

    def said(self) -> str:
        """Everything that it printed, with the traces of its errors; of several processes, the sender's."""
        return self._producer().said()

    def _start_producer(self, fields: Mapping[str, object]) -> None:
        raise NotImplementedError

    def _producer(self) -> Puppet:
        raise NotImplementedError

    @contextmanager
    def _puppet_of_consumer(self) -> Iterator[Puppet]:
        raise NotImplementedError
        yield


class CppClient(Client):
    """PyPI's `rocketmq` 0.4.4: librocketmq, the C++ client of Apache RocketMQ."""

    name = "cpp-0.4.4"

    def __init__(self, namesrv: str) -> None:
        super().__init__()
        require_cpp()
        self._namesrv = namesrv
        self._sender: Puppet | None = None

    def _start_producer(self, fields: Mapping[str, object]) -> None:
        self._sender = self._stack.enter_context(_CppPuppet(self._namesrv))
        answer = self._sender.call("produce", group="interop-cpp", **fields)
        assert "error" not in answer, answer["error"]

    def _producer(self) -> Puppet:
        if self._sender is None:
            self._start_producer({})
        assert self._sender is not None
        return self._sender

    def pull(self, group: str, topic: str, count: int = 0, expression: str = "*") -> list[str]:
        """The bodies that a pull consumer finds in all queues, whatever their count."""
        with self._puppet_of_consumer() as puppet:
            puppet.call("fetch", group=group)
            bodies: list[str] = puppet.call("pull", topic=topic, expression=expression)["bodies"]
            return bodies

    @contextmanager
    def _puppet_of_consumer(self) -> Iterator[Puppet]:
        with _CppPuppet(self._namesrv) as puppet:
            yield puppet


class _OneProcess(Client):
    """A client whose producer and consumers live in one process."""

    def __init__(self, puppet: Puppet) -> None:
        super().__init__()
        self._puppet = self._stack.enter_context(puppet)
        self._start_producer({})

    def call(self, verb: str, **fields: object) -> Event:
        """A command beyond what all clients know."""
        answer = self._puppet.call(verb, **fields)
        assert "error" not in answer, answer["error"]
        return answer

    def pull(self, group: str, topic: str, count: int, expression: str = "*") -> list[str]:
        bodies: list[str] = self.call("pull", group=group, topic=topic, expression=expression, count=count)["bodies"]
        return bodies

    def transact(self, group: str, topic: str, body: str, now: str, later: str = "unknown") -> Event:
        """Send a half message whose transaction ends with `now`, or `later` when the broker asks: commit, rollback,
        unknown."""
        return self.call("transact", group=group, topic=topic, body=body, now=now, later=later)

    def checks(self) -> list[str]:
        """The bodies of the messages that brokers asked about."""
        return [event["body"] for event in self._puppet.deliveries("checks")]

    def _start_producer(self, fields: Mapping[str, object]) -> None:
        self.call("produce", group="interop-senders", **fields)

    def _producer(self) -> Puppet:
        return self._puppet

    @contextmanager
    def _puppet_of_consumer(self) -> Iterator[Puppet]:
        yield self._puppet


class JavaClient(_OneProcess):
    """Apache's Java client."""

    def __init__(self, version: str, namesrv: str, jvm: Iterable[str] = ()) -> None:
        self.name = f"java-{version}"
        source = HERE / "java" / "Puppet.java"
        super().__init__(_JavaPuppet(version, source, namesrv, jvm=[_REBALANCE, *jvm]))


class GoClient(_OneProcess):
    """Apache's Go client, rocketmq-client-go v2.1.2."""

    name = "go-2.1.2"

    def __init__(self, namesrv: str) -> None:
        super().__init__(Puppet(scratch("go"), [str(go_puppet()), namesrv]))


class NodeClient(_OneProcess):
    """The JavaScript client ali-ons 3.12.0."""

    name = "node-3.12.0"

    def send(self, topic: str, body: str, how: str = "sync", **fields: object) -> Event:
        """As any client, but for the chosen queue, which takes the step below its `send`."""
        return super().send(topic, body, "placed" if how == "ordered" else how, **fields)

    def __init__(self, namesrv: str) -> None:
        super().__init__(Puppet(scratch("node"), [*node_puppet(), namesrv]))


class _JavaPuppet(Puppet, JavaProgram):
    pass


class _CppPuppet(Puppet):
    def __init__(self, namesrv: str) -> None:
        home = scratch("cpp")  # it writes its log under HOME
        super().__init__(home, [sys.executable, str(HERE / "cpp_puppet.py"), namesrv], HOME=home.name)

    def call(self, *words: str, **fields: object) -> Event:
        """As any puppet, but a consumer that is told to stop may end its process instead.

        DefaultMQPushConsumerImpl::shutdown and MQClientFactory::shutdown interrupt threads, in which nobody catches it:
        one that happens to wait, as it rebalances, ends the process. The broker sees the connection end.
        """
        try:
            return super().call(*words, **fields)
        except AssertionError:
            if words[0] == "stop" and _INTERRUPTED in self.said():
                return {"stopped": True}
            raise


def require_cpp() -> None:
    """Raises: PeerMissing, when the wheel is not there or its library does not load; asked in another process."""
    done = subprocess.run([sys.executable, "-c", "import rocketmq.client"], capture_output=True, text=True, timeout=60)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise PeerMissing(f"PyPI's rocketmq 0.4.4 does not load (Linux x86-64 only): {reason}")
